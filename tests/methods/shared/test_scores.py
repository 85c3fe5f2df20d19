"""Scores that peers send: a closed list of names, in ranges that go together, before anything is done with them."""

from __future__ import annotations

import sys
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra.metrics.classification import BINS, MOST_CLASSES, areas, sums
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedavg import FEDAVG, Settings
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.scores import MODELS, MOST, NAMES, check_scores
from edge_sdk.methods.shared.evaluation.evaluation import Scores, Watched, evaluated, noted
from edge_sdk.wire.codec.codec import Codec, DecodeError
from tests.methods.problems import LAYOUT, envs_of

SOUND = {
    "loss": 3.5,
    "global_correct": 7.0,
    "global_accuracy": 1.4,
    "global_accuracy_squared": 1.0,
    "global_loss": 2.0,
    "samples": 10.0,
    "devices": 2.0,
}
CODEC = Codec((Sum, Scores), layout=LAYOUT)


def upload(scores: dict[str, float], count: int = 2) -> bytes:
    """The bytes of a peer that checks nothing."""
    return Codec((Sum, Scores)).encode(Sum(np.zeros(LAYOUT.size, np.float32), 1.0, count, scores))


def test_what_a_device_reports_is_sound() -> None:
    rng = np.random.default_rng(0)
    found = {
        f"global_{name}": value for name, value in sums(rng.integers(0, 14, 50), rng.normal(size=(50, 14))).items()
    }
    found |= {"samples": found.pop("global_samples"), "devices": 1.0, "global_accuracy": found["global_correct"] / 50}
    check_scores(found, 1)
    assert CODEC.decode(upload(SOUND)).scores == SOUND


BAD: dict[str, Any] = {
    "a made-up name": {"junk": 1.0},
    "a name that is a path": {"../../x": 1.0},
    "an escape sequence": {"\x1b[2J": 1.0},
    "an accuracy above one": SOUND | {"global_accuracy": 666666667.0},
    "a square above its accuracy": SOUND | {"global_accuracy_squared": 1.5},
    "more right than there are": SOUND | {"global_correct": 10.5},
    "more devices than there are": SOUND | {"devices": 3.0},
    "below zero": SOUND | {"global_correct": -1.0},
    "not finite": SOUND | {"loss": nan},
    "infinite": SOUND | {"loss": inf},
    "above the limit": SOUND | {"loss": 2.0**33},
    "a bin far away": SOUND | {"global_auc:0:1:10000000000": 1.0},
    "a bin that there is not": SOUND | {f"global_auc:0:1:{BINS}": 1.0},
    "a class that there is not": SOUND | {f"global_auc:{MOST_CLASSES}:1:0": 1.0},
    "a bin without a number": SOUND | {"global_auc:0:1:x": 1.0},
    "a bin with more than there are": SOUND | {"global_auc:0:1:0": 11.0},
}


@pytest.mark.parametrize("scores", BAD.values(), ids=BAD)
def test_scores_that_cannot_be_are_the_peers_fault(scores: dict[str, float]) -> None:
    with pytest.raises(DecodeError, match=r"score|classes"):
        CODEC.decode(upload(scores))


def test_two_hundred_thousand_names_are_refused_after_a_look_at_each() -> None:
    """Added up, they once made a hospital's record too large to be read again."""
    data = upload({f"n{i}": 1.0 for i in range(200_000)})
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    try:
        with pytest.raises(DecodeError, match=f"200000 scores, there are at most {MOST}"):
            CODEC.decode(data)
    finally:
        sys.setprofile(None)
    assert len(calls) < 20 * 200_000


def test_all_scores_that_there_may_be_fit_into_a_record() -> None:
    """Of every model, class and bin, added up exactly by a hospital."""
    whole = dict.fromkeys(sorted(NAMES), 0.5) | {"samples": 2.0**31, "devices": 1.0}
    whole |= {
        f"{model}_auc:{c}:{mine}:{place}": 123456.789
        for model in MODELS
        for c in range(MOST_CLASSES)
        for mine in (0, 1)
        for place in range(BINS)
    }
    whole |= {f"{model}_samples": 2.0**31 for model in MODELS}
    method = evaluated(FEDAVG)
    env = envs_of(method, Settings(), 3)["h0"]
    state = noted(env, Watched(None, evaluating=True), "d0", Scores(1, whole))
    records = Codec((Watched,), finite=False)
    assert records.decode(records.encode(state)).sums == state.sums


def test_a_device_counts_as_one() -> None:
    env = envs_of(evaluated(FEDAVG), Settings(), 3)["h0"]
    sound = {"samples": 10.0, "devices": 1.0, "global_accuracy": 0.5, "global_correct": 5.0}
    state = noted(env, Watched(None, evaluating=True), "d0", Scores(1, sound))
    assert state.heard == ("d0",)
    many = {"samples": 1e9, "devices": 666666667.0, "global_accuracy": 666666667.0, "global_correct": 1e9}
    with pytest.raises(PeerError, match=r"d0: score 'devices' = 6.66667e\+08, of these devices .* at most 1"):
        noted(env, Watched(None, evaluating=True), "d0", Scores(1, many))


def test_more_classes_than_have_histograms() -> None:
    y, logits = np.arange(150) % 120, np.zeros((150, 120))
    found = sums(y, logits)
    assert set(found) == {"samples", "correct", "loss"}
    assert areas({f"global_{name}": value for name, value in found.items()})[1] == {}
