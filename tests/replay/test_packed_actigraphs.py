"""Files of an Axivity that are packed by gzip: the same recording, also of one that is cut off, and none too large."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports import actigraph_files
from tests.replay.test_actigraphs import BEGAN, axivity, read


def test_a_packed_file_of_an_axivity_is_that_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    plain, values = axivity(tmp_path / "plain.cwa")
    packed = source / "eve.CWA.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert main(["traces", "import", str(source), str(tmp_path / "out")]) == 0
    trace = read_trace(tmp_path / "out" / "eve.csv")
    assert trace.began == BEGAN + 0.25 and np.array_equal(trace.values[:, :3], values.astype(np.float32))
    assert "eve.CWA.gz" in (tmp_path / "out" / "import.toml").read_text() and "tmp" not in capsys.readouterr().err
    whole = packed.read_bytes()
    for data, words in (
        (whole[:-2000], r"eve\.CWA\.gz: damaged, it cannot be unpacked: .*--damaged takes what is whole"),
        (b"MD" + whole, r"eve\.CWA\.gz: damaged, it cannot be unpacked: Not a gzipped file"),
        (gzip.compress(b"RIFF"), r"eve\.CWA\.gz: not a CWA file of an Axivity: it begins with b'RI'"),
    ):
        packed.write_bytes(data)
        with pytest.raises(UsageError, match=words):
            read(packed)
    packed.write_bytes(whole[:-2000])
    assert 0 < len(read(packed, damaged=True).time) < len(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actigraph_files, "MOST_UNPACKED", 3000)
        packed.write_bytes(whole)
        with pytest.raises(UsageError, match=r"eve\.CWA\.gz: more than 3,000 bytes unpacked"):
            read(packed)
