"""A service's run for TensorBoard, read back by its own reader, and what is said where nothing can be written."""

from __future__ import annotations

from argparse import Namespace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aggregator.service.client.run_export import export_run
from edge_sdk.errors import UsageError
from tests.aggregator.service.console.test_pages import fill


def test_the_curves_of_a_run_are_written_for_tensorboard(browse: Any, service: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="event files are TensorBoard's")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    id, browser = fill(service, rounds=3), browse("viewer")
    client = SimpleNamespace(ask=lambda path: browser.get(f"/api/v1{path}").json())
    export_run(Namespace(id=id, tensorboard=tmp_path, mlflow=None), client)
    found = EventAccumulator(str(tmp_path / id))
    found.Reload()
    points = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert points["loss"] == [(1, 0.5), (2, 0.5), (3, 0.5)] and points["accuracy/personal"][0] == (1, 0.75)
    assert points["bytes/up"] == [(1, 0.0), (2, 1000.0), (3, 1000.0)] and points["seconds"] == [(2, 5.0), (3, 5.0)]
    times = [event.wall_time for event in found.Scalars("loss")]
    assert [round(b - a, 3) for a, b in pairwise(times)] == [5.0, 5.0]


def test_somebody_says_what_is_to_be_written() -> None:
    with pytest.raises(UsageError, match="--tensorboard DIR or --mlflow URI"):
        export_run(Namespace(id="x", tensorboard=None, mlflow=None), None)
