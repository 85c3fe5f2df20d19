"""The network of a simulation against the loopback, on one rank and on several: the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.robust.method import robust
from edge_sdk.methods.robust.settings import Robust
from edge_sdk.methods.shared.aggregation.gather import MANY, Sum, add, carried, total
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.simulation.network.exchange import checksum
from edge_sdk.simulation.sums.light_uploads import as_light, gather_lights, ready_to_add, stand_in, stand_ins
from edge_sdk.simulation.sums.tallies import integers_of
from tests.methods.contract import fingerprint
from tests.methods.problems import DEVICES, PATIENT, envs_of, play, told
from tests.methods.test_contract import settings_of
from tests.simulation.threads import network_of, on_all, outcome_of, thread_ranks

ROUNDS = 4


def outcomes(method, settings, count, directory, rounds=ROUNDS, **more):
    """What each rank comes to; states of clients are put together."""
    found = on_all(
        thread_ranks(count), lambda rank: outcome_of(method, settings, rounds, rank, directory / str(count), **more)
    )
    states = {name: state for _, _, own in found for name, state in own.items()}
    assert len({root for root, _, _ in found}) == 1, "ranks differ"
    return found[0][0], found[0][1], states


def of_loopback(method, settings, rounds=ROUNDS):
    envs = envs_of(method, settings, rounds, np.float32)
    net, transcript = play(evaluated(method, every=3), settings, rounds, envs=envs, policies=PATIENT)
    states = {d: fingerprint(net.nodes[d].record.state) for d in DEVICES}
    events = [fingerprint(m) for m in told(transcript, object)]
    return fingerprint(net.nodes["aggregator"].record.state), events, states


@pytest.mark.parametrize("name", METHODS)
def test_every_method_comes_to_what_it_does_over_the_loopback(name, tmp_path):
    """On one rank, and on three, which exchange sums of integers, or messages where a method does more than add."""
    settings = settings_of(METHODS[name])
    expected = of_loopback(METHODS[name], settings)
    for count in (1, 3):
        root, events, states = outcomes(METHODS[name], settings, count, tmp_path)
        assert root == expected[0] and events == expected[1]
        assert all(expected[2][client] == state for client, state in states.items())


def test_the_result_does_not_depend_on_how_clients_are_divided(tmp_path):
    settings = replace(settings_of(FEDSLR), participation=4)
    found = [outcomes(FEDSLR, settings, count, tmp_path, rounds=8) for count in (1, 2, 3, 7)]
    assert found[1:] == found[:1] * 3


def test_a_method_that_says_too_much_of_itself_is_found_out(tmp_path):
    """Robust hospitals look at each vector, so parts of their sums must not be made elsewhere."""
    sound = robust(FEDAVG, Robust(rule="median"))
    assert not sound.adds_up
    expected, *_ = outcomes(sound, settings_of(FEDAVG), 1, tmp_path)
    assert outcomes(sound, settings_of(FEDAVG), 2, tmp_path)[0] == expected
    with pytest.raises(AuscultError, match="looks into the sum of its uploads"):
        outcomes(replace(sound, adds_up=True), settings_of(FEDAVG), 3, tmp_path)


@pytest.mark.parametrize("name", ["fedavg", "fedslr"])
def test_integers_are_added_up_once(name, tmp_path):
    """A run whose vectors travel as integers: what its hospitals add is no `Sum` of a device."""
    settings = settings_of(METHODS[name])
    method = rounded(METHODS[name], settings, Uploads(bits=8))
    expected = outcomes(method, settings, 1, tmp_path)
    assert outcomes(method, settings, 3, tmp_path) == expected


def test_a_stand_in_weighs_and_counts_like_its_upload():
    upload = Sum(np.arange(5, dtype=np.float32), 3.0, 1, {"loss": 0.5})
    ((at, kept, found),) = stand_ins(*gather_lights([(3, True, ready_to_add(upload))]))
    assert (at, kept) == (3, True) and stand_in(as_light(found)) == found
    assert found.measure() == upload.measure() and found.weighing(2.0).weight == 2.0
    assert (found.count, found.scores) == (1, {"loss": 0.5}) and not np.any(found.onto(None, None)[0].close())
    high, low = upload.onto(None, None)
    assert found.onto(high, low) == (high, low)


@pytest.mark.parametrize("count", [1, 40, 4200])
def test_a_sum_that_stays_open_has_the_bits_of_one_by_one(count):
    """Also of large numbers, which are cut in another way, and of so many uploads that remainders are carried over."""
    random, one_by_one, ours, others = np.random.default_rng(count), None, None, None
    for i in range(count):
        upload = Sum((random.standard_normal(3) * 10.0 ** random.integers(-12, 9)).astype(np.float32), 1.0)
        one_by_one = add(one_by_one, f"d{i:04}", upload)
        ours = add(ours, f"d{i:04}", stand_in(as_light(elsewhere(upload))) if i % 3 == 0 else ready_to_add(upload))
        others = add(others, f"d{i:04}", ready_to_add(upload) if i % 3 == 0 else elsewhere(upload))
    parts = [integers_of(tally) for tally in (ours, others)]
    found = replace(ours, high=parts[0][0] + parts[1][0], low=parts[0][1] + parts[1][1])
    found = found if count < MANY else carried(found, "a rank")
    assert fingerprint(found) == fingerprint(one_by_one)


def elsewhere(upload):
    ((_, _, found),) = stand_ins(*gather_lights([(0, False, ready_to_add(upload))]))
    return found


def test_a_sum_that_is_open_cannot_be_looked_into():
    tally = add(None, "d1", ready_to_add(Sum(np.ones(3, np.float32), 1.0)))
    for look in (lambda: total(tally, np.ones(3, np.float32)), lambda: add(tally, "d2", Sum(np.ones(3), 1.0))):
        with pytest.raises((AuscultError, TypeError)):
            look()
    with pytest.raises(ValueError, match="a vector of 2 numbers, the sum is of vectors of 3"):
        add(tally, "d2", ready_to_add(Sum(np.ones(2), 1.0)))


def test_ranks_whose_models_differ_stop(tmp_path):
    """As where processors round differently: one rank adds something to its aggregator's model."""

    def play_on(rank):
        network = network_of(evaluated(FEDSLR), settings_of(FEDSLR), ROUNDS, rank, tmp_path)
        network.start()
        if rank.number == 1:
            root = network.nodes["aggregator"]
            moved = replace(root.record.state, inner=moved_by_a_bit(root.record.state.inner))
            network.nodes["aggregator"] = replace_state(root, moved)
        while network.step():
            pass

    with pytest.raises(AuscultError, match="round differently"):
        on_all(thread_ranks(2), play_on)


def moved_by_a_bit(state):
    values = state.model.values.copy()
    values[0] = np.nextafter(values[0], np.float32(2))
    return replace(state, model=replace(state.model, values=values))


def replace_state(node, state):
    from edge_sdk.contract.node import with_record

    return with_record(node, state=state)


def test_a_checksum_is_of_each_array_once():
    a, b = np.arange(3.0), np.arange(3.0)
    assert checksum([Sum(a, 1.0), Sum(a, 2.0)]) == checksum([Sum(a, 1.0)]) != checksum([Sum(a, 1.0), Sum(b, 1.0)])


def test_devices_with_a_clock_of_their_own_are_refused(tmp_path):
    from edge_sdk.contract.round import Policy

    with pytest.raises(UsageError, match="clocks of their own"):
        network_of(
            evaluated(METHODS["fedbcd-i"]),
            settings_of(METHODS["fedbcd-i"]),
            ROUNDS,
            thread_ranks(1)[0],
            tmp_path,
            policies={**PATIENT, "device": Policy(idle=5.0)},
        )
