"""Recordings of other formats, made here by their own writers or their descriptions, imported and read back."""

from __future__ import annotations

import os
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import read_trace
from edge_sdk.data.traces.repairs import Repairs
from edge_sdk.errors import UsageError
from edge_sdk.replay.imports import columns as columns_files
from edge_sdk.replay.imports import recording
from edge_sdk.replay.imports.importing import import_traces

N = 400
VALUES = np.round(np.random.default_rng(2).normal(size=(N, 2)), 4).astype(np.float32)
EPOCH = 1_700_000_000


def lines_of(rate: float = 20, began: float = EPOCH, header: str = "time,ax,ay,activity") -> list[str]:
    words = ["walk"] * (N // 2) + ["sit"] * (N // 4) + [""] * (N // 4)
    rows = enumerate(zip(VALUES.tolist(), words, strict=True))
    return [header, *(f"{began + i / rate:.3f},{x:.4f},{y:.4f},{word}" for i, ((x, y), word) in rows)]


def test_a_folder_of_csv_becomes_traces_that_say_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "left").mkdir(parents=True)
    (source / "anna b.csv").write_text("\n".join(lines_of()))
    german = "\n".join(["Timestamp;ax;ay;Label", *lines_of()[1:]]).replace(",", ";").replace(".", ",")
    (source / "left" / "p7.txt").write_text(german + "\n1;2")
    (source / "notes.csv").write_text("who,what\nann,left\nbob,right\n")
    assert main(["traces", "import", str(source), str(out)]) == 0
    said = capsys.readouterr().out
    for words in (
        "20 Hz  ax, ay",
        "walk, sit       25%",
        "left-p7: cells are divided by semicolons; decimal commas",
        "1 row left out: the file ends within this line (first: line 402 '1;2')",
        "left out",
        "notes.csv",
        "2 traces in",
    ):
        assert words in said
    for name in ("anna-b", "left-p7"):
        trace = read_trace(out / f"{name}.csv", strict=True)
        assert trace.began == EPOCH and np.array_equal(trace.values, VALUES) and trace.classes == ("sit", "walk")
        assert not trace.told and (trace.codes[-100:] == -1).all()
    notes = tomllib.loads((out / "import.toml").read_text())
    assert notes["command"].startswith("auscult traces import") and len(notes["device"]) == 2
    assert notes["device"][1]["repairs"] and len(notes["device"][0]["sha256"]) == 64 and len(notes["left_out"]) == 1
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    assert main([*notes["command"].split()[1:2], "import", str(source), str(out), "--overwrite"]) == 0
    assert {f.name: f.read_bytes() for f in out.iterdir() if f.suffix == ".csv"}.items() <= before.items()


def test_a_file_of_many_devices(tmp_path: Path) -> None:
    lines = lines_of()
    rows = [f"{line},{'ann' if i % 3 else 'bob'}" for i, line in enumerate(lines[1:])]
    (tmp_path / "all.csv").write_text("\n".join([lines[0] + ",subject", *rows]))
    made, _ = import_traces(tmp_path / "all.csv", tmp_path / "out", Stated(by="subject"))
    assert [line.name for line in made] == ["ann", "bob"] and sum(line.samples for line in made) == N
    assert np.array_equal(read_trace(tmp_path / "out" / "bob.csv").values, VALUES[::3])


def folder_of_recordings(folder: Path, *began: float, header: str = "time,ax,ay,activity") -> None:
    folder.mkdir(parents=True)
    for n, start in enumerate(began):
        (folder / f"{n}_watch.csv").write_text("\n".join(lines_of(began=start, header=header)))
        (folder / f"{n}_phone.csv").write_text("\n".join(lines_of(began=start)))


def test_the_files_of_a_folder_are_one_device_in_the_order_of_their_times(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    folder_of_recordings(source / "day 1" / "ann", EPOCH + 100, EPOCH)  # the later one has the first name
    folder_of_recordings(source / "day 1" / "bob", EPOCH, EPOCH + 7)  # recordings of 20 s
    said = Stated(by_folder=True, only="*_watch.csv")
    made, left = import_traces(source, out, said)
    assert [line.name for line in made] == ["day-1-ann"] and made[0].gaps == 1 and made[0].notes[0] == "2 recordings"
    trace = read_trace(out / "day-1-ann.csv", strict=True)
    assert trace.began == EPOCH and np.array_equal(trace.values, np.tile(VALUES, (2, 1)))
    assert np.array_equal(np.unique(trace.codes), [-1, 0, 1]) and trace.time[N] == pytest.approx(100)
    assert "1_watch.csv: begins before" in left[0] and "bob" in left[0]
    notes = tomllib.loads((out / "import.toml").read_text())
    assert notes["options"] == {"by_folder": True, "only": "*_watch.csv", "labels": True, "separator": "+"}
    with pytest.raises(UsageError, match=r"none of 8 recordings is named '\*_ring.csv'; the first: 0_phone.csv"):
        import_traces(source, tmp_path / "none", Stated(only="*_ring.csv"))
    with pytest.raises(UsageError, match="devices are told apart by one of them"):
        Stated(by="subject", by_folder=True)


def test_files_without_a_header_times_and_dates(tmp_path: Path) -> None:
    rows = [",".join(line.split(",")[1:]) for line in lines_of()[1:]]
    for name, own in (("1.txt", rows), ("0.txt", rows[::-1]), ("2.txt", [*rows[:3], "1,oops,walk", "", *rows[3:]])):
        (tmp_path / "source" / "ann").mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / "ann" / name).write_text("\n".join(own) + "\n")
    said = Stated(by_folder=True, header=("ax", "ay", "activity"), rows_hz=20)
    made, _ = import_traces(tmp_path / "source", tmp_path / "out", said)
    trace = read_trace(tmp_path / "out" / "ann.csv", strict=True)
    assert np.array_equal(trace.values[: 2 * N], np.vstack([VALUES[::-1], VALUES])) and trace.rate_hz == pytest.approx(
        20
    )
    assert trace.time[N] == pytest.approx((N - 1) / 20 + 60) and len(trace.time) == 3 * N and made[0].gaps == 2
    assert "recordings have no dates; they are in the order of their names, 60 s apart" in made[0].notes
    assert "1 row left out: column ay is no finite number" in made[0].repairs
    file = tmp_path / "source" / "ann" / "2.txt"
    with pytest.raises(UsageError, match=r"2\.txt line 5: a line without anything"):  # the line of the file
        import_traces(file, tmp_path / "strict", Stated(header=said.header, rows_hz=20, strict=True))
    file.write_text("\n".join([*rows[:3], "1,2", *rows[3:]]))
    with pytest.raises(UsageError, match=r"line 4: '1,2' 2 cells, expected 3;"):  # as it is in the file
        import_traces(file, tmp_path / "strict", Stated(header=said.header, rows_hz=20, strict=True))
    for wrong, words in ((Stated(), "--header NAMES"), (Stated(header=said.header), "--rows-hz HZ")):
        with pytest.raises(UsageError, match=words):
            import_traces(file, tmp_path / "none", wrong)
    with pytest.raises(UsageError, match="rows_hz = -1"):
        Stated(rows_hz=-1)


def test_recordings_of_a_folder_have_dates_and_the_same_channels(tmp_path: Path) -> None:
    folder_of_recordings(tmp_path / "a" / "ann", 0, EPOCH)
    with pytest.raises(UsageError, match=r"0_watch\.csv: no date, as other files of"):
        import_traces(tmp_path / "a", tmp_path / "one", Stated(by_folder=True, only="*_watch.csv"))
    folder_of_recordings(tmp_path / "b" / "ann", EPOCH)
    (tmp_path / "b" / "ann" / "9_watch.csv").write_text(
        "\n".join(lines_of(began=EPOCH + 50, header="time,ax,gx,activity"))
    )
    with pytest.raises(UsageError, match=r"channels ax, gx; 0_watch.csv has ax, ay \(--channels NAMES\)"):
        import_traces(tmp_path / "b", tmp_path / "two", Stated(by_folder=True, only="*_watch.csv"))


def test_values_survive_to_their_last_bit(tmp_path: Path) -> None:
    odd = np.random.default_rng(1).normal(size=(50, 1)).astype(np.float32) * np.float32(1e-7)
    (tmp_path / "a.csv").write_text("time,x\n" + "".join(f"{i},{v:.9g}\n" for i, v in enumerate(odd[:, 0].tolist())))
    import_traces(tmp_path / "a.csv", tmp_path / "out")
    assert np.array_equal(read_trace(tmp_path / "out" / "a.csv").values, odd)


def test_strict_names_the_first_thing_that_would_be_put_right(tmp_path: Path) -> None:
    lines = lines_of()
    lines[7] = "x" + lines[7]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(UsageError, match="line 8"):
        import_traces(tmp_path / "a.csv", tmp_path / "out", Stated(strict=True))
    assert import_traces(tmp_path / "a.csv", tmp_path / "out")[0][0].repairs[0].startswith("1 row left out: no time")


@pytest.mark.parametrize("inner", [".", "out"])
def test_sources_are_never_replaced(tmp_path: Path, inner: str) -> None:
    (tmp_path / "a.csv").write_text("\n".join(lines_of()))
    with pytest.raises(UsageError, match="another place"):
        import_traces(tmp_path, tmp_path / inner, overwrite=True)


def test_an_hour_that_a_night_has_twice(tmp_path: Path) -> None:
    began = datetime(2023, 10, 29, 0, 30, tzinfo=UTC).timestamp()  # 02:30 in Berlin; the clock goes back at 01:00 UTC
    offsets = [7200 if began + 10 * i < began + 1800 else 3600 for i in range(N)]
    local = [datetime.fromtimestamp(began + 10 * i + offset, UTC).isoformat()[:19] for i, offset in enumerate(offsets)]
    rows = [f"{when},{x:.4f}" for when, x in zip(local, VALUES[:, 0].tolist(), strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["time,x", *rows]))
    import_traces(tmp_path / "a.csv", tmp_path / "out", Stated(zone="Europe/Berlin"))
    trace = read_trace(tmp_path / "out" / "a.csv")
    assert trace.began == began and trace.time == pytest.approx(10 * np.arange(N))
    naive = read_trace(tmp_path / "a.csv")  # without a zone the clock was set back, and that is told
    assert "the clock was set back" in naive.told and len(naive.time) == N
    with pytest.raises(UsageError, match="IANA"):
        import_traces(tmp_path / "a.csv", tmp_path / "more", Stated(zone="Europe/Nowhere"))


@pytest.mark.parametrize("second", [False, True])
def test_one_of_two_hours_was_recorded(tmp_path: Path, second: bool) -> None:
    began = datetime(2023, 10, 29, 1 if second else 0, 10, tzinfo=UTC).timestamp()  # 02:10, the one or the other
    hours = 2 if second else 1  # the second one goes on into three o'clock; the first ends before the clock goes back
    n = int(hours * 3600 / 10) - 120 * (not second)
    rows = [
        f"{datetime.fromtimestamp(began + 10 * i + (3600 if second else 7200), UTC).isoformat()[:19]},{i}"
        for i in range(n)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["time,x", *rows]))
    import_traces(tmp_path / "a.csv", tmp_path / "out", Stated(zone="Europe/Berlin"))
    assert read_trace(tmp_path / "out" / "a.csv").began == began


def write_empatica(folder: Path) -> None:
    folder.mkdir(parents=True)

    def write(name: str, rate: float, rows: list[str], width: int = 1) -> None:
        head = [",".join([f"{value}"] * width) for value in (f"{EPOCH}.000000", f"{rate}")]
        (folder / name).write_text("\n".join([*head, *rows]) + "\n")

    write("ACC.csv", 32, [f"{i % 64},-64,0" for i in range(320)], 3)
    write("HR.csv", 1, [f"{60 + i}" for i in range(10)])
    write("BVP.csv", 64, [f"{i / 10}" for i in range(640)])
    (folder / "tags.csv").write_text(f"{EPOCH + 2}.0\n{EPOCH + 4}.5\n")


def test_a_folder_of_an_empatica(tmp_path: Path) -> None:
    write_empatica(tmp_path / "source" / "p1")
    made, _ = import_traces(tmp_path / "source", tmp_path / "out")
    trace = read_trace(tmp_path / "out" / "p1.csv")
    assert trace.channels == ("ax", "ay", "az", "bvp", "hr") and trace.rate_hz == 64 and trace.began == EPOCH
    assert trace.values[:4, 0] * 64 == pytest.approx([0, 0.5, 1, 1.5]) and (trace.values[:, 1] == -1).all()
    assert trace.values[32, 4] == 60.5 and "hr: 1 Hz made 64 Hz" in " ".join(made[0].notes)
    assert trace.time[trace.codes == 0][[0, -1]] == pytest.approx([2, 4.5 - 1 / 64]) and made[0].units["hr"] == "bpm"
    (tmp_path / "source" / "p1" / "HR.csv").write_text("time\n1\n")
    with pytest.raises(UsageError, match=r"HR.csv"):
        import_traces(tmp_path / "source", tmp_path / "more")


def test_a_table_that_says_it_has_billions_of_numbers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 MB of Parquet may have 400 million rows of nothing."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"time": [0.0, 1.0, 2.0], "ax": [1.0, 2.0, 3.0]}), tmp_path / "a.parquet")
    monkeypatch.setattr(recording, "MOST_NUMBERS", 5)
    with pytest.raises(UsageError, match="3 rows of 2 columns; expected 5 numbers at most"):
        list(columns_files.read_columns_file(tmp_path / "a.parquet", "a", Stated()))


def signal_of(name: str, times: list[float]) -> recording.RecordedSignal:
    return recording.RecordedSignal((name,), np.array(times), np.zeros((len(times), 1)))


def test_many_slow_signals_beside_a_fast_one_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MB of EDF with one signal of 8 million samples and 250 of one each took 8 GB."""
    monkeypatch.setattr(recording, "MOST_NUMBERS", 11)
    fast, slow = signal_of("fast", [0.0, 0.1, 0.2, 0.3]), [signal_of(f"s{n}", [0.0, 1.0]) for n in range(2)]
    with pytest.raises(UsageError, match=r"a\.edf: 4 rows of 3 columns; expected 11 numbers at most"):
        recording.join_signals([fast, *slow], Repairs(tmp_path / "a.edf", False))
    assert recording.join_signals([fast, slow[0]], Repairs(tmp_path / "a.edf", False)).values.shape == (4, 2)


def test_a_signal_whose_times_are_all_the_same_has_no_rate(tmp_path: Path) -> None:
    """As of a start at 1e308, beyond which no float64 counts seconds: that was a division by zero."""
    repairs = Repairs(tmp_path, False)
    recording.join_signals([signal_of("a", [1e308] * 4), signal_of("b", [1e308] * 3)], repairs)
    assert "b: inf Hz made inf Hz" in repairs.notes[0]


def test_parquet_and_feather(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    from pyarrow import feather, parquet

    moments = (np.array(EPOCH, "M8[s]").astype("M8[ms]") + np.arange(N) * np.timedelta64(50, "ms")).astype("M8[ns]")
    columns = {
        "Timestamp": arrow.array(moments, arrow.timestamp("ns", "UTC")),
        "ax": arrow.array([None, *VALUES[1:, 0].tolist()]),
        "ay": VALUES[:, 1],
        "note": ["x"] * N,
        "label": arrow.array(["walk", None] * (N // 2)).dictionary_encode(),
    }
    (tmp_path / "source").mkdir()
    parquet.write_table(arrow.table(columns), tmp_path / "source" / "a.parquet")
    feather.write_feather(arrow.table(columns), tmp_path / "source" / "b.feather")
    made, _ = import_traces(tmp_path / "source", tmp_path / "out")
    for line in made:
        assert line.repairs == ("1 row left out: no number in ax (first: line 1)",)
        assert any("column note left out" in note for note in line.notes)
    for trace in load_folder(tmp_path / "out"):
        assert np.array_equal(trace.values, VALUES[1:]) and trace.began == EPOCH + 0.05
        assert trace.codes.tolist()[:3] == [-1, 0, -1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pandas, which wfdb uses
def test_wfdb_in_several_segments_formats_and_rates(tmp_path: Path) -> None:
    wfdb = pytest.importorskip("wfdb", "4.2", reason="wfdb 4.2, which writes frames, is not installed")
    folder, there = tmp_path / "source", os.getcwd()
    folder.mkdir()
    os.chdir(folder)  # its writer knows no folders in names of records
    try:
        wave = np.sin(np.arange(1000) / 10)
        both = {"units": ["mV", "mV"], "sig_name": ["a", "b"]}
        for name, form in (("r16", "16"), ("r80", "80"), ("r24", "24"), ("cut", "16")):
            wfdb.wrsamp(name, fs=100, p_signal=np.stack([wave, -wave], 1), fmt=[form] * 2, **both)
        parts = {"e_p_signal": [wave[:400], wave[:100]], "samps_per_frame": [4, 1], "p_signal": None}
        wfdb.wrsamp("frames", fs=10, fmt=["16", "16"], **parts, **both)
        wfdb.wrann("r16", "atr", np.array([100, 500]), symbol=["+", "+"], aux_note=["(N", "(AFIB"])
    finally:
        os.chdir(there)
    (folder / "two.hea").write_text("two/2 2 100 2000\nr16 1000\nr16 1000\n")
    (folder / "cut.dat").write_bytes((folder / "cut.dat").read_bytes()[:1601])
    (folder / "up.hea").write_text("up/1 2 100 1000\n../source/r16 1000\n")
    made, left = import_traces(folder, tmp_path / "out")
    found = {trace.name: trace for trace in load_folder(tmp_path / "out")}
    assert (
        [line.samples for line in made] == [400, 400, 1000, 1000, 1000, 2000] and len(left) == 1 and "up.hea" in left[0]
    )
    assert {line.name: line.notes for line in made}["cut"] == ("cut short: 400 of 1000 samples are there",)
    assert found["r24"].values[:, 0] == pytest.approx(wave, abs=1e-4)
    words = [found["r16"].classes[code] if code >= 0 else "" for code in found["r16"].codes]
    assert words == [""] * 100 + ["N"] * 400 + ["AFIB"] * 500
    with pytest.raises(UsageError, match="cut short"):
        import_traces(folder, tmp_path / "more", Stated(strict=True))


def test_windows_that_are_ready_become_streams(tmp_path: Path) -> None:
    folder, stream = tmp_path / "UCI HAR", np.round(np.random.default_rng(3).normal(size=(2, 3, 192)), 4)
    (folder / "train" / "Inertial Signals").mkdir(parents=True)
    windows = [(stream[0], 5, 0), (stream[0], 5, 32), (stream[0], 5, 64), (stream[1], 4, 0), (stream[1], 4, 32)]
    for axis, name in enumerate(("acc_x", "acc_y", "acc_z")):
        rows = [" ".join(f"{v:.4f}" for v in one[axis, at : at + 64]) for one, _, at in windows]
        (folder / "train" / "Inertial Signals" / f"{name}_train.txt").write_text("\n".join(rows))
    (folder / "train" / "y_train.txt").write_text("\n".join(str(code) for _, code, _ in windows))
    (folder / "train" / "subject_train.txt").write_text("7\n" * len(windows))
    (folder / "activity_labels.txt").write_text("4 SITTING\n5 STANDING\n")
    made, _ = import_traces(folder, tmp_path / "out")
    trace = read_trace(tmp_path / "out" / "subject-07.csv")
    assert trace.channels == ("acc_x", "acc_y", "acc_z") and made[0].gaps == 1
    assert trace.rate_hz == pytest.approx(50)
    assert np.array_equal(trace.values, np.concatenate([stream[0, :, :128], stream[1, :, :96]], 1).T.astype(np.float32))
    assert trace.classes == ("sitting", "standing") and trace.codes.tolist() == [1] * 128 + [0] * 96
    (folder / "train" / "y_train.txt").write_text("5\n")
    with pytest.raises(UsageError, match="a whole one for each of 5 windows"):
        import_traces(folder, tmp_path / "more")
