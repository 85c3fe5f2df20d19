"""The application of the README on an aarch64 processor: killed, labelled late, trained, given a new model."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.replay.nodes.broker import find_mosquitto
from tests.hardware.aarch64.machine import Aarch64
from tests.system.app_process import play

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")


def test_the_application_of_the_readme_lives_on_aarch64(aarch64: Aarch64, tmp_path: Path) -> None:
    """Its sensor's time passes ten times as fast as ours; the processor is emulated, and slower."""
    play(tmp_path, speed=10, stretches=8, machine=aarch64, patience=600)
