"""Rules that choose who is counted, where the aggregator mirrors a mean: literal runs, the identity, attacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.augfl.method import AUGFL
from edge_sdk.methods.augfl.settings import Settings as AugflSettings
from edge_sdk.methods.feddyn import FEDDYN, CountedModel
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.robust import rules
from edge_sdk.methods.robust.method import robust
from edge_sdk.methods.robust.mirrored import ChoosingState, OwnAt, choose_children
from edge_sdk.methods.robust.settings import Robust, check_method
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.membership.mirror import own_vector, recalled
from tests.methods import literal
from tests.methods.augfl import augfl_problems as augfl
from tests.methods.fedslr.fedslr_runs import PAPER_LIKE, model
from tests.methods.problems import DEVICES, HASTY, LOSSY, PROBLEMS, THETA0, TREE, USUAL, LeastSquares, envs_of, play
from tests.methods.problems import state as state_of
from tests.methods.test_contract import settings_of as contract_settings

MIRRORED = ("fedslr", "scaffold", "feddyn", "fedslr-b")
ALL, NOBODY_OUT = Robust(rule="median", hospitals="median"), Robust(rule="median", hospitals="median", keep=1e9)
BAD = "d1"
FIVE = ("d0", "d1", "d2", "d3", "d4")
WIDE = {"h0": FIVE, "h1": ("d5",)}


def inner(net: Any, name: str) -> Any:
    """The method's own state of a node, with a rule around it or not."""
    s = state_of(net, name)
    return s.inner if hasattr(s, "own") else s


def hostile() -> dict[str, LeastSquares]:
    """The problems of all devices, of which one pulls elsewhere."""
    return {d: LeastSquares(p.a, p.b + 30 * (d == BAD)) for d, p in PROBLEMS.items()}


# FedSLR as printed, with a rule -----------------------------------------------------------------------------------
class Chooser:
    """The choice as it is described: at each hospital, whose movement and whose own vector lie near the medians."""

    def __init__(self, eta_g: float, keep: float):
        self.eta_g, self.keep = eta_g, keep
        self.widest, self.counted = dict.fromkeys(WIDE, 0.0), list[list[str]]()

    def __call__(self, w: Any, local: Any, gamma: Any) -> list[str]:
        found = []
        for h, devices in WIDE.items():
            moved = self.from_median({d: local[d] - w for d in devices})
            apart = self.from_median({d: local[d] - w - self.eta_g * gamma[d] for d in devices})
            self.widest[h] = max(self.widest[h], float(np.median([*moved.values()])))
            usual = float(np.median([*apart.values()]))
            found += [d for d in devices if moved[d] <= self.keep * self.widest[h] and apart[d] <= self.keep * usual]
        self.counted.append(found)
        return found

    @staticmethod
    def from_median(vectors: dict[str, Any]) -> dict[str, float]:
        centre = np.median([*vectors.values()], axis=0)
        return {d: float(np.linalg.norm(v - centre)) for d, v in vectors.items()}


@pytest.mark.parametrize("seed", range(2))
def test_three_tiers_with_a_rule_are_the_algorithm_with_those_that_it_chooses(seed: int) -> None:
    problems, choose = hostile(), Chooser(PAPER_LIKE.eta_g, 1.2)
    method = robust(FEDSLR, Robust(rule="median", neighbours=False, keep=1.2))
    envs = envs_of(method, PAPER_LIKE, 20)
    envs |= {d: replace(envs[d], grad_fn=problems[d]) for d in DEVICES}
    envs |= {h: replace(envs[h], sizes=dict.fromkeys(devices, 1)) for h, devices in WIDE.items()}
    envs["aggregator"] = replace(envs["aggregator"], sizes={h: len(devices) for h, devices in WIDE.items()})
    net, _ = play(method, PAPER_LIKE, 20, envs=envs, seed=seed, tree=WIDE)
    path, gamma, p = literal.fedslr(problems, THETA0, PAPER_LIKE, [DEVICES] * 20, choose=choose)
    assert np.abs(model(net) - path[-1]).max() < 1e-11
    assert max(np.abs(state_of(net, d).p - p[d]).max() for d in DEVICES) < 1e-11
    last = choose.counted[-1]
    kept = {d: state_of(net, d).tried if d in last else state_of(net, d).gamma for d in DEVICES}
    assert max(np.abs(kept[d] - gamma[d]).max() for d in DEVICES) < 1e-11
    assert not any(BAD in counted for counted in choose.counted), "the hostile device was counted"
    assert any(len(counted) < 5 for counted in choose.counted), "no honest device was ever left out"


# The identity -----------------------------------------------------------------------------------------------------
def own_as_counted(net: Any, device: str) -> Any:
    """gamma_i as the device will take it to be at its next question."""
    hospital = next(h for h, devices in TREE.items() if device in devices)
    s, top, at = state_of(net, device), inner(net, "aggregator"), inner(net, hospital)
    was_counted = at.account.round == top.counted.get(hospital) and at.tally is not None and device in at.tally.heard
    counted = {device: at.account.round} if was_counted else {d: r for d, r in at.counted.items() if d == device}
    question = replace(FEDSLR.show(net.nodes["aggregator"].env, top), counted=counted, era=top.era)
    account = recalled(s.account, device, question)
    assert account is not None, "the device remembers something else than it would be told"
    return own_vector(s.account, account, s.gamma, s.tried)


@pytest.mark.parametrize("faults, policies", [(USUAL, None), (LOSSY, HASTY)], ids=["usual", "lossy"])
def test_the_mean_stays_that_of_the_devices_own_vectors(faults: NetworkFaults, policies: Any) -> None:
    settings = replace(PAPER_LIKE, participation=0.7)
    method = robust(FEDSLR, replace(ALL, keep=1.1))
    net, _ = play(method, settings, 30, faults=faults, **({"policies": policies} if policies else {}))
    mean = np.mean([own_as_counted(net, d) for d in DEVICES], axis=0)
    top = inner(net, "aggregator")
    assert np.abs(mean).max() > 1e-2 and np.abs(mean - top.gamma_mean).max() < 1e-11
    for h, devices in TREE.items():
        for d, kept in state_of(net, h).own.items():
            own = [-settings.eta_g * own_as_counted(net, d)] if d in devices else []
            assert any(np.abs(o.vector - own[0]).max() < 1e-11 for o in kept) and len(kept) < 3


# Without anybody hostile ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MIRRORED)
def test_a_rule_that_leaves_nobody_out_changes_nothing_to_the_bit(name: str) -> None:
    settings = contract_settings(METHODS[name])
    found = {}
    for method in (METHODS[name], robust(METHODS[name], replace(NOBODY_OUT, hospitals="none"))):
        net, _ = play(method, settings, 6)
        shown = method.show(net.nodes["aggregator"].env, inner(net, "aggregator"))
        found[method is METHODS[name]] = method.models(net.nodes["aggregator"].env, None, shown)["global"].tobytes()
    assert found[True] == found[False]


def test_running_sums_with_a_rule_over_hospitals_that_leaves_nobody_out_are_the_plain_ones() -> None:
    tree = {f"h{k}": (f"d{k}",) for k in range(5)}
    random = np.random.default_rng(8)
    clients = {f"d{k}": augfl.Client(augfl.quadratic(random, 0.5), augfl.quadratic(random, 0.5)) for k in range(5)}
    settings, adding = AugflSettings(alpha=0.1, weighting="uniform"), AUGFL.adding
    assert adding is not None
    ruled = robust(adding, NOBODY_OUT)
    plain, found = (augfl.play(clients, settings, 8, tree=tree, method=m)[2][-1] for m in (adding, ruled))
    assert found.tobytes() == plain.tobytes()


# Attackers --------------------------------------------------------------------------------------------------------
def to_and_fro(t: int) -> float:
    return (-1.0) ** t


def counted_sum(
    push: Callable[[int], Any], others: Callable[[int], float] = to_and_fro, rounds: int = 40
) -> tuple[Any, list[int]]:
    """What a hospital of five has counted of d4's movements push(round), added up, and in which rounds; the others move
    by others(round) in directions of their own."""
    method = robust(FEDDYN, Robust(rule="median"))
    env = replace(envs_of(method, FEDDYN.settings(), 1)["h0"], me="h0", here=FIVE, sizes=dict.fromkeys(FIVE, 1))
    s, _ = method.hospital.start(env)
    total, counted, random = np.zeros_like(THETA0), list[int](), np.random.default_rng(2)
    ways = {d: (way := random.normal(size=THETA0.shape)) / np.linalg.norm(way) for d in FIVE}
    for t in range(rounds):
        told = {"h0": t - 1} if t else {}
        s, _ = method.hospital.receive(env, s, UP, CountedModel(t, 5, told, 0, THETA0))
        moves = {d: way * others(t) for d, way in ways.items()} | {"d4": push(t)}
        for d in FIVE:
            s, _ = method.hospital.receive(env, s, d, VectorSum(THETA0 + moves[d], 1.0))
        s, _ = method.hospital.close(env, s)
        if "d4" in s.inner.tally.heard:
            total, counted = total + moves["d4"], [*counted, t]
    return total, counted


WAY = np.full(THETA0.shape, 1 / np.sqrt(THETA0.size))


def test_a_push_in_every_round_does_not_add_up() -> None:
    """It would in the mirrored mean, to 40: a rule that looked at uploads alone would let it, for each is as usual."""
    total, counted = counted_sum(lambda t: WAY)
    assert counted and np.linalg.norm(total) < 3


def test_a_jump_is_left_out_though_it_ends_among_the_others() -> None:
    """Who has been left out has a vector at zero, where everybody's mean is: what it sends has to be as usual, too."""
    spread = counted_sum(lambda t: (50 if t < 10 else 6) * WAY, lambda t: float(t < 10))
    assert spread[1] == []
    assert counted_sum(lambda t: (50 if t < 10 else 1) * WAY, lambda t: float(t < 10))[1][:2] == [10, 11]


def test_a_device_that_was_left_out_is_counted_again_when_the_others_hardly_move_any_more() -> None:
    counted = counted_sum(lambda t: (50 if t < 20 else 1) * WAY, lambda t: 0.9**t)[1]
    assert counted[:2] == [20, 21]


def test_one_of_two_who_answer_does_not_widen_what_is_usual() -> None:
    method = robust(FEDDYN, Robust(rule="median"))
    env = replace(envs_of(method, FEDDYN.settings(), 1)["h0"], me="h0", here=FIVE, sizes=dict.fromkeys(FIVE, 1))
    s, _ = method.hospital.receive(env, method.hospital.start(env)[0], UP, CountedModel(0, 5, {}, 0, THETA0))
    for d, length in (("d0", 1.0), ("d4", 40.0)):
        s, _ = method.hospital.receive(env, s, d, VectorSum(THETA0 + length * WAY, 1.0))
    s, _ = method.hospital.close(env, s)
    assert s.inner.tally.heard == ("d0", "d4") and s.widest == 0


# What is refused --------------------------------------------------------------------------------------------------
def chosen(sizes: dict[str, int], own: dict[str, float], moves: dict[str, float], keep: float) -> set[str]:
    """Children that are counted of those with such vectors of one number, summed over so many devices each."""
    env = replace(envs_of(FEDDYN, FEDDYN.settings(), 1)["aggregator"], sizes=sizes)
    was = {child: (OwnAt(0, np.array([own[child]])),) for child in sizes}
    s = ChoosingState(None, counted=dict.fromkeys(sizes, 0), own=was, uploads=moves)

    def movement(env: Any, asked: Any, upload: float) -> Any:
        return np.array([upload]), np.array([upload])

    return {*choose_children(env, s, movement, lambda rows: rules.distances(rows, rules.median(rows)), keep)[0]}


def test_hospitals_are_compared_by_device_and_those_at_the_edge_count() -> None:
    sizes = {"h0": 1, "h1": 10, "h2": 100}
    alike = {h: 3.0 * n for h, n in sizes.items()}
    assert chosen(sizes, alike, alike, 1.0) == {*sizes}, "nobody moves otherwise than another"
    assert chosen(sizes, {**alike, "h2": 30.0}, alike, 1.5) == {"h0", "h1"}


def test_what_cannot_be_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match="keep = 0: devices move vectors by their uploads"):
        check_method(FEDSLR, FEDSLR.settings(), Robust(rule="median", keep=0))
    assert AUGFL.adding is not None
    with pytest.raises(UsageError, match=r"hospitals = 'clip' .*an upload is a change"):
        check_method(AUGFL.adding, AugflSettings(), Robust(hospitals="clip"))
    check_method(AUGFL.adding, AugflSettings(), Robust(hospitals="median"))
