"""A sum of many answers in which a score is of few devices: that score is not opened, however many answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.methods.integers.vectors.labels import label_type
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.secret.messages.forms import CountsKind, Flat, ScoresKind
from edge_sdk.methods.secret.messages.upload_form import UploadKind
from edge_sdk.methods.settling.counting import Counts
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.evaluation.evaluation import Scores

ENV: Any = SimpleNamespace(outputs=3)
ONE = {"samples": 18.0, "devices": 1.0, "global_correct": 11.0, "global_loss": 9.25, "global_auc:0:1:3": 18.0}
LATE = {"unseen_correct": 2.0, "unseen_samples": 18.0, "unseen_devices": 1.0, "unseen_auc:1:1:5": 18.0}


def opened(kind: Any, *messages: Any, cohort: int = 3) -> Any:
    """What the aggregator reads of the sum of these answers."""
    form, flats = kind.form(ENV, messages[0]), [kind.flatten(kind.form(ENV, m), m) for m in messages]
    steps = sum((f.steps for f in flats), np.zeros_like(flats[0].steps))
    words = sum((f.words for f in flats), np.zeros_like(flats[0].words))
    return kind.restore(form, len(messages), Flat(steps, words), cohort)


def test_three_answers_of_which_one_has_held_out_samples_open_none_of_its_scores() -> None:
    few = opened(ScoresKind(), Scores(5, ONE), Scores(5, {}), Scores(5, {}))
    assert few == Scores(5, {})
    assert opened(ScoresKind(), *[Scores(5, ONE)] * 3).sums == {name: 3 * value for name, value in ONE.items()}


def test_facts_of_a_personal_model_are_in_no_masked_answer() -> None:
    """A masked answer has places for the names of the first version only, whoever made it."""
    more = Scores(5, ONE | {"personal_harmed": 1.0, "personal_density": 0.25})
    assert ScoresKind().lengths(ScoresKind().form(ENV, more)) == ScoresKind().lengths(
        ScoresKind().form(ENV, Scores(5, ONE))
    )
    assert set(opened(ScoresKind(), more, more, more).sums) == set(ONE)


def test_scores_and_histograms_of_a_model_that_one_has_stay_closed_beside_those_of_all() -> None:
    found = opened(ScoresKind(), Scores(5, ONE | LATE), Scores(5, ONE), Scores(5, ONE))
    assert set(found.sums) == set(ONE)


def test_histograms_that_one_of_three_has_told_stay_closed() -> None:
    told_none = {name: value for name, value in ONE.items() if "_auc:" not in name}
    found = opened(ScoresKind(), Scores(5, ONE), Scores(5, told_none), Scores(5, told_none))
    assert set(found.sums) == set(told_none)


def test_counts_of_settling_by_few_devices_open_as_none() -> None:
    one, none = Counts(np.array([2, 1]), 3, 1), Counts(np.array([0, 0]))
    few = opened(CountsKind(), one, none, none)
    assert (few.correct.tolist(), few.samples, few.devices) == ([0, 0], 0, 0)
    assert opened(CountsKind(), one, one, one).devices == 3


def upload(scores: dict[str, float]) -> Integers:
    label = label_type(Sum, ("total",))(weight=1.0, count=1, scores=scores)
    packed = rounding.pack(np.full(4, rounding.largest(8), np.uint32), 8)
    return Integers(label, ("total",), 4, 8, 1.0, 1, 0.0, packed)


def test_a_training_loss_that_one_of_three_uploads_has_stays_closed() -> None:
    kind = UploadKind({Sum: ("total",)})
    assert opened(kind, upload({"loss": 2.5}), upload({}), upload({})).label.scores == {}
    assert opened(kind, *[upload({"loss": 2.5})] * 3).label.scores == {"loss": 7.5, "loss_devices": 3.0}
