"""What `auscult traces check` suspects, each in recordings that have it, and in none that have not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.data.traces.read import Trace, read_trace
from edge_sdk.replay.traces.mistakes import find_clock, find_mistakes

N, RATE = 3000, 20
GRAVITY = np.array([0.2, 0.3, 0.93])
NAMES = ("ann", "bob", "cat", "dan", "eve")


def trace_of(name: str, values: Any = None, **fields: Any) -> Trace:
    """A sensor that is worn as all of these are, at rest half of the time."""
    random = np.random.default_rng(len(name) + ord(name[0]))
    moving = random.normal(size=(N, 3)) * (np.arange(N) % 400 > 200)[:, None]
    made = (GRAVITY + 0.3 * moving + 0.01 * random.normal(size=(N, 3))).astype(np.float32)
    codes = (np.arange(N) // 500 % 2).astype(np.int64)
    rest = {"channels": ("ax", "ay", "az"), "codes": codes, "classes": ("sit", "walk"), "rate_hz": float(RATE)}
    found = {"name": name, "time": np.arange(N) / RATE, "values": made if values is None else values, "start": "0"}
    return Trace(**{**found, **rest, **fields})


def fleet(*, of: Trace | None = None) -> list[Trace]:
    return [of if of is not None and of.name == name else trace_of(name) for name in NAMES]


def values() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(trace_of("cat").values)


def stuck() -> Any:
    found = values()
    found[1000:2500] = found[1000]
    return found


def clipped() -> Any:
    return np.clip(values(), -0.3, 0.9)


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (trace_of("cat", values() * np.float32(9.81)), "accelerations are in g, but of cat in m/s2"),
        (trace_of("cat", values() * np.float32(0.5)), "cat: at rest its acceleration is 0.4"),
        (trace_of("cat", values()[:, [2, 1, 0]]), "cat: axes seem exchanged; as (az, ay, ax)"),
        (trace_of("cat", stuck()), "cat: all channels repeat one value for 75 s, from second 50"),
        (trace_of("cat", clipped()), "of az is at the end of its range"),
        (trace_of("cat", values() * np.float32([1, 0, 1])), "cat: channel ay is 0 all the time"),
        (trace_of("cat", trace_of("ann").values), "cat and ann are one recording under two names"),
        (
            trace_of("cat", time=np.arange(N) * 19.2, rate_hz=1 / 19.2),
            "cat: 0.052 samples per second, with times",
        ),
        (trace_of("cat", began=4e9), "cat: its clock says 2096"),
        (trace_of("cat", began=2e8), "cat: its clock says 1976"),
        (trace_of("cat", classes=("sit", "Walk")), "'Walk' is 'walk'; a replay takes these as one class"),
        (trace_of("cat", classes=("sit", "yawn")), "class yawn: only cat has it"),
        (
            trace_of("cat", codes=np.where(np.arange(N) < 9, 2, 0), classes=("sit", "walk", "yawn")),
            "class yawn: only 0.",
        ),
    ],
)
def test_what_is_suspected(trace: Trace, said: str) -> None:
    found = find_mistakes(fleet(of=trace))
    assert any(said in line for line in found), found


def test_nothing_is_suspected_of_recordings_that_are_right() -> None:
    assert find_mistakes(fleet()) == []


def test_a_folder_is_checked_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", "synth", str(tmp_path), "--devices", "3", "--minutes", "2"]) == 0
    lines = (tmp_path / "synth-02.csv").read_text().splitlines()
    (tmp_path / "synth-02.csv").write_text("\n".join([lines[0], *lines[1::2], "2024"]))
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "import.toml").write_text('[[device]]\nname = "synth-01"\nunits = { ax = "<g>" }\n')
    capsys.readouterr()
    assert main(["traces", "check", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for words in (
        "synth-02  16 Hz",
        "ax (<g>)",
        "probably wrong: synth-02: 16 Hz, most have 32",
        "the file ends within",
    ):
        assert words in said
    page = (tmp_path / "check.html").read_text()
    assert "synth-03" in page and "empty.csv" in page and "http" not in page and "<script" not in page
    assert "&lt;g&gt;" in page and page.count("<rect ") >= len(set(read_trace(tmp_path / "synth-01.csv").classes))
    assert main(["traces", "check", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["devices"]) == 3 and found["devices"][0]["percentiles"]["ax"][0] < 0


def test_a_sample_each_minute_is_not_taken_for_milliseconds() -> None:
    assert not find_clock(trace_of("cat", time=np.arange(N) * 60.0, rate_hz=1 / 60))
    assert not find_clock(trace_of("cat", time=np.arange(N) * 19.2, rate_hz=1 / 19.2, began=1.7e9))


def test_sets_of_labels_are_looked_at_label_by_label() -> None:
    codes = (np.arange(N) // 500 % 3).astype(np.int64)
    named = {name: trace_of(name, codes=codes, classes=("af", "af+pvc", "none")) for name in NAMES}
    assert not find_mistakes([*named.values()])
    named["cat"] = trace_of("cat", codes=codes, classes=("af+st", "none", "pvc + st"))
    assert find_mistakes([*named.values()]) == ["label st: only cat has it"]
