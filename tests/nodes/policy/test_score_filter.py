"""What scores leave a node: no label counts of one device, and no sums of few devices, unless the holder lets them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.loopback import ROOT
from edge_sdk.contract.method import OUT, UP, Role, Send
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.augfl.messages import Counted
from edge_sdk.methods.augfl.sums import add_scores
from edge_sdk.methods.fedal.messages import Settled
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.settling.counting import Counts
from edge_sdk.methods.shared.aggregation.gather import Sum, add, scores
from edge_sdk.methods.shared.aggregation.scores import check_scores
from edge_sdk.methods.shared.evaluation.evaluation import Scores, Watched, evaluated, noted, sums_of
from edge_sdk.methods.shared.evaluation.reports import Progress, Report, accuracy_spreads, mean_loss
from edge_sdk.nodes.policy.allow import CLASSES, Allow, RunFacts, find_objections
from edge_sdk.nodes.policy.score_filter import STEP, allowed_message, allowed_scores, for_masking, leaving, limited
from tests.methods.problems import DEVICES, TREE, envs_of, play, told
from tests.methods.test_contract import settings_of

OWN = {
    **{"loss": 1.0, "loss_devices": 1.0},
    **{"global_correct": 3.0, "global_accuracy": 0.75, "global_loss": 2.0, "samples": 4.0, "devices": 1.0},
    **{"global_auc:0:1:9": 1.0, "global_auc:0:0:2": 3.0},
}
ALL_OPEN = Allow(scores=CLASSES, scores_of=1)


def test_facts_of_personal_models_leave_in_sums_of_enough_devices() -> None:
    facts = {"personal_harmed": 1.0, "personal_density": 0.5}
    for devices, left in ((3.0, facts), (2.0, {"untold": 2.0})):
        sums = {"devices": devices, **facts}
        assert allowed_scores(sums, devices, False, 3) == left | ({"devices": devices} if devices == 3.0 else {})


MANY = {"devices": 6.0, "global_accuracy": 3.0, "global_accuracy_squared": 2.0}
FEW = {"devices": 3.0, "global_accuracy": 1.5}


@pytest.mark.parametrize("parts", [(MANY, FEW), (FEW, MANY), (FEW, MANY, MANY), (MANY, MANY, FEW)])
def test_squares_of_some_hospitals_are_no_spread_over_the_devices_of_all(parts: tuple[dict[str, float], ...]) -> None:
    """They were divided by the number of all devices: the spread was too small, or 0."""
    named = {f"h{i}": part for i, part in enumerate(parts)}
    env, s = envs_of(METHODS["fedavg"], METHODS["fedavg"].settings(), 1)["aggregator"], Watched(None, evaluating=True)
    env, tally = replace(env, sizes=dict.fromkeys(named, 6)), None
    for name, part in named.items():
        s = noted(env, s, name, Scores(1, part))
        tally = add(tally, name, Sum(np.zeros(1), 1.0, int(part["devices"]), part))
    assert tally is not None
    for sums in (sums_of(s), scores(tally), add_scores(named)):
        assert sums["global_accuracy"] == sum(part["global_accuracy"] for part in parts)
        assert accuracy_spreads(sums) == {}
    assert accuracy_spreads(add_scores({"h0": MANY, "h1": MANY})) == {"global": pytest.approx((1 / 3 - 1 / 4) ** 0.5)}


OF_THREE = ((17, 11), (19, 15), (23, 13))
"""Held-out samples of three devices, and how many of them are right."""


def scores_of(samples: int, right: int) -> dict[str, float]:
    share = right / samples
    shares = {"global_accuracy": share, "global_accuracy_squared": share * share}
    return {"samples": samples, "devices": 1.0, "global_correct": right, **shares}


def added(told: Collection[dict[str, float]]) -> dict[str, float]:
    return {name: sum(one[name] for one in told) for name in next(iter(told))}


def taken_apart(sums: dict[str, float], error: float) -> set[tuple[tuple[int, int], ...]]:
    """All that three devices may have, in any order, by their sums; `error` of the sum of their shares."""
    samples, right = int(sums["samples"]), int(sums["global_correct"])
    n = np.arange(1, samples)
    n1, n2, c1, c2 = np.meshgrid(n, n, np.arange(right + 1), np.arange(right + 1), indexing="ij", sparse=True)
    n3, c3 = samples - n1 - n2, right - c1 - c2
    possible = (n1 <= n2) & (n2 <= n3) & (c1 <= n1) & (c2 <= n2) & (c3 >= 0) & (c3 <= n3)
    shares = c1 / n1 + c2 / n2 + c3 / np.maximum(n3, 1)
    found = np.argwhere(possible & (np.abs(shares - sums["global_accuracy"]) <= error))
    of_two = [((i + 1, c), (j + 1, d)) for i, j, c, d in found.tolist()]
    return {tuple(sorted((a, b, (samples - a[0] - b[0], right - a[1] - b[1])))) for a, b in of_two}


def test_sums_of_three_devices_do_not_say_how_many_samples_each_has_and_how_many_are_right() -> None:
    exact = added([scores_of(*one) for one in OF_THREE])
    assert taken_apart(exact, 1e-12) == {OF_THREE}, "an exact sum of three fractions has one solution"
    told = allowed_message(Scores(1, exact), False, 3).sums
    assert "global_accuracy_squared" not in told and told["global_accuracy"] * STEP % 1 == 0
    assert len(taken_apart(told, 0.5 / STEP)) > 500
    assert allowed_message(Scores(1, exact), False, 1).sums == exact, "of a holder who shows single devices"


def test_nor_do_sums_under_masks_which_no_hospital_can_round() -> None:
    masked = for_masking(Allow)
    told = added([masked(Scores(1, scores_of(*one))).sums for one in OF_THREE])
    assert "global_accuracy_squared" not in told and len(taken_apart(told, 1.5 / STEP)) > 500
    opened = Scores(1, scores_of(*OF_THREE[0]))
    assert for_masking(lambda: ALL_OPEN)(opened) is opened, "whose histograms leave, which say more"


def test_how_far_devices_differ_is_told_of_five() -> None:
    five = added([scores_of(*one) for one in (*OF_THREE, (10, 5), (10, 9))])
    assert "global_accuracy_squared" in allowed_message(Scores(1, five), False, 3).sums
    four = added([scores_of(*one) for one in (*OF_THREE, (10, 5))])
    assert "global_accuracy_squared" not in allowed_message(Scores(1, four), False, 3).sums


def held(env: Any, sums: dict[str, float]) -> Any:
    return replace(env, score=lambda theta: sums, judge=lambda theta: sums | {"auc:0:1:9": 1.0, "auc:0:0:3": 2.0})


def played(name: str, allow: Allow, uploads: Uploads | None = None, idle: Collection[str] = ()) -> Any:
    """A run of the product's roles, each limited as its node limits it; the hospitals have 3, 2 and 1 devices.

    Args:
        idle: devices without training samples.
    """
    method, settings = METHODS[name], settings_of(METHODS[name])
    settings = replace(settings, participation=1.0) if hasattr(settings, "participation") else settings
    envs = envs_of(method, settings, 2)
    envs |= {d: held(envs[d], {"samples": 3.0, "correct": 2.0, "loss": 1.0}) for d in DEVICES}
    envs |= {d: replace(envs[d], samples=0) for d in idle}
    around = method if uploads is None else rounded(method, settings, uploads)
    whole = evaluated(around)
    whole = replace(
        whole,
        device=limited(whole.device, lambda: allow),
        hospital=limited(whole.hospital, lambda: allow, hospital=True),
    )
    return play(whole, settings, 2, envs=envs)


def scores_in(message: Any) -> dict[str, float]:
    """All scores of a message, and of those within it."""
    found = dict(message.sums) if isinstance(message, Scores) else dict(getattr(message, "scores", {}))
    for value in vars(message).values():
        if hasattr(value, "__dataclass_fields__"):
            found |= scores_in(value)
    return found


@pytest.mark.parametrize("name", ["fedavg", "fedslr", "fedper", "augfl", "fedbcd", "scaffold"])
def test_by_default_no_label_counts_leave_a_device_and_no_score_of_few_a_hospital(name: str) -> None:
    _, transcript = played(name, Allow())
    from_devices = [scores_in(m) for a, _, m in transcript.crossed if a in DEVICES]
    assert any("global_correct" in one for one in from_devices), "the hospital adds something up"
    assert not [key for one in from_devices for key in one if "auc" in key]
    for hospital, devices in TREE.items():
        found = [scores_in(m) for a, b, m in transcript.crossed if (a, b) == (hospital, ROOT)]
        known = {key for one in found for key in one} - {"primal_residual", "dual_residual"}
        assert ("global_correct" in known) == (len(devices) >= 3)
        assert not [key for key in known if "auc" in key]
        assert known == {"untold"} or len(devices) >= 3


@pytest.mark.parametrize("uploads", [None, Uploads(bits=16)])
def test_what_a_holder_lets_out_is_what_a_run_without_limits_tells(uploads: Uploads | None) -> None:
    _, open_run = played("fedslr", ALL_OPEN, uploads)
    (report,) = told(open_run, Report)
    assert report.sums["devices"] == 6 and report.sums["global_auc:0:1:9"] == 6
    _, limited_run = played("fedslr", Allow(), uploads)
    (report,) = told(limited_run, Report)
    assert report.sums["devices"] == 3 and report.sums["untold"] == 3, "h1 and h2 have fewer than three"
    assert report.to_sentence().startswith("evaluation 2: 3 devices, ")
    assert report.to_sentence().endswith(", no scores of 3"), "nobody has to guess where they are"


def test_a_mean_loss_is_of_the_devices_that_have_told_theirs() -> None:
    for progress in told(played("fedavg", Allow())[1], Progress):
        assert progress.devices == 6 and progress.sums["untold"] == 3
        assert mean_loss(progress.to_metrics()) == progress.sums["loss"] / 3 and progress.sums["loss_devices"] == 3
    assert mean_loss({"kind": "round", "devices": 2, "sums": {"untold": 2.0}}) is None


def test_models_are_the_same_whatever_leaves_beside_them() -> None:
    ends = []
    for allow in (Allow(), ALL_OPEN):
        net, _ = played("fedslr", allow)
        ends.append(net.nodes[ROOT].record.state.inner.model.values)
    np.testing.assert_array_equal(*ends)


def test_scores_of_a_model_that_few_have_do_not_leave_beside_those_of_many() -> None:
    """Of five devices one has joined late: its model by itself is its own."""
    sums = {"samples": 20.0, "devices": 5.0, "global_correct": 9.0, "global_accuracy": 2.0}
    few = {"unseen_correct": 1.0, "unseen_accuracy": 0.5, "unseen_samples": 2.0, "unseen_devices": 1.0}
    last = {"test_samples": 2.0, "test_devices": 2.0, "test_global_correct": 1.0}
    found = allowed_message(Scores(4, sums | few | last), False, 3)
    assert found.sums == sums
    check_scores(found.sums, 5)


LOSS_OF_FOUR = {"loss": 2.0, "loss_devices": 4.0}


def test_a_sum_of_enough_that_few_have_samples_for_says_its_loss_only() -> None:
    m = Sum(np.zeros(2), 4.0, 4, LOSS_OF_FOUR | {"global_correct": 1.0, "samples": 4.0, "devices": 2.0})
    assert allowed_message(m, True, 3).scores == LOSS_OF_FOUR


def test_a_training_loss_that_one_of_four_has_told_stays_at_their_hospital() -> None:
    scores = {"global_correct": 1.0, "samples": 4.0, "devices": 4.0}
    m = Sum(np.zeros(2), 4.0, 4, scores | {"loss": 2.0, "loss_devices": 1.0})
    assert allowed_message(m, True, 3).scores == scores
    assert allowed_message(replace(m, scores={"loss": 2.0}), True, 3).scores == {}, "nobody has said whose it is"


@pytest.mark.parametrize("alone", [True, False])
def test_the_loss_of_the_only_device_of_a_hospital_that_can_train_does_not_leave_it(alone: bool) -> None:
    idle = {"d1", "d2"} if alone else set()
    _, transcript = played("fedbcd", Allow(), idle=idle)
    up = [m.scores for a, b, m in transcript.crossed if (a, b) == ("h0", ROOT) and hasattr(m, "scores")]
    assert up and all(("loss" in scores) != alone for scores in up)
    for line in (progress.to_metrics() for progress in told(transcript, Progress)):
        assert alone or mean_loss(line) == line["sums"]["loss"] / 3


def test_histograms_leave_a_hospital_where_all_that_have_samples_have_told_theirs() -> None:
    sums = {"samples": 12.0, "devices": 3.0, "global_correct": 9.0}
    all_three = {"global_auc:0:1:9": 3.0, "global_auc:0:0:2": 9.0, "global_auc:1:0:2": 12.0}
    assert allowed_message(Scores(4, sums | all_three), True, 3).sums == sums | all_three
    of_one = {"global_auc:0:1:9": 1.0, "global_auc:0:0:2": 3.0, "global_auc:1:0:2": 4.0}
    assert allowed_message(Scores(4, sums | of_one), True, 3).sums == sums
    assert allowed_message(Scores(4, sums | of_one), True, 1).sums == sums | of_one, "whose holder shows single devices"


def test_counts_of_settling_by_few_devices_do_not_vote() -> None:
    counts = Counts(np.array([2, 1]), 3, 2)
    kept = allowed_message(counts, False, 2)
    left_out = allowed_message(counts, False, 3)
    assert kept is counts
    assert (left_out.correct.tolist(), left_out.samples, left_out.devices) == ([0, 0], 0, 0)


def test_what_the_node_tells_its_own_application_and_what_a_method_needs_stays() -> None:
    own = Send(OUT, Scores(1, OWN))
    assert leaving(own, False, 3) is own
    needed = Send(UP, Sum(np.zeros(1), 1.0, 1, {"noise_0": 1.0, "value": -2.0}))
    assert leaving(needed, False, 3) is needed
    count = Send(UP, Counted(7, 1))
    assert leaving(count, False, 3) is count


def test_a_change_of_the_table_counts_from_the_next_message_on() -> None:
    role = Role(lambda env: (0, []), lambda *_: (0, [Send(UP, Scores(1, OWN))]), lambda env, s: (s, []), int)
    tables = [Allow(), Allow(scores=CLASSES)]
    asked = limited(role, lambda: tables.pop(0))
    sizes = [len(asked.receive(None, 0, UP, None)[1][0].message.sums) for _ in range(2)]
    assert sizes == [len(OWN) - 2, len(OWN)]


def test_the_keys_of_the_table_are_checked_and_are_no_rules_about_runs() -> None:
    with pytest.raises(UsageError, match="scores = 'all', expected sums or classes"):
        Allow(scores="all")
    with pytest.raises(UsageError, match="scores_of = 0"):
        Allow(scores_of=0)
    assert list(find_objections(ALL_OPEN, Run(id="a", method="fedavg"), RunFacts())) == []
    assert ALL_OPEN.takes_all and not Allow(methods=("fedavg",)).takes_all


def test_what_is_measured_around_stages_is_of_those_that_can_measure_it() -> None:
    """Of three devices that answer one has held-out samples; of how many the own samples are is not said."""
    measured = {"settled_accuracy": 0.5, "settled_own_accuracy": 0.9}
    loss = {"loss": 2.0, "loss_devices": 3.0}
    one = loss | {"personal_correct": 3.0, "samples": 6.0, "devices": 1.0}
    assert allowed_message(Settled(3, one | measured), False, 3).scores == loss
    three = one | {"devices": 3.0}
    assert allowed_message(Settled(3, three | measured), False, 3).scores == three | {"settled_accuracy": 0.5}
    alone = Settled(1, one | measured)
    assert allowed_message(alone, False, 1) is alone
