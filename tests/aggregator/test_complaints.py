"""What the aggregator notes of hospitals whose sums it does not count, or not as they claim; its settings for that."""

from __future__ import annotations

import json
import logging
from math import inf
from pathlib import Path

import pytest

from aggregator.aggregator import Aggregator
from aggregator.options import HospitalList
from aggregator.run_command import run_of
from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.aggregation.registration import Overclaimed
from edge_sdk.methods.shared.aggregation.suspension import Suspended
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.settings_files import AggregatorFile

WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
BUNDLE = read_bundle(WRIST)
CLASSES = tuple(f"c{i}" for i in range(BUNDLE.manifest["classes"]))


def aggregator(directory: Path, limits: Limits | None = None) -> Aggregator:
    run = Run(id="r", method="fedavg", bundle=BUNDLE.sha256, classes=CLASSES)
    where = {"broker": "mqtt://127.0.0.1:1", "bundle": WRIST, "directory": directory}
    hospitals = HospitalList({"north": 3, "south": 2}, deadline=inf, limits=limits or Limits())
    return Aggregator("cloud", run=run, hospitals=hospitals, **where)


def test_complaints_are_in_the_metrics_and_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cloud = aggregator(tmp_path)
    events = [Refused("north", "too long"), Suspended("north", 1, "too long"), Overclaimed("south", 900.0, 300.0)]
    with caplog.at_level(logging.WARNING):
        for number, event in enumerate(events):
            cloud.receive_event(number, event)
            cloud.receive_event(number, event)  # as after a crash
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["sender"]) for line in lines] == [
        ("refused", "north"),
        ("suspended", "north"),
        ("overclaimed", "south"),
    ]
    assert caplog.messages[0] == "cloud: an answer of north was not counted: too long"
    assert len(caplog.messages) == 6 and all(record.levelno == logging.WARNING for record in caplog.records)


def test_limits_reach_the_role_and_name_hospitals_that_there_are(tmp_path: Path) -> None:
    limits = Limits(samples={"north": 500}, suspend_after=4)
    assert aggregator(tmp_path / "a", limits).own_env.limits == limits
    with pytest.raises(UsageError, match=r"limits\.lift\.east: is none of north, south"):
        aggregator(tmp_path / "b", Limits(lift={"east": 1}))


def test_rules_in_place_of_plain_sums_come_from_the_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        f"""name = "cloud"
broker = "mqtt://127.0.0.1:1"
bundle = "{WRIST}"
directory = "state"
hospitals = {{ north = 3 }}

[run]
id = "r"
method = "fedavg"
classes = {json.dumps(CLASSES)}
robust = {{ rule = "clip", factor = 2.0 }}
uploads = {{ bits = 4 }}
"""
    )
    found = run_of(read_toml(path, AggregatorFile), tmp_path)
    assert found.robust == {"rule": "clip", "factor": 2.0} and found.uploads == {"bits": 4}
