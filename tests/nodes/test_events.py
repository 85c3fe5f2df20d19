"""What nodes say in their logs of answers that were not counted, and of training that went wrong."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from edge_sdk.methods.shared.guard import Refused
from edge_sdk.methods.shared.reports import Diverged
from edge_sdk.nodes.device import Device
from edge_sdk.nodes.hospital import Hospital

WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
WHERE = {"broker": "mqtt://127.0.0.1:1", "bundle": WRIST}


def test_a_hospital_names_the_device_and_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []
    hospital = Hospital(
        "north", aggregator="cloud", directory=tmp_path, devices=["watch-7"], on_event=told.append, **WHERE
    )
    refused = Refused("watch-7", "its length 4e+12 is over 3 times what is known so far, 20")
    with caplog.at_level(logging.WARNING):
        hospital.receive_event(1, refused)
    assert caplog.messages == [f"north: an answer of watch-7 was not counted: {refused.reason}"] and told == [refused]


def test_a_device_says_that_its_training_diverged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = Device("watch-7", hospital="north", directory=tmp_path, **WHERE)
    with caplog.at_level(logging.WARNING):
        device.receive_event(1, Diverged(4, "the personal component diverged; it begins at zero again"))
    assert caplog.messages == ["watch-7: round 4: the personal component diverged; it begins at zero again"]
