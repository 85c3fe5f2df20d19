"""What settling's table says of devices that are worse off than alone."""

from benchmarks.outcomes import Outcome, harmed


def outcome(**gains):
    """A run: device -> points of its personal model above the one trained alone, on test and on validation windows."""

    def accuracies(part):
        return {name: {"alone": 0.5, "personal": 0.5 + gain[part] / 100} for name, gain in gains.items()}

    return Outcome(accuracies(0), accuracies(1), dict.fromkeys(gains, 22))


def test_a_device_that_is_worse_is_named_with_its_interval_over_runs():
    runs = [outcome(a=(-3, 1), b=(-0.5, 0), c=(-9, 2)), outcome(a=(-5, 3), b=(-1, 0), c=(9, 4))]
    assert harmed(runs) == ["a: -4.0 [-16.7, +8.7] over 2 runs; validation +2.0, 22 windows"]


def test_a_newcomer_has_no_say_on_validation():
    run = Outcome({"d*": {"alone": 0.5, "personal": 0.4}, "e": {"alone": 0.5, "personal": 0.4}})
    assert harmed([run], new=True) == ["d*: -10.0 [-10.0, -10.0] over 1 runs"]
    assert harmed([run]) == ["e: -10.0 [-10.0, -10.0] over 1 runs"]
