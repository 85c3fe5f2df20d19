"""The script for a machine with a GPU works from end to end before there is one, with the smallest sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(["thresholding", "discriminator"], id="kernels"),
        pytest.param(["together", "race"], id="clients", marks=pytest.mark.long),
    ],
)
def test_parts_of_it_end_with_figures(parts: list[str], tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    command = [sys.executable, "benchmarks/gpu.py", "--small", "--json", str(out), "--part", *parts]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(out.read_text())
    assert set(found) == {"machine", *parts} and all(found[part]["found"] for part in parts)
