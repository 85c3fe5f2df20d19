"""Memory that an import needs: a day's rows are not held twice."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.replay.imports import columns, recording
from edge_sdk.replay.imports.columns import read_columns_file
from edge_sdk.replay.imports.importing import describe_trace, trace_of
from edge_sdk.replay.imports.recording import Recorded
from tests.actigraphs import SECTOR, write_cwa, write_geneactiv, write_gt3x

ROWS, BEGAN = 60_000, 1_714_489_200


def peak(read: Callable[[], Recorded]) -> float:
    """Bytes for a row, at most, that numpy and Python hold until the trace is there and described."""
    tracemalloc.start()
    try:
        describe_trace(trace_of(read(), "a", Stated()), Path("a"), None, None)
        return tracemalloc.get_traced_memory()[1] / ROWS
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("kind", "most"), [("gt3x", 42), ("bin", 56), ("cwa", 52)])
def test_an_actigraphs_rows_are_held_once(
    kind: str, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of three values is 36 bytes as a trace; light and temperature are 8."""
    pytest.importorskip("actfast")
    from edge_sdk.replay.imports import actigraph_files, actigraphs
    from edge_sdk.replay.imports.actigraphs import read_actigraph

    for module, name in ((recording, "BLOCK"), (actigraphs, "BLOCK"), (actigraph_files, "CHUNK")):
        monkeypatch.setattr(module, name, 512, raising=False)
    values = np.random.default_rng(1).uniform(-1, 1, (ROWS, 3))
    size = {"gt3x": 100, "bin": 300, "cwa": SECTOR}[kind]
    parts = [(BEGAN + at / 100, values[at : at + size]) for at in range(0, ROWS, size)]
    path = tmp_path / f"a.{kind}"
    if kind == "gt3x":
        write_gt3x(path, [(int(at), own) for at, own in parts], 100)
    elif kind == "bin":
        write_geneactiv(path, [(at, own, 20.0, 30.0) for at, own in parts], 100)
    else:
        write_cwa(path, [(at, own, 3, 30.0) for at, own in parts])
    read_actigraph(path, "a", Stated(), Repairs(path))  # what is imported is not counted
    assert peak(lambda: read_actigraph(path, "a", Stated(), Repairs(path))) < most


def test_a_table_of_columns_is_read_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    monkeypatch.setattr(columns, "BLOCK", 512, raising=False)
    random, path = np.random.default_rng(1), tmp_path / "a.parquet"
    table = {"time": BEGAN + np.arange(ROWS) / 100, **{c: random.normal(size=ROWS).astype("f4") for c in ("ax", "ay")}}
    parquet.write_table(arrow.table({**table, "activity": ["walk", None, "sit"] * (ROWS // 3)}), path)
    list(read_columns_file(path, "a", Stated()))
    assert peak(lambda: next(iter(read_columns_file(path, "a", Stated())))) < 50
