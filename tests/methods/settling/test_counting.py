"""Counts by which the fleet chooses, with liars among its devices: literals, and whole runs."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from edge_sdk.contract.method import UP, NodeEnv, Role, Send
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.robust.method import near_of
from edge_sdk.methods.robust.settings import Robust
from edge_sdk.methods.settling.counting import Counts, added_up, no_counts, noted, shortened, usual_near
from edge_sdk.methods.settling.method import Choice, settled
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from tests.methods.problems import play, told
from tests.methods.settling.problems import envs_of

MEDIAN = near_of(Robust(rule="median"), "hospital")


@dataclass(frozen=True)
class State:
    counts: Counts = field(default_factory=lambda: no_counts(3))
    apart: dict = field(default_factory=dict)
    heard: tuple = ()


def total(near=None, **told_by):
    env = NodeEnv(seed=0, rounds=1, layout=None, theta0=None, settings=None, sizes=dict.fromkeys(told_by, 1))
    s = State()
    for name, (correct, samples) in told_by.items():
        s = noted(env, s, name, Counts(np.array(correct, np.int64), samples, 1))
    found = added_up(s, near)
    return found.correct.tolist(), found.samples, found.devices


def test_honest_counts_are_added_up_as_they_are():
    assert total(a=([4, 9, 6], 10), b=([2, 4, 3], 5), c=([10, 20, 11], 25)) == ([16, 33, 20], 40, 3)


def test_who_claims_a_million_samples_counts_with_three_times_the_usual_number():
    """The usual is 10: of a million, half of which the second candidate gets right, 30 and 15 are left."""
    honest = {name: ([9, 1, 5], 10) for name in "abc"}
    assert total(**honest, z=([0, 500_000, 0], 1_000_000)) == ([27, 18, 15], 60, 4)


def test_with_a_rule_those_whose_counts_are_unlike_the_others_do_not_count():
    """Shares less their mean: (.3, 0, -.3) and near it for a to d; z has the same samples and says the opposite."""
    honest = {"a": ([9, 6, 3], 10), "b": ([8, 5, 2], 10), "c": ([18, 13, 6], 20), "d": ([7, 4, 2], 10)}
    assert total(MEDIAN, **honest, z=([0, 5, 10], 10)) == ([42, 28, 13], 50, 4)
    assert total(**honest, z=([0, 5, 10], 10)) == ([42, 33, 23], 60, 5)


def test_devices_with_harder_samples_are_like_the_others():
    same = {"a": ([9, 6, 3], 10), "b": ([7, 4, 1], 10), "c": ([9, 6, 3], 10), "d": ([8, 5, 2], 10)}
    assert total(MEDIAN, **same) == ([33, 21, 9], 40, 4)


def test_samples_of_no_device_are_refused():
    """They are nobody's to be bounded by: such counts were added up as they came, 2^20 samples of one device."""
    env = NodeEnv(seed=0, rounds=1, layout=None, theta0=None, settings=None, sizes=dict.fromkeys("abcz", 1))
    with pytest.raises(PeerError, match="z counts 1048576 validation samples of 0 devices"):
        noted(env, State(), "z", Counts(np.array([0, 0, 2**20]), 2**20, 0))
    assert noted(env, State(), "z", Counts(np.zeros(3, np.int64), 0, 0)).heard == ("z",)


def test_counts_of_a_hospital_with_very_many_devices_are_shortened_exactly():
    """A product of two of the largest counts that a message may have is beyond an int64."""
    found = shortened(Counts(np.array([2**32, 2**31, 0]), 2**32, 100_000), 2**32 - 2)
    assert (found.correct.tolist(), found.samples) == ([2**32 - 2, 2**31 - 1, 0], 2**32 - 2)


@pytest.mark.parametrize("near", [None, MEDIAN])
def test_of_two_both_count_and_who_has_no_samples_is_no_device_of_the_sum(near):
    assert total(near, a=([9, 6, 3], 10), z=([0, 0, 900], 900)) == ([9, 6, 903], 910, 2)
    assert total(near, a=([9, 6, 3], 10), b=([0, 0, 0], 0)) == ([9, 6, 3], 10, 1)


def test_the_order_of_arrival_leaves_no_trace():
    some = {"a": ([9, 6, 3], 10), "b": ([8, 5, 2], 11), "c": ([1, 5, 8], 12), "z": ([0, 5, 10], 1000)}
    assert total(MEDIAN, **some) == total(MEDIAN, **dict(reversed(some.items())))


def test_without_a_rule_a_hospital_leaves_out_who_counts_the_opposite_of_the_others():
    honest = {"a": ([9, 6, 3], 10), "b": ([8, 5, 2], 10), "c": ([18, 13, 6], 20), "d": ([7, 4, 2], 10)}
    assert total(usual_near, **honest, z=([0, 5, 10], 10)) == ([42, 28, 13], 50, 4)
    assert total(usual_near, **honest, y=([0, 0, 2**20], 2**20), z=([0, 0, 2**20], 2**20)) == ([42, 28, 13], 50, 4)


def test_without_a_rule_three_devices_stay_so_that_no_sum_of_two_leaves_a_hospital():
    """Two of four are twice as far from the median as the others; of these the nearer one counts."""
    four = {"a": ([9, 6, 3], 10), "b": ([9, 6, 3], 10), "c": ([5, 6, 7], 10), "z": ([0, 5, 10], 10)}
    assert total(usual_near, **four) == ([23, 18, 13], 30, 3)
    assert total(usual_near, a=([9, 6, 3], 10), b=([9, 6, 3], 10), z=([0, 5, 10], 10)) == ([18, 17, 16], 30, 3)


# A whole run ----------------------------------------------------------------------------------------------------
S = Settling(rate=0.02, batch=8, steps=(0, 20), local_steps=(10, 30), local_weights=(0.0, 0.5, 1.0))
LIAR = "d1"
WIDE = {"h0": ("d0", "d1", "d2", "d3", "d4"), "h1": ("d5",)}


def run(lies, **near):
    """What the fleet chooses; with `lies`, one device claims a million samples, right with the global model only."""
    method, settings = settled(FEDAVG, S, **near), FEDAVG.settings(eta_l=0.05, batch=8)
    worst = S.candidates.index(next(c for c in S.candidates if c.weight == 0 and c.steps == 0))

    def receive(env, s, sender, m):
        s, sends = method.device.receive(env, s, sender, m)
        if not lies or env.me != LIAR or not isinstance(sends[-1].message, Counts):
            return s, sends
        correct = np.zeros(len(S.candidates), np.int64)
        correct[worst] = 2**20
        return s, [Send(UP, Counts(correct, 2**20, 1))]

    liar = replace(method, device=Role(method.device.start, receive, method.device.close, method.device.state))
    envs = envs_of(FEDAVG, settings, 3)
    envs |= {h: replace(envs[h], sizes=dict.fromkeys(devices, 1)) for h, devices in WIDE.items()}
    envs["aggregator"] = replace(envs["aggregator"], sizes={h: len(devices) for h, devices in WIDE.items()})
    _, trace = play(evaluated(liar), settings, 3, envs=envs, tree=WIDE)
    (choice,) = told(trace, Choice)
    return choice


def test_with_a_rule_one_device_does_not_choose_for_the_fleet():
    chosen, honest = run(lies=True, over_devices=MEDIAN), run(lies=False)
    assert chosen.steps or chosen.weight, "the liar has its way"
    assert honest.steps or honest.weight, "the honest fleet chooses what the liar wants"
    assert chosen.devices < 6


def test_nor_does_it_without_one():
    """Of five devices in its hospital; before, it counted three times, and had its way."""
    chosen = run(lies=True)
    assert chosen.steps or chosen.weight, "the liar has its way"
    assert chosen.devices < 6
