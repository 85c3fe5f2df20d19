from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.split import split
from edge_sdk.data.traces.windows import cut_windows
from edge_sdk.errors import UsageError
from edge_sdk.replay.traces.motions import ACTIVITIES, RATE, sense, walk
from edge_sdk.replay.traces.synth import MARK, RANGE, STEP, draw_person, make_bouts, write_traces


def digest(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.csv"))}


def test_generated_traces_say_so(tmp_path: Path) -> None:
    write_traces(tmp_path, devices=1, minutes=1)
    assert "generated, not recorded" in (tmp_path / MARK).read_text()


def test_same_seed_same_bytes_and_other_seed_other_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        write_traces(tmp_path / name, devices=2, seed=seed, minutes=1)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert not set(digest(tmp_path / "a").values()) & set(digest(tmp_path / "c").values())


def test_a_device_is_the_same_however_many_there_are(tmp_path: Path) -> None:
    write_traces(tmp_path / "one", devices=1, minutes=1)
    write_traces(tmp_path / "two", devices=2, minutes=1)
    assert digest(tmp_path / "one").items() <= digest(tmp_path / "two").items()


def test_the_summary_is_what_the_files_hold_and_every_device_can_be_split(tmp_path: Path) -> None:
    told = write_traces(tmp_path, devices=4, minutes=4)
    traces = load_folder(tmp_path)
    assert [t.name for t in traces] == [s.device for s in told] == [f"synth-{k:02d}" for k in range(1, 5)]
    for trace, summary in zip(traces, told, strict=True):
        whole = cut_windows(trace)
        train, test = split(whole)
        assert len(train) and len(test) and not test.note
        assert (len(trace.time), len(trace.time) / RATE) == (summary.samples, summary.seconds)
        assert sum(summary.activities.values()) == len(np.unique(whole.recording))
        assert {trace.classes[c] for c in trace.codes} == set(summary.activities) <= set(ACTIVITIES)
        assert trace.rate_hz == pytest.approx(RATE) and trace.channels == ("ax", "ay", "az")


def test_an_existing_file_is_never_overwritten_unasked(tmp_path: Path) -> None:
    write_traces(tmp_path, devices=1, minutes=1)
    before = digest(tmp_path)
    with pytest.raises(UsageError, match="not empty"):
        write_traces(tmp_path, devices=1, seed=8, minutes=1)
    assert digest(tmp_path) == before
    write_traces(tmp_path, devices=1, seed=8, minutes=1, overwrite=True)
    assert digest(tmp_path) != before
    with pytest.raises(UsageError, match="not a directory"):
        write_traces(tmp_path / "synth-01.csv")


@pytest.mark.parametrize("wrong", [{"devices": 0}, {"minutes": 0.0}, {"minutes": float("nan")}, {"seed": -1}])
def test_numbers_are_checked(tmp_path: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        write_traces(tmp_path, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_steps_of_a_walk_have_the_persons_frequency(seed: int) -> None:
    rng = np.random.default_rng(seed)
    person = draw_person(rng)
    found = [dominant_hz(np.linalg.norm(sense(walk(person, 1024, rng)), axis=1)) for _ in range(5)]
    resolution, variation = RATE / 1024, 0.02 * person.step_hz
    assert np.median(found) == pytest.approx(person.step_hz, abs=resolution + 2 * variation)


def dominant_hz(signal: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft((signal - signal.mean()) * np.hanning(len(signal))))
    return float(np.fft.rfftfreq(len(signal), 1 / RATE)[spectrum.argmax()])


def test_a_hand_at_rest_feels_one_g_and_a_moving_one_more_and_less() -> None:
    rng = np.random.default_rng(3)
    seen: dict[str, list[np.ndarray]] = {}
    for name, values in (bout for _ in range(8) for bout in make_bouts(draw_person(rng), 4, rng)):
        seen.setdefault(name, []).append(np.linalg.norm(values, axis=1))
    assert set(seen) == set(ACTIVITIES)
    for name, norms in seen.items():
        middles, spreads = [np.median(norm) for norm in norms], [np.std(norm) for norm in norms]
        # Of the recorded traces: medians of an activity 0.95 to 1.06, of a single bout 0.91 to 1.09.
        assert np.median(middles) == pytest.approx(1, abs=0.1), name
        if name in ("lie_bed", "sit_chair"):
            assert middles == pytest.approx(np.ones(len(middles)), abs=0.06) and max(spreads) < 0.07
        elif name != "brush_teeth":  # strokes of a vigorous person are as strong as gravity and lift the norm
            assert middles == pytest.approx(np.ones(len(middles)), abs=0.25), name
        if name in ("walk", "descend_stairs"):
            assert min(spreads) > 0.07


def test_values_are_steps_of_the_sensor() -> None:
    rng = np.random.default_rng(4)
    for _, values in make_bouts(draw_person(rng), 1, rng):
        assert np.abs(values).max() <= RANGE + 1e-9
        steps = (values + RANGE) / STEP
        assert np.allclose(steps, np.round(steps))
