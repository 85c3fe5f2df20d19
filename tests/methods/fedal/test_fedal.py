"""FedAL over three tiers against Algorithm 1: its variants, lost messages, absent devices."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log

import numpy as np
import pytest

pytest.importorskip("torch")

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedal.messages import Outputs
from edge_sdk.methods.fedal.settings import Settings
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from tests.methods.fedal.fedal_runs import NO_LF, SMALL, difference, discriminator0, literal
from tests.methods.fedal.logit_problems import Net, drawn, play
from tests.methods.problems import DEVICES, HASTY, PATIENT, TREE, devices_counted, state, told

CASES = {
    "fedal": SMALL,
    "fedmd": replace(SMALL, al=0.0, **NO_LF),
    "fedmd-lf": replace(SMALL, al=0.0),
    "fedmd-al": replace(SMALL, **NO_LF),
    "al alone": replace(SMALL, kd=0.0, **NO_LF),
    "weights": replace(SMALL, kd=0.7, al=1.6, lf_local=0.4, lf_transfer=2.0),
    "temperatures": replace(SMALL, temperature_d=4.0, temperature_kd=2.0, temperature_lf=3.0),
    "target of all": replace(SMALL, target="all"),
    "median of all": replace(SMALL, target="all", consensus="median"),
    "schedules": replace(SMALL, decay_l=0.7, decay_d=0.5),
    "nothing to remember at first": replace(SMALL, lf_skip_first=True),
    "all samples": replace(SMALL, batch=1000),
    "tau 1": replace(SMALL, tau=1),
    "one layer": replace(SMALL, widths=()),
    "feddf": replace(SMALL, averaging="after_local", al=0.0, **NO_LF),
    "feddf-al": replace(SMALL, averaging="after_local"),
    "averaged at last": replace(SMALL, averaging="after_transfer"),
}


@pytest.mark.parametrize("s", CASES.values(), ids=CASES)
def test_equals_the_literal_algorithm(s):
    net, transcript = play(s, 4)
    assert difference(net, literal(s, 4).play(4)) < 1e-12
    assert [m.round for m in told(transcript, Progress)] == [1, 2, 3, 4]


@pytest.mark.parametrize("target", ["others", "all"])
def test_fedproto_on_public_inputs(target):
    """Features of one width in place of logits, from nets of different depth."""
    s = replace(SMALL, al=0.0, **NO_LF, features=4, target=target)
    parties = {d: drawn(i, (Net((4,)), Net((3, 4)))[i % 2]) for i, d in enumerate(DEVICES)}
    net, transcript = play(s, 3, parties=parties)
    assert difference(net, literal(s, 3, parties=parties).play(3)) < 1e-12
    assert {m.logits.shape for _, _, m in transcript.crossed if isinstance(m, Outputs)} == {(8, 4)}
    with pytest.raises(UsageError, match="compare probabilities"):
        Settings(features=4)


@pytest.mark.parametrize("s", [SMALL, replace(SMALL, fresh_optimiser=True)], ids=["carried", "fresh"])
def test_equals_the_literal_algorithm_with_adam(s):
    """Looser: where a gradient is nearly zero, Adam turns its rounding into a step."""
    s = replace(s, optimiser="adam", optimiser_d="adam", eta_l=0.01)
    net, _ = play(s, 4)
    assert difference(net, literal(s, 4).play(4)) < 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_who_misses_an_exchange_waits_for_the_next_round(seed):
    """Loss, repetition, reordering, an absence and a slow answer: Algorithm 1 with the sets that the trace shows."""
    faults = NetworkFaults(drop=0.03, away={"d0": [(12, 40)]}, slow={("d4", 8): 30.0})
    net, transcript = play(SMALL, 8, faults=faults, policies=HASTY, seed=seed)
    who = Attendance(transcript)
    expected = literal(SMALL, 8).play(8, who.trained, who.counted, who.stepped)
    assert difference(net, expected) < 1e-12
    assert len(told(transcript, Progress)) == 8 and who.fewest < len(DEVICES)


class Attendance:
    """Who did what, read from the closes of the aggregator and from what devices worked on."""

    def __init__(self, transcript):
        counted = devices_counted(transcript)
        parent = {d: h for h, ds in TREE.items() for d in ds}
        ran = {}
        for d in DEVICES:
            for number in transcript.ran.get(d, []):
                ran.setdefault(transcript.asked[parent[d]][number], set()).add(d)
        self.local, self.exchanges, self.steps = {}, {}, {}
        round, exchange = 0, 0
        for question, (close, there) in enumerate(zip(transcript.closed["aggregator"], counted, strict=True), start=1):
            if exchange == 0:
                self.local[round] = sorted(ran.get(question, ()))
            if exchange == SMALL.tau or not there:
                assert close.state.round == round + 1
                round, exchange = round + 1, 0
                continue
            self.exchanges[round, exchange] = there
            self.steps[round, exchange] = sorted(ran.get(question + 1, set()) & {*there})
            exchange += 1
        self.fewest = min(map(len, self.exchanges.values()))

    def trained(self, t):
        return self.local.get(t, [])

    def counted(self, t, i):
        return self.exchanges.get((t, i), [])

    def stepped(self, t, i):
        return self.steps.get((t, i), [])


def test_the_order_of_arrival_leaves_no_trace():
    nets = [play(SMALL, 3, policies=PATIENT, seed=k, faults=NetworkFaults(delay=(0.1, 9.0)))[0] for k in range(4)]
    first = nets[0]
    for net in nets[1:]:
        assert all(np.array_equal(state(net, d).theta, state(first, d).theta) for d in DEVICES)
        assert np.array_equal(state(net, "aggregator").w, state(first, "aggregator").w)


def test_a_silent_device_is_no_candidate_of_the_discriminator():
    """Algorithm 1 without it, with its output of the discriminator masked."""
    net, transcript = play(SMALL, 3, faults=NetworkFaults(away={"d5": [(0, inf)]}), policies=HASTY)
    others = [d for d in DEVICES if d != "d5"]
    run = literal(SMALL, 3)
    theta, w = run.play(3, lambda t: others, lambda t, i: others, lambda t, i: others)
    assert difference(net, ({d: theta[d] for d in others}, w)) < 1e-12
    for m in told(transcript, Progress):
        assert m.sums["floor"] / m.sums["exchanged"] == pytest.approx(-log(5))


def test_a_device_alone_learns_nothing_from_nobody():
    away = {d: [(0, inf)] for d in DEVICES if d != "d2"}
    s = replace(SMALL, **NO_LF)
    net, transcript = play(s, 2, faults=NetworkFaults(away=away), policies=HASTY)
    run = literal(s, 2)
    theta, w = run.play(2, lambda t: ["d2"], lambda t, i: ["d2"], lambda t, i: ["d2"])
    assert difference(net, ({"d2": theta["d2"]}, w)) < 1e-12 and np.array_equal(w, discriminator0(s))
    assert [m.devices for m in told(transcript, Progress)] == [1, 1]


def test_nobody_at_all_ends_the_rounds():
    away = {d: [(0, inf)] for d in DEVICES}
    _, transcript = play(SMALL, 3, faults=NetworkFaults(away=away), policies=HASTY)
    assert [(m.round, m.devices) for m in told(transcript, Progress)] == [(1, 0), (2, 0), (3, 0)]
