"""The benchmark of one hospital with many devices plays its run to the end: real broker and nodes, scripted devices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edge_sdk.replay.nodes.broker import find_mosquitto

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")


def test_scripted_devices_answer_all_rounds() -> None:
    command = [sys.executable, "benchmarks/fan_in.py", "--devices", "4", "--rounds", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["asked"] == [4, 4] and found["seconds"] > 0
