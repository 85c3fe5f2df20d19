from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.data.traces import load_folder
from edge_sdk.errors import UsageError
from tests.data.trace_making import write_csv

HEADER = "time,ax,activity"


def test_traces_come_by_name_with_one_numbering_of_classes(tmp_path: Path) -> None:
    write_csv(tmp_path / "b.csv", HEADER, "0,1,walk", "1,2,eat")
    write_csv(tmp_path / "a.csv", HEADER, "0,1,sit", "1,2,walk")
    (tmp_path / "notes.txt").write_text("not a trace")
    a, b = load_folder(tmp_path)
    assert (a.name, b.name) == ("a", "b") and a.classes == b.classes == ("eat", "sit", "walk")
    assert a.codes.tolist() == [1, 2] and b.codes.tolist() == [2, 0]
    assert [t.name for t in load_folder([tmp_path / "b.csv", tmp_path / "a.csv"])] == ["a", "b"]


@pytest.mark.parametrize(
    ("header", "second", "words"),
    [
        ("time,ay,activity", "1", "has channels ay but"),
        (HEADER, "0.5", "has 2.00 samples per second but"),
    ],
)
def test_files_that_do_not_fit_are_both_named(tmp_path: Path, header: str, second: str, words: str) -> None:
    a = write_csv(tmp_path / "a.csv", HEADER, "0,1,walk", "1,2,eat")
    b = write_csv(tmp_path / "b.csv", header, "0,1,walk", f"{second},2,eat")
    with pytest.raises(UsageError) as error:
        load_folder(tmp_path)
    assert words in str(error.value) and str(a) in str(error.value) and str(b) in str(error.value)


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace"):
        load_folder(tmp_path)
    with pytest.raises(UsageError, match="not a folder"):
        load_folder(tmp_path / "missing")
    one = write_csv(tmp_path / "a.csv", HEADER, "0,1,walk", "1,2,eat")
    with pytest.raises(UsageError, match="names the device"):
        load_folder([one, one])
