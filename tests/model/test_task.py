"""The task of a bundle: labels, targets, units, and what a manifest may say of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.task import OneClass, Values, read_task
from tests.values import BOTH, RATE


def test_a_label_becomes_a_target_and_a_prediction_is_in_the_unit_again() -> None:
    y = RATE.targets([72, "110.0", (180.0,), np.float32(40)], ["rate"], "device a")
    assert y.dtype == np.float32 and y.ravel() == pytest.approx([(72 - 110) / 70, 0, 1, -1])
    assert RATE.in_unit(y).ravel() == pytest.approx([72, 110, 180, 40])
    both = BOTH.targets(["72 5.0", (110, 10)], ["rate", "level"], "device a")
    assert both.ravel() == pytest.approx([(72 - 110) / 70, 0, 0, 1])


@pytest.mark.parametrize("label", ["walk", "", float("nan"), float("inf"), (72.0, 1.0), "72 1", None])
def test_what_is_no_number_is_named(label: Any) -> None:
    with pytest.raises(UsageError, match=r"device a: label .*, expected a finite number in bpm"):
        RATE.targets([72.0, label], ["rate"], "device a")
    assert RATE.listed([72.0, label], ["rate"]).tolist() == [True, False]


def test_labels_of_the_other_task_are_refused() -> None:
    with pytest.raises(UsageError, match="expected the name of one"):
        OneClass(3).write(72.0)
    with pytest.raises(UsageError, match="no class of this run"):
        OneClass(2).targets([72.0], ["a", "b"], "device a")
    assert OneClass(2).write("walk") == "walk"


def test_a_label_that_was_written_is_read_again() -> None:
    for label in (72.0, 0.1, 1e-9, -3):
        assert RATE.read(RATE.write(label)) == (float(label),)
    assert BOTH.read(BOTH.write((72.5, 3))) == (72.5, 3.0)


def test_without_a_range_the_network_works_on_the_numbers_themselves() -> None:
    plain = Values(("bpm",))
    assert plain.targets([72.5], [], "x").tolist() == [[72.5]] and plain.in_unit(np.array([[72.5]])).item() == 72.5


def test_scores_in_words_have_the_unit() -> None:
    assert RATE.describe({"global_mae:0": 0.1, "personal_mae:0": 0.05, "samples": 3.0}) == (
        "global off by 7 bpm, personal off by 3.5 bpm"
    )
    assert RATE.in_words(["rate"]) == "rate (bpm, 40 to 180)" and BOTH.in_words().endswith("level (0 to 10)")


@pytest.mark.parametrize("task", [RATE, BOTH, Values(("",))])
def test_a_manifest_keeps_it(task: Values) -> None:
    assert read_task(task.entry(), 0, [len(task.units)]) == task
    assert read_task(None, 5, [5]) == OneClass(5)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("value", "expected kind"),
        ({"kind": "forecast", "units": ["s"]}, "expected kind"),
        ({"kind": "value", "units": ["s"], "more": 1}, "expected kind"),
        ({"kind": "value", "units": []}, "0 values"),
        ({"kind": "value", "units": ["s", "s"]}, "an output of shape"),
        ({"kind": "value", "units": ["s"], "names": ["a", "b"]}, "2 names of 1 values"),
        ({"kind": "value", "units": ["s"], "low": [2.0], "high": [1.0]}, "the lower one first"),
        ({"kind": "value", "units": ["s"], "low": [2.0]}, "ends of ranges"),
        ({"kind": "value", "units": [5]}, "one text for each value"),
    ],
)
def test_a_manifest_that_is_wrong(entry: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_task(entry, 0, [1])


def test_spellings_of_a_class_are_one_unless_the_run_tells_them_apart() -> None:
    task = OneClass(3)
    assert task.listed(["Walk", " sit", "run"], ("walk", "Sit", "lie")).tolist() == [True, True, False]
    assert task.targets(["Walk", " sit"], ("walk", "Sit", "lie"), "here").tolist() == [0, 1]
    assert task.targets(["A", "a"], ("a", "A", "b"), "here").tolist() == [1, 0]
    assert task.targets(["ä", "Ä "], ("Ä", "ä"), "here").tolist() == [1, 0]
    assert task.listed(["wALK"], ("Walk", "walk")).tolist() == [False]
