"""Robust sums around the methods: their contract, a literal round, what is refused, and attacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.method import UP
from edge_sdk.contract.run import Run
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.live.presence.directory import decode_run, encode_run
from edge_sdk.methods import METHODS
from edge_sdk.methods.robust import rules
from edge_sdk.methods.robust.method import near_of, robust
from edge_sdk.methods.robust.settings import RULES, Robust
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.consensus.consensus import Ready
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from tests.methods import contract
from tests.methods.problems import DEVICES, LAYOUT, PROBLEMS, THETA0, TREE, envs_of, play, state
from tests.methods.test_bad_devices import loss_after
from tests.methods.test_bad_devices import settings_of as attack_settings
from tests.methods.test_contract import settings_of as contract_settings

BOTH = {"clip": ("clip", "clip"), "trimmed-mean": ("trimmed-mean", "median"), "geometric": ("geometric-median", "clip")}


PLAYED = [("fedavg", "clip"), ("fedavg", "geometric"), ("fedper", "trimmed-mean"), ("fedslr", "clip")]
PLAYED += [("fedbcd", "trimmed-mean"), ("fedbcd-i", "clip"), ("fedslr", "trimmed-mean"), ("scaffold", "trimmed-mean")]


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name, both", PLAYED)
def test_contract(name: str, both: str, check) -> None:
    rule, over = BOTH[both]
    method = evaluated(robust(METHODS[name], Robust(rule=rule, hospitals=over)), every=3)
    check(method, contract_settings(method))


def final_model(method, settings: Any, rounds: int = 3):
    net, _ = play(method, settings, rounds)
    return state(net, "aggregator")


def test_a_round_of_fedavg_is_the_rule_at_each_hospital_then_the_rule_over_hospitals() -> None:
    """Three hospitals of three, two and one device. What a hospital sends weighs as much as its devices' samples."""
    settings = METHODS["fedavg"].settings(eta_l=0.05, batch=0, local_epochs=1, weight_decay=0.0)
    trained = {d: THETA0 - 0.05 * PROBLEMS[d](THETA0)[1] for d in DEVICES}
    at = {h: rules.trimmed_mean(np.stack([trained[d] for d in devices]), 0.2) for h, devices in TREE.items()}
    alone = Robust(rule="trimmed-mean", share=0.2, neighbours=False, keep=0)
    method = robust(METHODS["fedavg"], replace(alone, hospitals="median"))
    found = lowrank.unpack(LAYOUT, final_model(method, settings, 1).inner.model)
    assert np.allclose(found, np.median([*at.values()], axis=0), rtol=1e-12)
    method = robust(METHODS["fedavg"], alone)
    weights = [sum(len(PROBLEMS[d].b) for d in devices) for devices in TREE.values()]
    wanted = np.average([*at.values()], axis=0, weights=weights)
    assert np.allclose(lowrank.unpack(LAYOUT, final_model(method, settings, 1).model), wanted, rtol=1e-12)


@pytest.mark.parametrize("keep", [0.0, 1.5])
def test_rules_are_applied_to_means_of_neighbours_and_say_who_counts(keep: float) -> None:
    settings = METHODS["fedavg"].settings(eta_l=0.05, batch=0, local_epochs=1, weight_decay=0.0)
    trained = {d: THETA0 - 0.05 * PROBLEMS[d](THETA0)[1] for d in DEVICES}
    rows = {h: np.stack([trained[d] for d in devices]) for h, devices in TREE.items()}
    at = {h: rules.median(rules.mix_neighbours(part, 0.3)) for h, part in rows.items()}
    samples = {h: np.array([float(len(PROBLEMS[d].b)) for d in devices]) for h, devices in TREE.items()}
    if keep:
        at = {h: rules.mean_of_near(rows[h], samples[h], at[h], keep) for h in rows if len(rows[h]) > 1} | {
            h: part[0] for h, part in rows.items() if len(part) == 1
        }
    weights = [sum(of) for of in samples.values()]
    method = robust(METHODS["fedavg"], Robust(rule="median", keep=keep))
    found = lowrank.unpack(LAYOUT, final_model(method, settings, 1).model)
    assert np.allclose(found, np.average([*at.values()], axis=0, weights=weights), rtol=1e-12)


def test_a_generous_clip_changes_nothing_to_the_bit() -> None:
    settings = attack_settings("fedavg")
    plain, clipped = METHODS["fedavg"], robust(METHODS["fedavg"], Robust(rule="clip", factor=1e6))
    assert final_model(plain, settings).model.values.tobytes() == final_model(clipped, settings).model.values.tobytes()


ATTACKS = {
    "backwards": lambda m, round: replace(m, total=-m.total),
    "three times as far": lambda m, round: replace(m, total=-2.5 * m.total),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("rule", [r for r in RULES if r != "none"])
def test_an_attack_within_the_bounds_of_a_service_costs_less(rule: str, attack: str) -> None:
    """What the guard lets pass, because it is no longer than models are. With three devices, one of them bad."""
    plain, settings = METHODS["fedavg"], attack_settings("fedavg")
    honest = loss_after(plain, settings)[0]
    without = loss_after(plain, settings, ATTACKS[attack])[0]
    method = robust(plain, Robust(rule=rule))
    found = loss_after(method, settings, ATTACKS[attack])[0]
    assert found - honest < 0.7 * (without - honest), f"{found} with {rule}, {without} without it, {honest} honestly"


def run_of(method: str, **more: Any) -> Run:
    return Run(id="r", method=method, classes=("a", "b"), **more)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_part_or_says_why_not(name: str) -> None:
    """The run that asks for a rule is refused before it starts, or plays."""
    for robust_table in ({"rule": "trimmed-mean"}, {"hospitals": "median"}):
        run = run_of(name, robust=robust_table)
        try:
            settings_of(run)
        except UsageError as error:
            assert f"with method {name}: " in str(error) and "robust" in str(error)
            continue
        method = method_of(run)
        settings = contract_settings(METHODS[name])
        final_model(method, settings, 2)


def test_methods_that_have_to_add_up_plainly() -> None:
    def refused(name: str, table: dict[str, Any], **settings: Any) -> bool:
        try:
            settings_of(run_of(name, robust=table, settings=settings))
        except UsageError:
            return True
        return False

    plain = {"hsgd", "fedal", "fedslr+fedal", "fedslr-b+fedal"}
    assert {name for name in METHODS if refused(name, {"rule": "clip"})} == plain
    assert {name for name in METHODS if refused(name, {"rule": "median"})} == plain
    mirrored = {"fedslr", "fedslr-b", "scaffold", "feddyn"}
    assert {name for name in METHODS if refused(name, {"rule": "median", "keep": 0})} == plain | mirrored
    over_hospitals = {name for name in METHODS if refused(name, {"hospitals": "median"})}
    assert over_hospitals == (plain - {"hsgd"}) | {"augfl"}
    assert not refused("hsgd", {"hospitals": "median"}) and refused("hsgd", {"rule": "clip"})
    first_b = {"cloud": "first-b", "ready": 2}
    assert not refused("fedbcd", {"hospitals": "clip"}, **first_b)
    assert refused("fedbcd", {"hospitals": "clip"}, graph="ring", **first_b)
    assert refused("fedbcd", {"hospitals": "clip"}, cloud_steps=2, **first_b)
    assert not refused("fedbcd", {"rule": "clip"}, graph="ring", **first_b)


@pytest.mark.parametrize(
    "table, what",
    [
        ({"rule": "krum"}, "rule = 'krum': one of none, clip, trimmed-mean, median, geometric-median"),
        ({"share": 0.5}, "share = 0.5: a share of the children"),
        ({"factor": 0.0}, "factor = 0.0: a number above 0"),
        ({"keep": 0.9}, "keep = 0.9: times the median distance, 1 or more"),
        ({"rules": "clip"}, "rules is no setting, did you mean rule"),
    ],
)
def test_a_wrong_setting_is_said(table: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        settings_of(run_of("fedavg", robust=table))


def test_a_run_without_it_is_written_as_before() -> None:
    plain = run_of("fedavg")
    assert b"robust" not in encode_run(plain)
    asked = run_of("fedavg", robust={"rule": "clip"})
    assert decode_run(encode_run(asked)) == asked


@pytest.mark.parametrize("field", ["settings", "settle", "augment", "robust"])
@pytest.mark.parametrize("value", [5, ["x"], "clip", {1: 2}])
def test_a_table_of_a_run_that_is_none_is_refused(field: str, value: Any) -> None:
    """A run comes from a peer: this ended a device with a TypeError."""
    with pytest.raises(UsageError, match=f"{field} = .*expected a table of named values"):
        run_of("fedavg", **{field: value})


def hospital_of(name: str, rule: str = "clip"):
    method = robust(METHODS[name], Robust(rule=rule))
    settings = contract_settings(method)
    env = replace(envs_of(method, settings, 3)["h0"], me="h0", here=("d0", "d1", "d2"))
    return method.hospital, env


def test_an_upload_is_checked_when_it_comes() -> None:
    """Not at the close: there, an error would cost the round."""
    role, env = hospital_of("fedavg")
    s, _ = role.start(env)
    with pytest.raises(PeerError, match="d0 sent a sum of 2 devices, it has 1"):
        role.receive(env, s, "d0", Sum(np.zeros(LAYOUT.size), 1.0, 2))
    with pytest.raises(PeerError, match="d0 sent numbers that are not finite per unit of weight"):
        role.receive(env, s, "d0", Sum(np.full(LAYOUT.size, 4e9), 1e-308))


def test_the_aggregator_of_synchronous_fedbcd_takes_no_models() -> None:
    """A hospital that sends one would have it judged in place of its sums."""
    method = METHODS["fedbcd"]
    settings = contract_settings(method)
    env = replace(envs_of(method, settings, 3)["aggregator"], me="aggregator", here=tuple(TREE))
    s, _ = method.aggregator.start(env)
    x = np.zeros(LAYOUT.size)
    with pytest.raises(PeerError, match="h0 sent a model of its own"):
        method.aggregator.receive(env, s, "h0", Ready(x, Sum(x, 1.0)))


def test_what_an_abandoned_question_was_answered_with_is_dropped() -> None:
    role, env = hospital_of("fedavg", "median")
    question = (
        METHODS["fedavg"]
        .aggregator.start(replace(envs_of(METHODS["fedavg"], env.settings, 3)["aggregator"], here=("h0",)))[1][0]
        .message
    )
    s, _ = role.receive(env, role.start(env)[0], UP, question)
    s, _ = role.receive(env, s, "d0", Sum(np.ones(LAYOUT.size), 1.0))
    assert list(s.uploads) == ["d0"]
    s, _ = role.receive(env, s, UP, question)
    assert not s.uploads


def test_who_is_as_far_as_may_be_is_near() -> None:
    near = near_of(Robust(rule="median", neighbours=False, keep=1.0), "hospital")
    assert near is not None and near_of(Robust(rule="median"), "aggregator") is None
    assert near(np.array([[0.0], [1.0], [2.0], [4.0], [9.0]]), 0.0).tolist() == [True, True, True, True, False]
    assert near(np.zeros((3, 1)), 0.0).all() and near(np.array([[0.0], [0.0], [5.0]]), 5.0).all()
