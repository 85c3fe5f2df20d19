"""EDF files as recorders write them: with gaps, cut, annotated, of 24 bits, with odd headers."""

from __future__ import annotations

import struct
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.edf import read_edf, read_edf_file
from edge_sdk.hardware.sensors.wfdb import read_wfdb
from edge_sdk.replay.imports.importing import import_traces
from tests.hardware.sensors.test_recordings import HEADER, lay_record, make_edf


def annotated(reserved: str, starts: list[float]) -> bytes:
    """Records of 2 s of one signal, 4 numbers each, whose annotations say when they begin; sleep from second 2 to 6."""
    lists = [f"+{start:g}\x14\x14\0".encode() for start in starts]
    lists[0] += b"+2\x154\x14sleep\x14\0+3\x14cough\x14\0"
    signals = [("EEG", "uV", "-100", "100", 4), ("EDF Annotations", "", "-1", "1", 32)]
    head = "".join(w.ljust(n) for w, n in zip(("0", "", "", "24.12.01", "12.30.05"), (8, 80, 80, 8, 8), strict=True))
    head += f"{256 * 3:<8}{reserved:<44}{len(starts):<8}{2:<8}{2:<4}"
    columns = [[s[0] for s in signals], [""] * 2, *([str(s[k]) for s in signals] for k in (1, 2, 3))]
    columns += [["-2048"] * 2, ["2047"] * 2, [""] * 2, [str(s[4]) for s in signals], [""] * 2]
    widths = (16, 80, 8, 8, 8, 8, 8, 80, 8, 32)
    head += "".join(cell.ljust(n) for column, n in zip(columns, widths, strict=True) for cell in column)
    body = (struct.pack("<4h", *range(4 * n, 4 * n + 4)) + text.ljust(64, b"\0") for n, text in enumerate(lists))
    return head.encode() + b"".join(body)


def test_a_recording_with_gaps_and_annotations(tmp_path: Path) -> None:
    (tmp_path / "a.edf").write_bytes(annotated("EDF+D", [0, 2, 60, 62.5]))
    found = read_edf_file(tmp_path / "a.edf")
    assert found.began.tolist() == [0, 2, 60, 62.5]
    assert found.annotations == ((2, 4, "sleep"), (3, 0, "cough"))
    with pytest.raises(UsageError, match="gaps"):
        read_edf(tmp_path / "a.edf")
    made, _ = import_traces(tmp_path / "a.edf", tmp_path / "out", Stated(zone="Europe/Berlin"))
    trace = read_trace(tmp_path / "out" / "a.csv")
    assert trace.began == 1009197005 - 3600 and trace.time.tolist()[7:10] == [3.5, 60, 60.5]
    assert trace.codes.tolist() == [-1] * 4 + [0] * 4 + [-1] * 8 and trace.classes == ("sleep",)
    assert made[0].gaps == 1 and "1 annotations of a moment are no labels" in made[0].notes
    whole = annotated("EDF+C", [0, 2])
    (tmp_path / "b.edf").write_bytes(whole)
    assert read_edf(tmp_path / "b.edf").rate_hz == 2


def test_annotations_that_overlap_are_told_or_sets(tmp_path: Path) -> None:
    whole, cough = annotated("EDF+C", [0, 2, 4]), b"+3\x14cough\x14\0\0\0"
    assert cough in whole
    (tmp_path / "a.edf").write_bytes(whole.replace(cough, b"+3\x152\x14cough\x14\0"))
    made, _ = import_traces(tmp_path / "a.edf", tmp_path / "out")
    assert any(note.startswith("4 rows have several labels at once") for note in made[0].notes)
    import_traces(tmp_path / "a.edf", tmp_path / "sets", Stated(sets=True))
    assert read_trace(tmp_path / "sets" / "a.csv").classes == ("cough+sleep", "sleep")


def test_a_file_that_is_cut_gives_its_whole_records_and_tells(tmp_path: Path) -> None:
    (tmp_path / "a.edf").write_bytes(make_edf(records=5)[:-30])
    made, _ = import_traces(tmp_path / "a.edf", tmp_path / "out")
    assert made[0].samples == 12 and made[0].notes[0].startswith("cut short: 3 of 5 records")
    with pytest.raises(UsageError, match="cut short"):
        import_traces(tmp_path / "a.edf", tmp_path / "more", Stated(strict=True))


def test_headers_that_are_not_quite_right(tmp_path: Path) -> None:
    (tmp_path / "comma.edf").write_bytes(make_edf().replace(b"-100    ", b"-100,5  ").replace(b"100     ", b"100,5   "))
    assert read_edf_file(tmp_path / "comma.edf").columns[0][1] == pytest.approx(100.5)
    blank = make_edf().replace(b"EOG", b"-  ", 1)
    (tmp_path / "blank.edf").write_bytes(blank)
    found = read_edf_file(tmp_path / "blank.edf")
    assert [signal.label for signal in found.signals] == ["EEG Fpz-Cz"] and "holds nothing" in found.notes[0]
    twice = make_edf().replace(b"EEG Fpz-Cz", b"EOG       ", 1)
    (tmp_path / "twice.edf").write_bytes(twice)
    assert [signal.label for signal in read_edf_file(tmp_path / "twice.edf").signals] == ["EOG", "EOG-2"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"-100    ", b"nan     ", "values from nan"),
        (b"-100    ", b"-inf    ", "values from -inf"),
        (b"-100    ", b"100     ", "two different numbers"),
        (b"3       " + b" " * 96, b"-3      " + b" " * 96, "-3 samples"),
        (b"2       3   ", b"inf     3   ", "records of inf s"),
        (b"2       3   ", b"0       3   ", r"records of 0.0 s"),
    ],
)
def test_numbers_that_make_no_samples_are_refused(tmp_path: Path, old: bytes, new: bytes, said: str) -> None:
    data = make_edf()
    assert old in data
    (tmp_path / "x.edf").write_bytes(data.replace(old, new, 1))
    with pytest.raises(UsageError, match=said):
        read_edf_file(tmp_path / "x.edf")


def test_signals_of_several_rates_share_one_clock(tmp_path: Path) -> None:
    (tmp_path / "a.edf").write_bytes(make_edf(records=4, second_rate=2))
    made, _ = import_traces(tmp_path / "a.edf", tmp_path / "out")
    trace = read_trace(tmp_path / "out" / "a.csv")
    assert trace.channels == ("EEG Fpz-Cz", "EOG") and trace.rate_hz == 2 and len(trace.time) == 16
    assert trace.values[:4, 1] == pytest.approx([-1, 0, 1, 0], abs=1e-3) and "EOG: 1 Hz made 2 Hz" in made[0].notes[0]
    made, _ = import_traces(tmp_path / "a.edf", tmp_path / "eog", Stated(channels=("EOG",)))
    assert made[0].channels == ("EOG",) and made[0].rate_hz == 1


@pytest.mark.parametrize("kind", ["edf", "bdf"])
def test_what_the_writer_of_a_library_writes(tmp_path: Path, kind: str) -> None:
    pyedflib = pytest.importorskip("pyedflib", reason="pyedflib is not installed")
    wave = np.round(np.sin(np.arange(500) / 9) * 80, 2)
    form = pyedflib.FILETYPE_BDFPLUS if kind == "bdf" else pyedflib.FILETYPE_EDFPLUS
    with pyedflib.EdfWriter(str(tmp_path / f"a.{kind}"), 1, form) as file:
        most = 2**23 - 1 if kind == "bdf" else 2**15 - 1
        limits = {"physical_min": -100, "physical_max": 100, "digital_min": -most, "digital_max": most}
        file.setSignalHeader(0, {"label": "ECG", "dimension": "uV", "sample_frequency": 50, "prefilter": "",
                                 "transducer": "", **limits})  # fmt: skip
        file.writeSamples([wave])
        file.writeAnnotation(2.0, 4.0, "walk")
    found = read_edf_file(tmp_path / f"a.{kind}")
    assert found.columns[0] == pytest.approx(wave, abs=1e-4 if kind == "bdf" else 4e-3)
    assert found.annotations == ((2, 4, "walk"),) and not found.notes


@pytest.mark.skipif(find_spec("pyedflib") is None, reason="pyedflib, which brings them, is not installed")
def test_files_that_a_library_brings(tmp_path: Path) -> None:
    import pyedflib

    for file in sorted((Path(pyedflib.__file__).parent / "tests" / "data").glob("*.?df")):
        found, reader = read_edf_file(file), pyedflib.EdfReader(str(file))
        own = [n for n, label in enumerate(reader.getSignalLabels()) if "Annotations" not in label]
        assert len(own) == len(found.signals)
        for column, n in zip(found.columns, own, strict=True):
            assert np.allclose(column, reader.readSignal(n), atol=1e-9)
        onsets, _, texts = reader.readAnnotations()
        if len(onsets):  # the library takes those of plain EDF for none, and counts from the first sample
            assert [text for _, _, text in found.annotations] == texts.tolist()
            assert [at - found.began[0] for at, _, _ in found.annotations] == pytest.approx(onsets, abs=1e-6)
        reader.close()


def test_a_header_of_wfdb_that_promises_more_than_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cut short: 4 of 1000 samples"):
        read_wfdb(lay_record(tmp_path, HEADER.replace("360 4", "360 1000")))
    with pytest.raises(UsageError, match="gain"):
        read_wfdb(lay_record(tmp_path, HEADER.replace("200(1024)", "1e999(1024)")))
