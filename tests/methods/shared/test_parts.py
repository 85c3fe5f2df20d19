"""theta in two parts: which slots stay on a device, and back again."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from edge_sdk.algebra.vectors import Layout, Slot, layout_of
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.fedper import FEDPER
from edge_sdk.methods.shared.aggregation import uploads
from edge_sdk.methods.shared.training import partial, parts
from edge_sdk.methods.shared.training.partial import PartTraining as Settings
from edge_sdk.methods.shared.training.partial import SharedPart
from tests.methods.problems import PROBLEMS

NET = layout_of(
    ("body.0.weight", (4, 3, 5), "conv"),
    ("body.0.bias", (4,), "bias"),
    ("body.1.weight", (4,), "norm"),
    ("body.1.bias", (4,), "norm"),
    ("head.0.weight", (6, 8), "linear"),
    ("head.0.bias", (6,), "bias"),
    ("head.2.weight", (2, 6), "linear"),
    ("head.2.bias", (2,), "bias"),
)


def names(words, layout=NET):
    return [s.name for s in layout.slots if s in parts.named(layout, words)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("last", ["head.2.weight", "head.2.bias"]),
        ("head.2", ["head.2.weight", "head.2.bias"]),
        ("head.2.weight", ["head.2.weight"]),
        ("head", ["head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias"]),
        ("norm", ["body.1.weight", "body.1.bias"]),
        ("norm, last", ["body.1.weight", "body.1.bias", "head.2.weight", "head.2.bias"]),
    ],
)
def test_words_for_slots(words, found):
    assert names(words) == found


def test_a_layer_group_of_the_bundle_and_a_layer_called_last():
    grouped = Layout((Slot("a", (2,), 0, group="tower"), Slot("b", (3,), 2, group="tower"), Slot("c", (1,), 5)))
    assert names("tower", grouped) == ["a", "b"]
    called = layout_of(("last.weight", (2,), "other"), ("after.weight", (2,), "other"))
    assert names("last", called) == ["last.weight"]


@pytest.mark.parametrize("words", ["hed", "", "norm,", "head.", "body.0.weigh"])
def test_a_word_for_nothing_is_told_with_what_there_is(words):
    known = "body.0, body.1, head.0, head.2, conv, bias, norm, linear, last"
    with pytest.raises(UsageError, match=f"there are: {re.escape(known)}"):
        parts.parts(NET, words)


def test_something_must_be_left_to_share():
    with pytest.raises(UsageError, match="nothing is left to share"):
        parts.parts(NET, "body,head")


@pytest.mark.parametrize("words", ["last", "norm", "bias", "body.0,head.2.bias", "head"])
def test_parts_cover_theta_once_and_come_together_again(words):
    p, theta = parts.parts(NET, words), np.arange(float(NET.size))
    shared, personal = parts.taken(theta, p.shared), parts.taken(theta, p.personal)
    assert sorted([*shared, *personal]) == list(theta)
    assert parts.size(p.shared) == len(shared) and parts.size(p.personal) == len(personal)
    assert (parts.joined(p, shared, personal) == theta).all()
    assert all(a.stop < b.start for where in (p.shared, p.personal) for a, b in pairwise(where))


def test_the_loss_along_a_part():
    f, where = PROBLEMS["d0"], (slice(3, 5), slice(20, 26))
    theta = np.random.default_rng(0).normal(size=46)
    loss, gradient = parts.along(f, theta, where)(np.full(8, 0.5), np.arange(9))
    moved = theta.copy()
    moved[3:5] = moved[20:26] = 0.5
    assert loss == f(moved, np.arange(9))[0]
    assert gradient.tolist() == np.concatenate([f(moved, np.arange(9))[1][w] for w in where]).tolist()


def test_a_shared_part_of_another_length_is_refused():
    env = FEDPER.env(layout=NET, theta0=np.zeros(NET.size), settings=Settings(), me="d", samples=3)
    s, _ = FEDPER.device.start(env)
    with pytest.raises(PeerError, match="up sent 124 numbers, expected 126"):
        FEDPER.device.receive(env, s, "up", SharedPart(np.zeros(124), 0, 1))
    with pytest.raises(PeerError, match="h sent 140 numbers, expected 126"):
        partial.gathered(env, None, "h", uploads.VectorSum(np.zeros(140), 1.0))
    with pytest.raises(ValueError, match="141 shared numbers, the model has 140"):
        SharedPart(np.zeros(141), 0, 1).check(NET)
