"""Names in sets of labels, from a file to the labels of a cohort: forms of Unicode, separators, sets and no label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.samples import Samples, store_samples
from edge_sdk.data.traces.form import Stated
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.several_labels import SeveralLabels
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.imports.columns import read_columns_file
from edge_sdk.replay.labels.asked import asked_labels
from tests.label_sets import write_cells


@pytest.mark.parametrize(
    ("text", "cells", "stated", "said"),
    [
        ("af,pvc", ["af;pvc", "af"], "+", "expected '+' between labels; where it is ';', say so: --separator ';'"),
        ("af,pvc", ["af|pvc", "af"], ";", "expected ';' between labels; where it is '|', say so: --separator '|'"),
        ("af,pvc", ["af, pvc", "af"], "+", "where it is ',', say so: --separator ','"),
        ("all", ["af;pvc", "noise"], "+", "expected '+' between labels; where it is ';', say so: --separator ';'"),
        ("all", ["af/pvc", "af", "pvc"], "+", "where it is '/', say so: --separator '/'"),
        ("af,pvc", ["af+pvc", "af"], "|", "'af+pvc' with separator '|': no label may have a '+' in it; expected '|' "
         "between labels, or no separator stated where it is '+'"),
    ],
)  # fmt: skip
def test_another_separator_is_told_how_to_be_said(
    tmp_path: Path, text: str, cells: list[str], stated: str, said: str
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in "abc":
        write_cells(folder / f"{name}.csv", [f'"{cell}"' for cell in cells * 4])
    options = {"labels": text, "separator": stated, "label": "labels", "window": 10, "stride": 10}
    with pytest.raises(UsageError) as error:
        form_cohort(str(folder), 1, 0, options)
    assert said in str(error.value)


def test_a_name_of_two_parts_that_is_named_is_one_label() -> None:
    assert asked_labels("af/flutter,pvc", ["af/flutter", "pvc"]) == SeveralLabels(("af/flutter", "pvc"))
    assert asked_labels("all", ["af/flutter", "pvc"]) == SeveralLabels(("af/flutter", "pvc"))


def test_names_in_two_forms_are_one_label_of_a_cohort(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name, cell in (("a", "caf\u00e9"), ("b", "cafe\u0301"), ("c", " CAF\u00c9"), ("d", "\uff43\uff41\uff46\u00e9")):
        write_cells(folder / f"{name}.csv", [f"{cell}+pvc", "none", cell, ""] * 3)
    found = form_cohort(str(folder), 1, 0, {"labels": "all", "label": "labels", "window": 10, "stride": 10})
    assert len(found.classes) == 2 and found.classes[1] == "pvc"


def test_samples_that_are_ready_may_lack_labels(tmp_path: Path) -> None:
    """What nobody has looked at is not the empty set, and is left out of training and judging."""
    x = np.zeros((4, 3), np.float32)
    part = Samples(x, ({"af"}, set(), "", {"af", "pvc"}))  # type: ignore[arg-type]
    store_samples(tmp_path / "a.npz", part, part)
    found = form_cohort(str(tmp_path), 1, 0, {"labels": "all"})
    assert found.classes == ("af", "pvc")


def test_lists_in_a_column_of_a_file_are_sets(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="files of Arrow")
    import pyarrow.feather

    cells = [["af", "pvc"], [], None, ["af"]]
    table = pa.table(
        {"time": np.arange(400) / 10, "ecg": np.arange(400) % 7 * 1.0, "labels": [cells[n // 100] for n in range(400)]}
    )
    pyarrow.feather.write_feather(table, tmp_path / "a.feather")
    (one,) = read_columns_file(tmp_path / "a.feather", "a", Stated(label="labels", separator="|"))
    assert [one.rows.words[code] for code in one.rows.codes[::100]] == ["af|pvc", "none", "", "af"]
