"""Rules of the comparisons: trials, counted gradients, bytes, costs to a target, results that are kept."""

import pytest

from benchmarks import protocol
from benchmarks.protocol import Gradients, Point, Quiet, Results, by_device, cost_to, grid, mean_sd, still_rising, tune
from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.fedavg import Settings
from tests.methods.problems import DEVICES, TREE, envs_of

CALM = NetworkFaults(repeat=0.0, delay=(0.0, 0.0))


def test_the_first_of_the_best_trials_is_taken():
    trials = grid(a=(1, 2), b=(0, 1))
    assert trials == [{"a": 1, "b": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 0}, {"a": 2, "b": 1}]
    chosen, scores = tune(trials, lambda t: t["b"] / 2)
    assert chosen == {"a": 1, "b": 1} and scores == [0, 0.5, 0, 0.5]
    with pytest.raises(UsageError, match="one trial"):
        tune([], lambda t: 0.0)


def test_a_method_with_more_trials_is_refused():
    assert protocol.check_budgets({"one": grid(a=(1, 2)), "other": grid(b=(3, 4))}) == 2
    with pytest.raises(UsageError, match="as many trials"):
        protocol.check_budgets({"one": grid(a=(1, 2)), "other": grid(b=(3,))})


def run(settings, counter):
    envs = envs_of(METHODS["fedavg"], settings, 3)
    envs |= {d: counter.through(envs[d]) for d in DEVICES}
    net = Quiet(METHODS["fedavg"], TREE, envs, {}, 0, CALM)
    return net


class Lengths:
    """A codec whose messages are as long as their description."""

    def encode(self, message):
        return repr(message).encode()


def test_gradients_are_counted_where_they_are_computed():
    counter = Gradients()
    run(Settings(batch=0, local_epochs=4), counter).run()
    assert counter.count == 3 * 4 * len(DEVICES)
    counter.paused = True
    run(Settings(batch=0, local_epochs=4), counter).run()
    assert counter.count == 3 * 4 * len(DEVICES)


def test_bytes_are_of_encoded_messages_between_devices_and_hospitals():
    net, seen = run(Settings(batch=0), Gradients()), []
    net.codec = Lengths()
    net.seen = lambda state, now: seen.append(state.round)
    net.run()
    assert seen[-1] == 3 and sorted(set(seen)) == [0, 1, 2, 3]
    noisy = Loopback(METHODS["fedavg"], TREE, envs_of(METHODS["fedavg"], Settings(batch=0), 3), {}, 0, CALM)
    crossed = [m for a, b, m in noisy.run().crossed if ROOT not in (a, b)]
    assert net.bytes == sum(len(net.codec.encode(m)) for m in crossed) > 0
    assert not net.transcript.crossed


def test_cost_to_a_target_and_what_is_still_gained():
    curve = [Point(r, 2.0 * r, min(0.8, 0.1 * r)) for r in range(1, 13)]
    assert cost_to(curve, 0.45) == 10.0 and cost_to(curve, 0.9) is None
    assert still_rising(curve) == 0
    assert abs(still_rising(curve[:8]) - 0.1) < 1e-12


def test_results_that_are_there_are_not_computed_again(tmp_path):
    path = tmp_path / "results.json"
    assert Results(path).get("a", lambda: {"x": 1}) == {"x": 1}
    assert Results(path).get("a", lambda: {"x": 2}) == {"x": 1}
    assert Results(None).get("a", lambda: {"x": 2}) == {"x": 2}


def test_cells():
    assert mean_sd([0.5, 0.7], 1, 100) == "60.0 ± 14.1"
    assert mean_sd([0.5], 1, 100) == "50.0"  # one seed has no deviation, which is not one of 0
    assert mean_sd([None, 0.7]) == "1 of 2" and mean_sd([None, None]) == "-"
    assert by_device([{"a": 0.2, "b": 1.0}, {"a": 0.4, "c": 1.0}]) == {"a": pytest.approx(0.3)}
    assert protocol.paired([0.5, 0.5], [0.4, 0.6]).endswith("1 worse")
