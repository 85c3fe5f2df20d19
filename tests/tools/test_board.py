"""`auscult board`, as its user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.tools.board import BATCHES, list_batches, list_threads
from tests.hardware.boards.fake_root import lay, lay_raspberry

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
PARAMETERS = 77518


def board(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own, whose memory is not that of all other tests."""
    command = [sys.executable, "-m", "edge_sdk.cli", "board", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_raspberry_is_recognised_and_a_round_is_forecast(tmp_path: Path) -> None:
    root = lay_raspberry(tmp_path)
    done = board(BUNDLE, "--root", root, "--json", "--samples", 100, "--epochs", 2)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["board"]["profile"]["key"] == "raspberry-pi-4"
    assert shown["telemetry"]["throttled"] == ["undervoltage", "throttled"]
    found = shown["calibration"]
    chosen, forecast = found["chosen"], found["forecast"]
    assert chosen in found["costs"] and {c["batch"] for c in found["costs"]} == {8, 16, 32, 64}
    assert forecast["steps"] == 2 * -(-100 // chosen["batch"])
    assert forecast["seconds"] == pytest.approx(forecast["steps"] * chosen["seconds"])
    assert chosen["source"].startswith("modelled:")
    watts = forecast["joules"] / forecast["seconds"]
    assert 3.1 <= watts <= 3 * 6.1  # what lies between the steps of a busy machine is measured, too
    assert 4 * PARAMETERS < forecast["bytes_up"] < 4 * PARAMETERS + 5000
    assert 60 < forecast["memory_mb"] < found["room"]["free_mb"] == 450


def test_for_people_with_a_counter_of_energy(tmp_path: Path) -> None:
    lay(lay_raspberry(tmp_path), {"sys/class/hwmon/hwmon3/power1_input": 2_000_000})
    done = board(BUNDLE, "--root", tmp_path, "--samples", 8)
    assert done.returncode == 0, done.stderr
    assert "energy: measured:" in done.stdout and "<- chosen" in done.stdout
    assert "throttling        undervoltage, throttled (before: undervoltage, throttled)" in done.stdout


def test_the_figures_of_another_board_are_not_this_machines_times(tmp_path: Path) -> None:
    lay(tmp_path, {"proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 8000000 kB"})
    done = board(BUNDLE, "--board", "raspberry-pi-zero-2w", "--root", tmp_path, "--samples", 8)
    assert done.returncode == 0, done.stderr
    assert "Times are of this machine, not of raspberry-pi-zero-2w" in done.stdout
    assert "energy unknown" in done.stdout and "of 512 (all memory of the smallest" in done.stdout


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", str(BUNDLE), "--memory", "31", "--samples", "10"]) == 1
    said = capsys.readouterr().err
    assert "does not fit" in said and "31 MB (--memory)" in said


def test_a_model_that_grows_too_large_is_ended_before_the_kernel_does_it(tmp_path: Path) -> None:
    """Room for the interpreter, but not for onnxruntime: only a look at the running process can find that."""
    done = board(BUNDLE, "--memory", 75, "--samples", 10, "--root", lay_raspberry(tmp_path))
    assert done.returncode == 1
    assert "does not fit: a training step takes more than 45 MB" in done.stderr and "75 MB (--memory)" in done.stderr


def test_batches_are_measured_as_far_as_they_fit(tmp_path: Path) -> None:
    """In a process of its own: the fork that measures begins with the memory of its parent."""
    script = f"""
import json
from pathlib import Path
from edge_sdk.tools.profiling.guarded_steps import measure_steps
from edge_sdk.hardware.boards.profile import find_profile
bundle, root, pi = Path({str(BUNDLE)!r}), Path({str(tmp_path)!r}), find_profile("raspberry-pi-4")
free = measure_steps(bundle, 1, [8, 64], 500, pi, root)
tight = measure_steps(bundle, 1, [8, 16, 64], (free[0].peak_mb + free[1].peak_mb) / 2, pi, root)
print(json.dumps([[(c.batch, c.peak_mb) for c in costs] for costs in (free, tight)]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    free, tight = json.loads(done.stdout)
    assert [batch for batch, _ in free] == [8, 64] and free[1][1] > free[0][1] + 2
    assert tight[0][0] == 8 and 64 not in [batch for batch, _ in tight]


def test_a_broken_bundle_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.bundle"
    broken.write_bytes(BUNDLE.read_bytes()[:-7])
    assert main(["board", str(broken)]) == 2
    assert "broken.bundle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--samples", "0"], "--samples 0"),
        (["--memory", "-1"], "--memory -1"),
        (["--root", "/nowhere"], "/nowhere"),
        (["--board", "raspbery"], "raspberry-pi-4"),
    ],
)
def test_misuse_is_told(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_what_is_measured() -> None:
    assert [list_threads(cores) for cores in (1, 2, 4, 6)] == [[1], [1, 2], [1, 2, 4], [1, 2, 4, 6]]
    assert list_batches(64, 1000) == [8, 16, 32, 64] and list_batches(500, 1000) == list(BATCHES)
    assert list_batches(64, 5) == [5] and list_batches(4, 100) == [4]
