"""From what devices have written to metrics, groups and differences."""

from __future__ import annotations

import pytest

from edge_sdk.replay.scores import choose_for_fleet, find_trial, score_devices, summarise

CLASSES = ("a", "b")


def trial(optimiser: str, steps: int, correct: int, right: int) -> dict:
    """A way of training alone that gets so many of 5 samples of each class right."""
    return {
        "optimiser": optimiser, "steps": steps, "validation_correct": correct,
        "test": [[right, 5 - right], [5 - right, right]], "accuracy": right / 5,
    }  # fmt: skip


def device(name: str, alone: list, validation: int | None = 4, classes: int = 2, **right: int) -> dict:
    matrices = {model: [[n, 5 - n], [5 - n, n]] for model, n in right.items()}
    return {
        "device": name,
        "classes": classes,
        "validation": validation,
        "labels": {"a": 3, "b": 7},
        "accuracy": {model: n / 5 for model, n in right.items()},
        "validation_accuracy": {"personal": 0.5},
        "confusion": {"test": matrices, "validation": {}},
        "alone": alone,
    }


def test_the_fleet_s_choice_is_by_sums_and_a_device_s_by_its_own():
    first = [trial("adam", 25, 3, 1), trial("adam", 50, 2, 2), trial("sgd", 25, 0, 0), trial("sgd", 50, 0, 0)]
    other = [trial("adam", 25, 0, 3), trial("adam", 100, 4, 4), trial("sgd", 25, 0, 0), trial("sgd", 100, 1, 0)]
    assert choose_for_fleet([first, other]) == ("adam", 100)
    assert find_trial(first, "adam", 100)["steps"] == 50, "a device that trains less in the run trains less alone"
    one, two = score_devices([device("d", first, personal=4), device("e", other, personal=2)], CLASSES)
    assert one["accuracy"] == {"personalised": 0.8, "local": 0.2} and two["accuracy"]["local"] == 0.8
    assert one["local"] == {
        "own": {"optimiser": "adam", "steps": 25},
        "fleet": {"optimiser": "adam", "steps": 50},
        "chosen_by": "device",
    }
    assert one["metrics"]["local_fleet"]["accuracy"] == 0.4
    assert one["metrics"]["majority"]["accuracy"] == 0.5 and one["recall"]["majority"] == {"a": 0.0, "b": 1.0}
    assert one["confusion"]["personalised"] == [[4, 1], [1, 4]]
    assert "alone" not in one and one["validation_accuracy"] == {"personalised": 0.5}


def test_of_equal_choices_adam_and_fewer_steps_go_first():
    assert choose_for_fleet([[trial(o, n, 3, 1) for o in ("adam", "sgd") for n in (25, 50)]]) == ("adam", 25)
    assert choose_for_fleet([]) is None


def test_a_device_without_validation_samples_takes_the_fleet_s_choice():
    seen = [trial("adam", 25, 1, 1), trial("adam", 50, 3, 2)]
    blind = [trial("adam", 25, 0, 5), trial("adam", 50, 0, 4)]
    _, found = score_devices([device("d", seen, personal=1), device("e", blind, validation=0, personal=1)], CLASSES)
    assert found["local"]["chosen_by"] == "all" and found["accuracy"]["local"] == 0.8


def test_groups_and_differences():
    alone = [trial("adam", 25, 3, 2)]
    devices = score_devices(
        [device("d", alone, personal=4), device("e", alone, personal=1), device("f", alone, classes=1, personal=5)],
        CLASSES,
    )
    found = summarise(devices, seed=3)
    assert found["all"]["devices"] == 3 and found["two_classes"]["devices"] == 2
    assert found["two_classes"]["models"]["personalised"]["accuracy"] == pytest.approx(0.5)
    assert [*found["all"]["models"]] == ["majority", "local", "local_fleet", "personalised"]
    difference = found["all"]["against_local"]["personalised"]
    assert difference["mean"] == pytest.approx((0.4 - 0.2 + 0.6) / 3)
    assert difference["worse"] == difference["worse_by_a_point"] == pytest.approx(1 / 3) and difference["devices"] == 3
    assert difference["low"] == pytest.approx(-0.2) and difference["high"] == pytest.approx(0.6)
    assert {*found["all"]["against_local_fleet"]} == {"personalised"}
    assert summarise(devices, seed=3) == found


def test_without_a_validation_part_training_alone_has_an_accuracy_and_no_matrix():
    plain = device("d", [], validation=None, personal=4)
    plain["accuracy"]["local"] = 0.6
    (found,) = score_devices([plain], CLASSES)
    assert found["metrics"]["local"] == {"accuracy": 0.6} and found["local"] == {}
    group = summarise([found])["all"]
    assert group["against_local"]["personalised"]["mean"] == pytest.approx(0.2)
    assert "local_fleet" not in group["models"] and group["against_local_fleet"] == {}


def test_a_model_that_no_device_can_judge_alone_has_no_statistics():
    """A split model: there are accuracies, and no matrices."""
    split = device("d", [], validation=None) | {"confusion": {}, "accuracy": {"global": 0.7}}
    assert summarise(score_devices([split], CLASSES)) == {}
