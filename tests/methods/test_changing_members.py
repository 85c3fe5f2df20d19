"""Devices and hospitals that come, leave for good and return during a run: each method against a literal with the
changing set.

The plan says who belongs to the fleet from which round on. As over a real network, the aggregator draws for a round
with the numbers of the round before, and closes it with those of that round.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edge_sdk.methods
from edge_sdk.contract.method import UP
from edge_sdk.methods import METHODS
from edge_sdk.methods.augfl import settings as augfl
from edge_sdk.methods.augfl.method import AUGFL
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedavg import Settings as FedavgSettings
from edge_sdk.methods.fedbcd.method import FEDBCD
from edge_sdk.methods.fedbcd.settings import Settings as FedbcdSettings
from edge_sdk.methods.feddyn import FEDDYN
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr_consensus import FEDSLR_B
from edge_sdk.methods.scaffold import SCAFFOLD
from edge_sdk.methods.shared.aggregation import gather
from tests.methods import literal, test_feddyn, test_scaffold
from tests.methods.fedslr.fedslr_runs import PAPER_LIKE, model
from tests.methods.problems import DEVICES, PROBLEMS, SEED, THETA0, TREE, devices_counted, play, state

ROUNDS = 15
SMALL = {"h0": ("d0", "d1"), "h1": ("d3", "d4"), "h2": ("d5",)}
JOINS = {0: SMALL, 5: TREE}
LEAVES = {0: TREE, 6: {**TREE, "h0": ("d0", "d2")}}
RETURNS = {0: TREE, 5: {**TREE, "h1": ("d3",)}, 11: TREE}
SWAPS = {0: SMALL, 7: {**SMALL, "h0": ("d0", "d2")}}  # as many as before
DEVICE_PLANS = {"joins": JOINS, "leaves": LEAVES, "returns": RETURNS, "swaps": SWAPS}
FEW = {h: devices for h, devices in TREE.items() if h != "h1"}
HOSPITAL_PLANS = {
    "hospital joins": {0: FEW, 5: TREE},
    "hospital leaves": {0: TREE, 6: FEW},
    "hospital returns": {0: TREE, 5: FEW, 11: TREE},
}
ANSWERS_AND_LEAVES = {0: FEW, 4: TREE, 5: FEW}  # before the first round in which it has answered is over
PLANS = DEVICE_PLANS | HOSPITAL_PLANS | {"hospital answers and leaves": ANSWERS_AND_LEAVES}


def tree_of(plan: dict[int, Any], round: int) -> Any:
    return plan[max(r for r in plan if r <= round)]


def changing(method: Any, plan: dict[int, Any]) -> Any:
    """The method, whose hospitals and aggregator are told who there is in each round."""
    now: dict[str, int] = {}

    def answering(round: int) -> int:
        return max(0, round - 1) if plan is ANSWERS_AND_LEAVES else round

    def at_hospital(function: Any) -> Any:
        def called(env: Any, s: Any, *about: Any) -> Any:
            if about and about[0] == UP:
                now[env.me] = getattr(about[1], "round", 0)  # a census comes before the first
            devices = tree_of(plan, answering(now.get(env.me, 0))).get(env.me, ())
            here = tuple(d for d in env.here if d in devices)
            return function(replace(env, sizes=dict.fromkeys(devices, 1), here=here), s, *about)

        return called

    def as_planned(env: Any, round: int) -> Any:
        tree = tree_of(plan, round)
        sizes = {h: len(devices) for h, devices in tree.items()}
        return replace(env, sizes=sizes, here=tuple(h for h in env.here if h in tree))

    def at_aggregator(function: Any) -> Any:
        def called(env: Any, s: Any, *about: Any) -> Any:
            at = as_planned(env, answering(s.round) if about else s.round)
            return (s, []) if about and about[0] not in at.sizes else function(at, s, *about)  # it owes nothing

        return called

    h, a = method.hospital, method.aggregator
    hospital = replace(h, receive=at_hospital(h.receive), close=at_hospital(h.close))
    aggregator = replace(a, receive=at_aggregator(a.receive), close=at_aggregator(a.close))
    start = lambda env: a.start(as_planned(env, 0))  # noqa: E731
    return replace(method, hospital=hospital, aggregator=replace(aggregator, start=start))


def members(plan: dict[int, Any], round: int) -> list[str]:
    return [d for devices in tree_of(plan, round).values() for d in devices]


def counted(transcript: Any, era_of: Any) -> list[Any]:
    """Round -> who was counted; None: a new era began."""
    S, before = list(devices_counted(transcript)), 0
    for t, closed in enumerate(transcript.closed["aggregator"]):
        if (era := era_of(closed.state)) > before:
            S[t], before = None, era
    return S


def eras_expected(plan: str) -> int:
    return 0 if plan.endswith("joins") else 1


# Memoryless ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("plan", DEVICE_PLANS | HOSPITAL_PLANS)
def test_fedavg_is_the_mean_over_those_that_there_are(plan: str) -> None:
    settings = FedavgSettings(eta_l=0.05, batch=16, local_epochs=2)
    net, transcript = play(changing(FEDAVG, PLANS[plan]), settings, ROUNDS)
    S = devices_counted(transcript)
    assert all({*S[t]} <= {*members(PLANS[plan], t)} for t in range(ROUNDS))
    assert [*S[-1]] == sorted(members(PLANS[plan], ROUNDS))
    path = literal.fedavg(PROBLEMS, THETA0, settings, S)
    assert np.abs(model(net) - path[-1]).max() < 1e-12


# Mirrored: the aggregator holds the mean over all devices of what each of them holds --------------------------------
def feddyn_as_printed(plan: Any, s: Any, S: list[Any]) -> Any:
    """h is the mean of g_k over the devices that there are, by its definition."""
    theta, zeros = THETA0, np.zeros_like(THETA0)
    h, g = zeros, dict.fromkeys(DEVICES, zeros)
    for t, P in enumerate(S):
        if P is None:
            h, g = zeros, dict.fromkeys(DEVICES, zeros)
            continue
        eta, local = s.eta_l * s.decay**t, {}
        for k in P:
            v = theta
            for batch in literal.shuffled(SEED, t, k, 1, len(PROBLEMS[k].b), s.batch, s.local_epochs):
                slope = PROBLEMS[k](v, batch)[1] + s.weight_decay * v
                v = v - eta * (slope - g[k] + s.alpha * (v - theta))
            local[k], g[k] = v, g[k] - s.alpha * (v - theta)
        h = sum(g[k] for k in members(plan, t)) / len(members(plan, t))
        if P:
            theta = sum(local.values()) / len(P) - h / s.alpha
    return theta, h


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("plan", PLANS)
def test_feddyns_h_is_the_mean_over_those_that_there_are(plan: str, participation: float) -> None:
    settings = replace(test_feddyn.BASIC, participation=participation)
    net, transcript = play(changing(FEDDYN, PLANS[plan]), settings, ROUNDS)
    S = counted(transcript, lambda s: s.ledger.era)
    theta, h = feddyn_as_printed(PLANS[plan], settings, S)
    s = state(net, "aggregator")
    assert np.abs(s.model - theta).max() < 1e-11 and np.abs(s.gradient - h).max() < 1e-11
    assert s.ledger.era <= eras_expected(plan) and (participation < 1 or s.ledger.era == eras_expected(plan))


@pytest.mark.parametrize("plan", PLANS)
def test_scaffolds_c_is_the_mean_over_those_that_there_are(plan: str) -> None:
    settings = test_scaffold.BASIC
    net, transcript = play(changing(SCAFFOLD, PLANS[plan]), settings, ROUNDS)
    s, S = state(net, "aggregator"), counted(transcript, lambda s: s.ledger.era)
    assert s.ledger.era == eras_expected(plan)
    x, zeros = THETA0, np.zeros_like(THETA0)
    c, own = zeros, dict.fromkeys(DEVICES, zeros)
    for t, S_t in enumerate(S):
        if S_t is None:
            c, own = zeros, dict.fromkeys(DEVICES, zeros)
            continue
        eta, moved = settings.eta_l * settings.decay**t, []
        for i in S_t:
            f, y, K = PROBLEMS[i], x, 0
            for batch in literal.shuffled(SEED, t, i, 1, len(f.b), settings.batch, settings.local_epochs):
                y, K = y - eta * (f(y, batch)[1] + settings.weight_decay * y - own[i] + c), K + 1
            own[i] = own[i] - c + (x - y) / (K * eta)
            moved.append(y - x)
        x = x + settings.eta_g * sum(moved) / len(S_t)
        c = sum(own[i] for i in members(PLANS[plan], t)) / len(members(PLANS[plan], t))
    assert np.abs(s.model - x).max() < 1e-11 and np.abs(s.control - c).max() < 1e-11


@pytest.mark.parametrize("plan", PLANS)
def test_fedslrs_share_of_gamma_is_one_of_those_that_there_are(plan: str) -> None:
    settings = replace(PAPER_LIKE, personal_epochs=0)
    net, transcript = play(changing(FEDSLR, PLANS[plan]), settings, ROUNDS)
    s, S = state(net, "aggregator"), counted(transcript, lambda s: s.era)
    assert s.era == eras_expected(plan)
    w, zeros = THETA0, np.zeros_like(THETA0)
    mean, gamma = zeros, dict.fromkeys(DEVICES, zeros)
    for t, S_t in enumerate(S):
        if S_t is None:
            mean, gamma = zeros, dict.fromkeys(DEVICES, zeros)
            continue
        eta, local = settings.eta_l * settings.decay**t, {}
        for i in S_t:
            v = w
            for batch in literal.shuffled(SEED, t, i, 1, len(PROBLEMS[i].b), settings.batch, settings.local_epochs):
                slope = PROBLEMS[i](v, batch)[1] + settings.weight_decay * v
                v = v - eta * (slope - gamma[i] + (v - w) / settings.eta_g)
            local[i], gamma[i] = v, gamma[i] + (w - v) / settings.eta_g
        mean = sum(gamma[i] for i in members(PLANS[plan], t)) / len(members(PLANS[plan], t))
        x = sum(local.values()) / len(S_t) - settings.eta_g * mean
        w = literal.on_layers(lambda v: literal.svt(v, settings.lam * settings.eta_g), x)
    assert np.abs(s.gamma_mean - mean).max() < 1e-11 and np.abs(model(net) - w).max() < 1e-11


def test_without_the_share_of_those_that_there_are_the_mean_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentinel: the tests above see it if M stays what it was."""
    monkeypatch.setattr("edge_sdk.methods.feddyn.mean_over", lambda mean, before, now: mean)
    net, transcript = play(changing(FEDDYN, JOINS), test_feddyn.BASIC, ROUNDS)
    _, h = feddyn_as_printed(JOINS, test_feddyn.BASIC, counted(transcript, lambda s: s.ledger.era))
    assert np.abs(state(net, "aggregator").gradient - h).max() > 1e-3


# Replaceable: who is silent counts with what was last heard -----------------------------------------------------------
@pytest.mark.parametrize("plan", PLANS)
def test_fedbcds_sums_are_over_those_that_there_are(plan: str) -> None:
    """S_n and G_n at the end: the latest x_i of each device that is a member then, and of nobody else."""
    settings = FedbcdSettings(local_steps=3, draw_steps=False, batch=0)
    net, _ = play(changing(FEDBCD, PLANS[plan]), settings, ROUNDS)
    for h, devices in tree_of(PLANS[plan], ROUNDS).items():
        s = state(net, h).inner
        assert {*s.latest} == {*devices}
        found, total = gather.total(s.sums, THETA0), sum(state(net, d).x * settings.weight(d) for d in devices)
        assert np.abs(found.total - total).max() < 1e-6 * max(1.0, np.abs(total).max())
        assert found.weight == pytest.approx(sum(settings.weight(d) for d in devices))


@pytest.mark.parametrize("upload", ["theta_y", "u", "y"])
@pytest.mark.parametrize("plan", PLANS)
def test_augfls_sums_are_over_those_that_there_are(plan: str, upload: str) -> None:
    """u, y and rho at the aggregator are the sums over the members, however they came to it."""
    settings = augfl.Settings(upload=upload)
    net, _ = play(changing(AUGFL, PLANS[plan]), settings, ROUNDS)
    held = state(net, "aggregator").held
    for h, devices in tree_of(PLANS[plan], ROUNDS).items():
        own = state(net, h).held
        assert {*own} == {*devices}
        assert held[h].weight == pytest.approx(sum(own[d].weight for d in devices))
        assert np.abs(held[h].u - sum(own[d].u for d in devices)).max() < 1e-8
        assert np.abs(held[h].y - sum(own[d].y for d in devices)).max() < 1e-8
    samples = state(net, "aggregator").samples
    assert {*samples} == {*tree_of(PLANS[plan], ROUNDS)}  # w_i is a share of the samples of those that there are


# Mixed: each hospital has a model of its own --------------------------------------------------------------------------
@pytest.mark.parametrize("plan", HOSPITAL_PLANS)
def test_a_hospital_of_fedslr_b_mixes_while_it_belongs_to_the_fleet(plan: str) -> None:
    """The common model is the mean of those that there are, weighted with their devices."""
    settings = FEDSLR_B.settings(cloud="sync", personal_epochs=0, local_epochs=1)
    shown: list[Any] = []
    method = changing(FEDSLR_B, PLANS[plan])

    def close(env: Any, s: Any) -> Any:
        done = method.aggregator.close(env, s)
        ready, tree = {h: m.model for h, m in s.ready.items()}, tree_of(PLANS[plan], s.round)
        mean = sum(len(tree[h]) * ready[h] for h in ready) / sum(len(tree[h]) for h in ready)
        assert np.abs(FEDSLR_B.models(env, None, FEDSLR_B.show(env, done[0]))["global"] - mean).max() < 1e-12
        shown.append({*ready})
        return done

    play(replace(method, aggregator=replace(method.aggregator, close=close)), settings, ROUNDS)
    asked_next = {"hospital joins": [5], "hospital leaves": [], "hospital returns": [11]}[plan]
    assert [r for r, h in enumerate(shown) if h != {*tree_of(PLANS[plan], r)}] == asked_next


# Where a method cannot ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["fedal", "hsgd", "fedslr+fedal", "fedslr-b+fedal"])
def test_a_method_that_cannot_says_so(name: str) -> None:
    assert METHODS[name].fixed(METHODS[name].settings())


@pytest.mark.parametrize("name", ["augfl", "perfedavg"])
def test_newcomers_that_are_kept_out_are_drawn_once(name: str) -> None:
    settings = METHODS[name].settings
    assert "drawn once" in METHODS[name].fixed(settings(unseen=0.2)) and not METHODS[name].fixed(settings(unseen=0.0))


@pytest.mark.parametrize("name", ["fedbcd", "fedbcd-i", "fedslr-b"])
def test_hospitals_that_mix_as_they_are_ready_are_those_of_the_start(name: str) -> None:
    of = METHODS[name]
    for cloud in ("first-b", "rigorous"):
        assert cloud in of.fixed_hospitals(of.settings(cloud=cloud, ready=1)) and not of.fixed(of.settings())
    assert not of.fixed_hospitals(of.settings(cloud="sync"))


def test_every_methods_head_says_what_a_hospital_that_comes_or_leaves_means_to_it() -> None:
    folder = Path(edge_sdk.methods.__file__).parent
    heads = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in folder.rglob("*.py")}
    found = {path: head.partition("Devices ")[2] for path, head in heads.items() if " come" in head}
    found = {path: head for path, head in found.items() if re.match(r"(and hospitals )?that come", head)}
    assert len(found) >= 16 and not [path for path, said in found.items() if "ospital" not in said]


def test_every_other_method_can() -> None:
    cannot = {name for name, method in METHODS.items() if method.fixed(method.settings())}
    assert cannot == {name for name in METHODS if "fedal" in name.split("+") or name == "hsgd"}
