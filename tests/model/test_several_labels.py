"""The task of several labels: texts and sets, targets, what a manifest and a compilation say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_sdk.data.samples import Samples, read_labels, write_labels
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.several_labels import SeveralLabels, names_in
from edge_sdk.model.tasks.task import read_task
from tests.label_sets import FINDINGS


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("af+pvc", {"af", "pvc"}),
        ("pvc + AF", {"af", "pvc"}),
        ("none", set()),
        ("NONE", set()),
        ("noise", {"noise"}),
        ({"af"}, {"af"}),
        (frozenset(), set()),
        (("noise", "af"), {"af", "noise"}),
    ],
)
def test_a_set_is_read(label: Any, found: set[str]) -> None:
    assert FINDINGS.read(label) == found
    y = FINDINGS.targets([label], FINDINGS.names, "device a")
    assert y.dtype == np.float32 and y.tolist() == [[float(n in found) for n in ("af", "pvc", "noise")]]
    assert FINDINGS.read(FINDINGS.write(label)) == found, "what is written beside a window is read again"


@pytest.mark.parametrize("label", ["", "walk", "af+", "af+none", 72.0, None, {"walk"}])
def test_what_is_no_set_is_named(label: Any) -> None:
    assert FINDINGS.listed(["af", label], ()).tolist() == [True, False]
    with pytest.raises(
        UsageError, match=r"device a: label .*, expected a set of af, pvc, noise, such as 'af' or 'none'"
    ):
        FINDINGS.targets([label], (), "device a")


NFC, NFD = "caf\u00e9", "cafe\u0301"


@pytest.mark.parametrize(
    "label", [NFC, NFD, f" {NFD} ", f"{NFD}+af", {f"{NFC} "}, "\uff43\uff41\uff46\u00c9\u3000", "CAFE\u0301"]
)
def test_one_name_in_several_forms_is_one_label(label: Any) -> None:
    """Forms of Unicode, widths, spaces around a name, upper and lower case; of the names of a task as of labels."""
    for name in (NFC, NFD, f" {NFD}"):
        task = SeveralLabels((name, "af"))
        assert task.names == (NFC, "af") and task == SeveralLabels((NFC, "af"))
        assert NFC in (task.read(label) or ()), name
    assert len(names_in([NFC, label, "af"])) == 2 and NFC in names_in([NFC, label])


@pytest.mark.parametrize("twice", [(NFC, NFD), ("af", "\uff41\uff46"), ("af", " af")])
def test_names_that_are_one_label_are_there_twice(twice: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="twice"):
        SeveralLabels(twice)


@pytest.mark.parametrize("name", ["a+b", "a,b", "a\uff0bb", "a\uff0cb", "none", "NONE ", " "])
def test_a_name_that_would_be_read_as_something_else_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"joins labels, a comma divides names, 'none' is no label"):
        SeveralLabels((name, "c"))
    with pytest.raises(UsageError, match="joins labels"):
        Samples(np.zeros((1, 2), np.float32), ({name},))  # type: ignore[arg-type]


def test_no_label_and_the_empty_set_stay_apart() -> None:
    samples = Samples(np.zeros((4, 2), np.float32), (set(), "", {NFD, NFC}, "none"))  # type: ignore[arg-type]
    found = read_labels(write_labels(samples.labels))
    assert found == ("none", "", NFC, "none")
    assert SeveralLabels((NFC, "af")).listed(found, ()).tolist() == [True, False, True, True]


def test_a_manifest_keeps_it() -> None:
    assert read_task(FINDINGS.entry(), 0, [3]) == FINDINGS and FINDINGS.in_words() == "several labels (af, pvc, noise)"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"kind": "labels"}, "expected kind = 'labels' and names"),
        ({"kind": "labels", "names": ["a", "b"]}, "2 labels, but an output of shape"),
        ({"kind": "labels", "names": ["a", "A", "b"]}, "twice"),
        ({"kind": "labels", "names": ["a+b", "c", "d"]}, "joins labels"),
        ({"kind": "labels", "names": ["None", "c", "d"]}, "is no label"),
        ({"kind": "labels", "names": []}, "0 labels"),
        ({"kind": "labels", "names": [f"l{k}" for k in range(65)]}, "65 labels"),
    ],
)
def test_a_manifest_that_is_wrong(entry: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_task(entry, 0, [3])


def test_names_in_data() -> None:
    assert names_in(["af+pvc", "none", "AF", frozenset({"noise"})]) == ("af", "noise", "pvc")


def test_samples_take_sets_and_files_keep_them() -> None:
    samples = Samples(np.zeros((3, 2), np.float32), ({"pvc", "af"}, set(), {"noise"}))  # type: ignore[arg-type]
    assert samples.labels[0] == frozenset({"af", "pvc"})
    assert read_labels(write_labels(samples.labels)) == ("af+pvc", "none", "noise")


def test_what_says_the_same_of_each_sample_is_what_most_have() -> None:
    y = np.array([[1, 0], [1, 0], [1, 1], [0, 0]], np.float32)
    assert (SeveralLabels(("a", "b")).baseline(y) > 0).tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name the labels in the order of the outputs"),
        (
            ("--names", "a,b,c", "--loss", "cross_entropy"),
            "loss cross_entropy with task labels: expected binary_cross_entropy",
        ),
        (("--names", "a,b,c", "--unit", "bpm"), "--unit and --range are of values"),
        (("--names", "a,b,c", "--classes", "3"), "--task labels: it has no classes"),
        (("--names", "a,b,none"), "is no label"),
        (("--names", "a,b"), "2 outputs are named"),
    ],
)
def test_a_compilation_that_cannot_be(words: tuple[str, ...], said: str, tmp_path: Any, capsys: Any) -> None:
    pytest.importorskip("torch", reason="bundles are compiled here")
    from edge_sdk.models.cli import main

    net = tmp_path / "net.py"
    net.write_text("from torch import nn\n\n\ndef Net():\n    return nn.Linear(4, 3)\n")
    given = ["compile", f"{net}:Net", "--input", "4", "--task", "labels", *words, "-o", str(tmp_path / "x.bundle")]
    assert main(given) != 0 and said in capsys.readouterr().err
