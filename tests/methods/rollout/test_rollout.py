"""Stages, gates and the way back, in memory: no broker, no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.contract.round import Policy
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.rollout.messages import (
    RolloutVerdict,
    StageOver,
    VersionKept,
    VersionLeft,
    VersionOrder,
    VersionTaken,
    VersionTried,
)
from edge_sdk.methods.rollout.method import (
    ROLLOUT,
    AggregatorState,
    Env,
    aggregator_receive,
    aggregator_start,
)
from edge_sdk.methods.rollout.plan import (
    Settings,
    check_counts,
    count_failures,
    count_having,
    find_fault,
    list_stages,
    share_out,
)
from edge_sdk.methods.shared.evaluation.evaluation import Finished

TREE = {"h0": ("d0", "d1", "d2", "d3"), "h1": ("d4", "d5", "d6"), "h2": ("d7",)}
DEVICES = tuple(d for devices in TREE.values() for d in devices)
SIZES = {h: len(devices) for h, devices in TREE.items()}
POLICIES = {"aggregator": Policy(quorum=1, deadline=400.0), "hospital": Policy(deadline=90.0)}
BUNDLE, THETA = np.arange(9, dtype=np.uint8), np.ones(4, np.float32)
SOUND = {"installed": 1.0, "samples": 10.0, "before": 6.0, "after": 7.0}
FAULTS = {
    "usual": NetworkFaults(),
    "lossy": NetworkFaults(drop=0.15, away={"d1": [(5, 60)], "h1": [(10, 40)]}),
}


def roll(
    found: Mapping[str, Mapping[str, float]],
    faults: NetworkFaults = FAULTS["usual"],
    scores_of: int | None = None,
    **settings: Any,
) -> Any:
    """Transcript of a rollout.

    Args:
        found: device -> what it counts; others are sound. scores_of: of the hospitals' holders.
    """
    least = None if scores_of is None else lambda: scores_of
    chosen = Settings(**{"theta": "ab", **settings})
    envs: dict[str, Env] = {"aggregator": Env(settings=chosen, sizes=SIZES, bundle=BUNDLE, theta=THETA, seed=3)}
    for hospital, devices in TREE.items():
        sizes = dict.fromkeys(devices, 1)
        envs[hospital] = Env(settings=chosen, sizes=sizes, verify=lambda bundle, theta: None, scores_of=least, seed=3)
        for device in devices:
            answer = dict(found.get(device, SOUND))
            envs[device] = Env(
                settings=chosen,
                verify=lambda bundle, theta: None,
                attempt=lambda bundle, theta, answer=answer: answer,
                has_version=lambda rollout: True,
                seed=3,
            )
    return Loopback(ROLLOUT, TREE, envs, POLICIES, 0, faults).run()


def told(transcript: Any, kind: type) -> list[tuple[str, Any]]:
    return [(name, m) for name, m in transcript.told if isinstance(m, kind)]


def devices_with(transcript: Any) -> set[str]:
    """Devices that have taken the version and have not left it."""
    having = set()
    for name, m in transcript.told:
        if name in DEVICES and isinstance(m, VersionTaken):
            having.add(name)
        if isinstance(m, VersionLeft):
            having.discard(name)
    return having


@pytest.mark.parametrize("faults", FAULTS)
def test_a_sound_version_reaches_its_share_in_growing_stages(faults: str) -> None:
    transcript = roll({}, FAULTS[faults], share=0.5)
    stages = [m for _, m in told(transcript, StageOver)]
    assert [m.upto for m in stages] == [1, 2, 4] and {m.target for m in stages} == {4}
    [(_, verdict)] = told(transcript, RolloutVerdict)
    assert verdict.kept and verdict.counts["installed"] == 4 == len(devices_with(transcript))
    if faults == "usual":
        assert {name for name, _ in told(transcript, Finished)} == {"aggregator", *TREE, *DEVICES}
        assert {name for name, _ in told(transcript, VersionKept)} == {*DEVICES}


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"golden_failed": 1.0}, "golden vectors"),
        ({"unfit": 1.0}, "failed or stayed silent, at most 10 % may"),
        ({"installed": 1.0, "samples": 30.0, "before": 25.0, "after": 5.0}, "fell from 83.3 to 16.7 %, 2 points are"),
    ],
)
def test_a_bad_version_is_halted_at_the_canary_and_left(faults: str, answer: Mapping[str, float], why: str) -> None:
    transcript = roll(dict.fromkeys(DEVICES, answer), FAULTS[faults])
    [(_, verdict)] = told(transcript, RolloutVerdict)
    assert not verdict.kept and why in verdict.fault
    assert [m.upto for _, m in told(transcript, StageOver)] == [1]
    assert devices_with(transcript) == set()


def test_a_fall_that_shows_later_takes_everybody_back() -> None:
    bad = {"installed": 1.0, "samples": 200.0, "before": 150.0, "after": 90.0}
    transcript = roll(dict.fromkeys(("d0", "d1", "d2", "d3"), bad))  # the canary is none of these
    stages, [(_, verdict)] = told(transcript, StageOver), told(transcript, RolloutVerdict)
    assert not verdict.kept and len(stages) > 1 and not devices_with(transcript)
    assert verdict.counts["reverted"] == verdict.counts["installed"] > 1


def test_named_devices_and_no_others(tmp_path: Any) -> None:
    transcript = roll({}, devices=("d2", "d6"))
    assert devices_with(transcript) == {"d2", "d6"}


def test_a_rollout_is_undone_later() -> None:
    transcript = roll({}, theta="", undo="earlier")
    assert {name for name, m in told(transcript, VersionLeft) if m.rollout == "earlier"} == {*DEVICES}
    [(_, verdict)] = told(transcript, RolloutVerdict)
    assert verdict.counts["reverted"] == len(DEVICES) and not verdict.kept and not verdict.fault


def test_a_silent_device_is_a_failure_and_holds_up_nothing() -> None:
    away = NetworkFaults(away={"d7": [(0.5, 10**6)]})
    transcript = roll({}, away, failures=0.5)
    [(_, verdict)] = told(transcript, RolloutVerdict)
    assert verdict.kept and verdict.counts["installed"] == 7


def test_stages_and_shares() -> None:
    assert list_stages(Settings(theta="a", share=1.0), 10) == (1, 2, 4, 8, 10)
    assert list_stages(Settings(theta="a", share=0.05, canary=3), 100) == (3, 5)
    assert list_stages(Settings(theta="a", growth=1.1), 4) == (1, 2, 3, 4)
    for growth in (1e308, float("inf")):  # once an overflow
        assert list_stages(Settings(theta="a", canary=10, growth=growth), 100) == (10, 100)
    before = dict.fromkeys(SIZES, 0)
    for count in range(1, 9):
        now = share_out(SIZES, count, 5)
        assert sum(now.values()) == count and all(now[h] >= before[h] for h in SIZES)
        before = now
    assert before == SIZES


def test_few_samples_are_not_judged() -> None:
    settings = Settings(theta="a", judged=20)
    counts = {"asked": 1.0, "installed": 1.0, "samples": 19.0, "before": 19.0, "after": 0.0}
    assert find_fault(settings, counts) == ""
    assert "fell" in find_fault(replace(settings, judged=19), counts)


@pytest.mark.parametrize(
    "counts",
    [
        {"installed": 2.0},
        {"installed": 1.0, "already": 1.0},
        {"unfit": 1.0, "installed": 1.0},
        {"theta": 1.0},
        {"samples": -1.0},
        {"samples": 3.0, "after": 4.0},
        {"asked": float("nan")},
    ],
)
def test_counts_that_no_device_can_have_are_refused(counts: Mapping[str, float]) -> None:
    with pytest.raises(ValueError, match=r"count|samples"):
        check_counts(counts, 1)


def test_a_hospital_that_was_asked_for_none_has_none_that_took_the_version() -> None:
    """Ten that it did not ask made up for ten of another hospital that failed, and the version stayed."""
    env = Env(settings=Settings(theta="ab"), sizes={"north": 10, "south": 10})
    s, _ = aggregator_receive(env, AggregatorState(), "south", VersionTried({"asked": 10.0, "answered": 10.0}))
    with pytest.raises(PeerError, match=r"north: 10 devices took the version or did not, and 0 were asked"):
        aggregator_receive(env, s, "north", VersionTried({"asked": 0.0, "answered": 10.0, "installed": 10.0}))
    back, _ = aggregator_receive(env, s, "north", VersionTried({"asked": 0.0, "answered": 10.0, "reverted": 10.0}))
    assert back.counts == {"asked": 10.0, "answered": 20.0, "reverted": 10.0}


def test_a_hospital_cannot_have_asked_more_than_its_part_of_the_stage() -> None:
    """A thousand devices of which each stage told anew made up for nine of ten that failed elsewhere."""
    env = Env(settings=Settings(theta="ab", canary=20), sizes={"north": 1000, "south": 1000}, here=("north", "south"))
    s, orders = aggregator_start(env)
    [quota] = [send.message.upto for send in orders if send.to == ("north",)]
    all_well = VersionTried({"asked": 1000.0, "answered": 1000.0, "installed": 1000.0})
    with pytest.raises(PeerError, match=f"north: 1000 devices were asked in a stage that reaches {quota}"):
        aggregator_receive(env, s, "north", all_well)
    smaller = replace(env, sizes={"north": quota, "south": 1000})  # devices have left since it was asked
    right, _ = aggregator_receive(smaller, s, "north", VersionTried({"asked": float(quota), "answered": float(quota)}))
    assert right.counts["asked"] == quota


def test_as_many_samples_as_can_be_counted_are_taken() -> None:
    check_counts({"samples": 2.0**32}, 1)
    with pytest.raises(ValueError, match="count 'samples'"):
        check_counts({"samples": 2.0**32 + 1}, 1)


def test_who_had_the_version_has_it_and_of_nobody_nothing_is_known() -> None:
    counts = {"asked": 5.0, "installed": 1.0, "already": 2.0}
    assert count_having(counts) == 3 and count_failures(counts) == 2
    assert count_failures({}) == 0 and find_fault(Settings(theta="a"), {}) == ""
    over = StageOver(1, 4, 5, 40, counts, "too hot")
    assert over.to_sentence() == "stage 1 of 4: 3 devices have the version; halted: too hot"
    assert RolloutVerdict(False, {}).to_sentence() == "0 devices are back at the version before"
    few = {"asked": 1.0, "installed": 1.0, "samples": 100.0, "before": 3.0}  # and none is right after
    assert "fell from 3.0 to 0.0 %" in find_fault(Settings(theta="a"), few)
    assert replace(over, fault="").to_sentence() == "stage 1 of 4: 3 devices have the version"


@pytest.mark.parametrize(("stage", "upto", "fits"), [(1, 0, True), (0, 1, False), (1, -1, False)])
def test_orders_are_of_stages_from_one_on(stage: int, upto: int, fits: bool) -> None:
    try:
        VersionOrder(stage, upto, BUNDLE, THETA).check(Layout(()))
    except ValueError as error:
        assert not fits and str(error).startswith(f"stage {stage}, {upto} devices")
    else:
        assert fits


def test_an_evaluation_asks_all_at_once_and_nobody_takes_anything() -> None:
    transcript = roll({}, only_judge=True)
    [(_, over)] = told(transcript, StageOver)
    assert (over.stage, over.stages, over.upto, over.target) == (1, 1, 8, 8)
    [(_, verdict)] = told(transcript, RolloutVerdict)
    assert not verdict.kept and verdict.counts["after"] == 8 * 7 and not told(transcript, VersionTaken)


UNJUDGED = {"installed": 1.0}


@pytest.mark.parametrize(
    ("devices", "found", "told_of"),
    [
        (("d0",), {}, 0),
        (("d0", "d1", "d2"), {"d1": UNJUDGED, "d2": UNJUDGED}, 0),
        (("d0", "d1", "d2"), {}, 3),
        ((), {}, 7),
    ],
    ids=["one", "one with samples among three", "three", "all, of whom h2 has one"],
)
def test_whoever_chooses_the_devices_of_an_evaluation_reads_no_single_one(
    devices: tuple[str, ...], found: Any, told_of: int
) -> None:
    """With a model that says one class only, what is right after are a device's labels."""
    transcript = roll(found, scores_of=3, only_judge=True, devices=devices)
    [(_, verdict)] = told(transcript, RolloutVerdict)
    assert verdict.counts["answered"] == (len(devices) or 8)
    assert (verdict.counts.get("samples", 0), verdict.counts.get("after", 0)) == (10 * told_of, 7 * told_of)


def test_a_rollout_is_judged_at_its_first_device_whatever_the_holder_says_of_sums() -> None:
    bad = {"installed": 1.0, "samples": 30.0, "before": 25.0, "after": 5.0}
    [(_, verdict)] = told(roll(dict.fromkeys(DEVICES, bad), scores_of=3), RolloutVerdict)
    assert "fell from 83.3 to 16.7 %" in verdict.fault and verdict.counts["asked"] == 1


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"theta": "a", "undo": "b"},
        {"theta": "a", "share": 0.0},
        {"theta": "a", "growth": 1.0},
        {"theta": "a", "canary": 0},
    ],
)
def test_settings_that_make_no_rollout(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Settings(**settings)


@pytest.mark.parametrize("claim", [{"before": 0.0, "after": 2.0**32}, {"before": 2.0**32, "after": 0.0}])
@pytest.mark.parametrize(("after", "halts"), [(2.0, True), (6.0, False)])
def test_one_device_that_claims_very_many_samples_does_not_decide(
    claim: dict[str, float], after: float, halts: bool
) -> None:
    """It once did: by 2^32 samples, all right, a version passed that was worse on every other device."""
    honest = {"installed": 1.0, "samples": 100.0, "before": 60.0, "after": 10 * after}
    found: dict[str, Mapping[str, float]] = {d: honest for d in DEVICES} | {
        "d7": {"installed": 1.0, "samples": 2.0**32, **claim}
    }
    verdict = told(roll(found, canary=8, margin=0.15), RolloutVerdict)[0][1]
    assert verdict.kept is not halts and ("accuracy on the devices" in verdict.fault) is halts


@pytest.mark.parametrize("faults", FAULTS)
def test_one_device_whose_golden_vectors_fail_is_one_that_fails(faults: str) -> None:
    """One whose processor is broken, or that lies, once halted every rollout of every fleet. It keeps its version."""
    liar = next(d for d in DEVICES if d in devices_with(roll({}, growth=8.0)) and not is_canary(d))
    transcript = roll({liar: {"golden_failed": 1.0}}, FAULTS[faults], failures=0.3, growth=8.0)
    [(_, verdict)] = told(transcript, RolloutVerdict)
    assert verdict.kept and verdict.counts["golden_failed"] == 1 and liar not in devices_with(transcript)


def is_canary(device: str) -> bool:
    return any(name == device for name, _ in told(roll({}, share=0.125), VersionTaken))


@pytest.mark.parametrize(
    ("asked", "golden", "halted"),
    [(1, 1, True), (9, 1, True), (10, 1, False), (10, 2, True), (100, 2, True), (1000, 10, False), (1000, 11, True)],
)
def test_how_many_golden_vectors_may_fail(asked: int, golden: int, halted: bool) -> None:
    """One device alone counts as any that fails; more are a kind of device only if they are more than 1 %."""
    counts = {"asked": float(asked), "installed": float(asked - golden), "golden_failed": float(golden)}
    found = find_fault(Settings(theta="ab"), counts)
    assert bool(found) == halted and ("golden vectors" in found) == halted


def test_silence_is_not_put_down_to_golden_vectors() -> None:
    found = find_fault(Settings(theta="ab"), {"asked": 20.0, "installed": 10.0, "golden_failed": 1.0})
    assert "10 of 20 devices failed or stayed silent" in found
