"""HSGD over three tiers against Algorithm 1 and the scalar oracle, also where messages are lost."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd import hospital as hsgd_hospital
from edge_sdk.methods.hsgd import messages as hsgd_messages
from edge_sdk.methods.hsgd.hospital import GROUP
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Plan, Settings
from edge_sdk.methods.shared.evaluation.reports import Progress
from tests.methods.hsgd import literal_hsgd as literal
from tests.methods.hsgd.hsgd_runs import BASIC, by_literal, error, whole
from tests.methods.hsgd.split_problems import BIG, SEVERAL, START, TOY, Toy, envs_of, intervals, play, theta
from tests.methods.problems import HASTY, told

TABLE = {
    (1, 1): (0.0380591665, 0.9192108814, -0.3261813342), (2, 1): (0.0307894376, 0.9471650439, -0.3403184695),
    (2, 2): (0.0282550431, 0.9485467309, -0.2788846917), (4, 1): (0.0146375638, 0.9764316677, -0.3515951092),
    (4, 2): (0.0121771114, 0.9799546072, -0.2976284077), (4, 4): (-0.0299347070, 0.9800807208, -0.1606384115),
}  # fmt: skip
SUBSETS = {
    (1, 1): (0.0593898476, 0.9338234643, -0.3039479845), (2, 1): (0.0137474208, 0.9407733982, -0.3351389875),
    (2, 2): (0.0603523754, 0.9888601559, -0.2363617476), (4, 1): (-0.0102066305, 0.9679005858, -0.3414563903),
    (4, 2): (-0.0171481973, 0.9848609604, -0.2557954560), (4, 4): (0.1428833344, 1.1093665057, -0.0941611328),
}  # fmt: skip


def toy(P, Q, iterations=4, **more):
    return play(TOY, Settings(P=P, Q=Q, eta=0.1), iterations // P, model=Toy(), theta0=START, **more)


# The oracle -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("P, Q", TABLE)
def test_oracle(P, Q, seed):
    net, transcript = toy(P, Q, seed=seed)
    assert np.abs(theta(net) - TABLE[P, Q]).max() < 1e-10
    plans = [(P, Q, 0.1)] * (4 // P)
    assert error(net, literal.hsgd(Toy(), TOY, np.array(START), plans, whole(TOY))) < 1e-14
    assert transcript.refused  # duplicates did arrive


@pytest.mark.parametrize("P, Q", SUBSETS)
def test_oracle_with_subsets(P, Q, monkeypatch):
    """Group 1 trains only device k % 2 in local interval k; the average is over the one that has trained."""

    def alternating(env, among, *seed):
        k = seed[0] * (P // Q) + seed[1]
        return (f"d{k % 2}",) if env.me == "h0" else ("d2",)

    monkeypatch.setattr(hsgd_hospital, "draw_devices", alternating)
    net, _ = toy(P, Q)
    assert np.abs(theta(net) - SUBSETS[P, Q]).max() < 1e-10


def test_trace_of_the_oracle():
    """(P, Q) = (4, 2): group models at the ends of intervals, device copies inside them."""
    _, transcript = toy(4, 2)
    copies = np.array([s.copies[GROUP] for s in transcript.states["h0"]])
    for expected in [(0.3430700684, 0.9873809814), (0.3012742783, 0.9992832546)]:
        assert (np.abs(copies - expected).max(1) < 1e-10).any()
    for device, values in {"d0": (-0.31, -0.2455300030), "d1": (-0.4259375, -0.3472518853)}.items():
        found = np.array([s.theta_2[0] for s in transcript.states[device]])
        assert all((np.abs(found - v) < 1e-10).any() for v in values)
    steps: list = []
    literal.hsgd(Toy(), TOY, np.array(START), [(4, 2, 0.1)], whole(TOY), steps=steps)
    rows = [(t, w[0], a[0], [v[0] for v in b.values()]) for t, m, w, a, b in steps if m == "h0"]
    assert np.allclose(rows[2][1:3], (0.3189809317, 0.9926350257), atol=1e-10)
    assert np.allclose(rows[2][3], (-0.3052735686, -0.3575489989), atol=1e-10)


# Three tiers against the literal algorithm ----------------------------------------------------------------------
VARIANTS = {
    "plain": {},
    "one step": dict(P=1, Q=1),
    "long intervals": dict(P=4, Q=4),
    "half of the devices": dict(alpha=0.5),
    "mini-batches": dict(batch=2, alpha=0.5),
    "regulariser": dict(mu=0.2),
}


@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_agrees_with_the_literal_algorithm(change):
    settings = replace(BASIC, **change)
    net, transcript = play(SEVERAL, settings, 3)
    plans = [(settings.P, settings.Q, settings.eta)] * 3
    assert error(net, by_literal(net, transcript, SEVERAL, plans, mu=settings.mu)) < 1e-13


def test_step_size_is_halved_by_iterations():
    settings = replace(BASIC, halve_every=3)
    net, transcript = play(SEVERAL, settings, 3)
    path = by_literal(net, transcript, SEVERAL, [(4, 2, 0.3)] * 3, eta=lambda eta, t: eta * 0.5 ** (t // 3))
    assert error(net, path) < 1e-13


def test_devices_are_drawn_anew_for_each_interval():
    net, transcript = play(BIG, replace(BASIC, alpha=0.5), 6)
    found = intervals(transcript)
    for m, size in {"h0": 3, "h1": 2, "h2": 2}.items():
        drawn = [tuple(a) for key, a in found.A.items() if key[0] == m]
        assert len(drawn) == 12 and {len(a) for a in drawn} == {size} and len({*drawn}) > 2
    assert error(net, by_literal(net, transcript, BIG, [(4, 2, 0.3)] * 6)) < 1e-13


@pytest.mark.parametrize("seed", range(4))
def test_lost_messages_shrink_the_means(seed):
    faults = NetworkFaults(
        drop=0.15, away={"d0": [(0, inf)], "d10": [(0, 60)], "h1": [(70, 140)]}, slow={("d1", 4): 30.0}
    )
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=20.0), "hospital": HASTY["hospital"]}
    net, transcript = play(BIG, replace(BASIC, alpha=0.7), 10, faults=faults, policies=policies, seed=seed)
    found = intervals(transcript)
    assert len(found.groups) == 10 and all("d0" not in a for a in found.A.values())
    assert any(len(g) < 3 for g in found.groups) and any(found.A[k] != found.back[k] for k in found.A)
    assert error(net, by_literal(net, transcript, BIG, [(4, 2, 0.3)] * 10)) < 1e-12


def test_a_hospital_that_missed_a_round_is_overwritten():
    faults = NetworkFaults(away={"h1": [(8, 45)]})
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=20.0), "hospital": HASTY["hospital"]}
    net, transcript = play(BIG, BASIC, 6, faults=faults, policies=policies)
    found = intervals(transcript)
    assert ["h0", "h2"] in found.groups and found.groups[-1] == ["h0", "h1", "h2"]
    assert error(net, by_literal(net, transcript, BIG, [(4, 2, 0.3)] * 6)) < 1e-12


def test_a_group_without_devices_rests_and_is_not_in_the_average():
    faults = NetworkFaults(away={d: [(0, inf)] for d in BIG["h2"]})
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=30.0), "hospital": HASTY["hospital"]}
    net, transcript = play(BIG, BASIC, 3, faults=faults, policies=policies)
    assert intervals(transcript).groups == [["h0", "h1"]] * 3
    assert error(net, by_literal(net, transcript, BIG, [(4, 2, 0.3)] * 3)) < 1e-12
    assert [p.devices for p in told(transcript, Progress)] == [10, 10, 10]


def test_a_device_without_samples_is_never_asked():
    data = {h: {d: s[:0] if d == "d1" else s for d, s in ds.items()} for h, ds in SEVERAL.items()}
    net, transcript = play(data, BASIC, 3)
    assert not transcript.ran.get("d1") and len(transcript.ran["d0"]) == 12
    assert error(net, by_literal(net, transcript, data, [(4, 2, 0.3)] * 3)) < 1e-13


def test_nobody_at_all_is_the_same_model_again_and_no_iteration():
    faults = NetworkFaults(away={d: [(0, 30)] for ds in BIG.values() for d in ds})
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=30.0), "hospital": HASTY["hospital"]}
    net, transcript = play(BIG, replace(BASIC, halve_every=4), 6, faults=faults, policies=policies)
    found, s = intervals(transcript), net.nodes["aggregator"].record.state
    rested = found.groups.count([])
    assert rested and s.round == 6 and s.t == 4 * (6 - rested)
    path = by_literal(net, transcript, BIG, [(4, 2, 0.3)] * 6, eta=lambda eta, t: eta * 0.5 ** (t // 4))
    assert error(net, path) < 1e-12


def test_the_hospital_works_while_its_devices_work():
    """ME: the hospital's own steps start when its questions have left, not when the answers are in."""
    _, transcript = toy(4, 4, faults=NetworkFaults(work={"d0": 10.0}))
    states = [s for s in transcript.states["h0"] if s.now.training]
    assert not states[0].now.moved and states[0].copies[GROUP][0] == START[0]
    assert states[1].now.moved and not states[1].now.heard and states[1].copies[GROUP][0] != START[0]


def test_a_deadline_before_the_hospitals_own_turn_does_not_skip_it():
    env = replace(envs_of(TOY, Toy(), np.array(START), BASIC, 1)["h0"], me="h0", here=("d0", "d1"))
    state, _ = HSGD.hospital.receive(
        env, HSGD.hospital.start(env)[0], UP, hsgd_messages.HsgdModel(np.array(START), 0, 0, Plan(2, 2, 0.1))
    )
    for d, z in {"d0": -1.0, "d1": 0.5}.items():
        state, _ = HSGD.hospital.receive(env, state, d, hsgd_messages.Embedding(compression.Dense(np.array([[z]]))))
    state, sends = HSGD.hospital.close(env, state)
    assert [s.to for s in sends] == ["d0", "d1", "me"]
    late, (upload,) = HSGD.hospital.close(env, state)
    moved, _ = HSGD.hospital.receive(env, state, "me", hsgd_messages.OwnSteps())
    assert late.copies[GROUP].tobytes() == moved.copies[GROUP].tobytes() and upload.to == UP
    assert upload.message.total[2] == 2 * START[2]  # nobody came back: theta_2 as it was
