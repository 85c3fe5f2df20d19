"""`auscult runs export`: the curves of a service's run for TensorBoard and MLflow."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.evaluation.reports import ACCURACY
from edge_sdk.replay.reports import mlflow_runs, tensorboard
from edge_sdk.replay.reports.scalars import Scalar

Add = Callable[..., argparse.ArgumentParser]
TAGS = {
    "loss": "loss",
    "global": "SCORE/global",
    "personal": "SCORE/personal",
    "devices": "devices",
    "seconds": "seconds",
    "bytes_down": "bytes/down",
    "bytes_up": "bytes/up",
}
"""Column of a run's table -> name of its curve; SCORE is what the run says that it is."""


def add_export(runs: Any, add: Add) -> None:
    """Add the command to those of `auscult runs`. `add`: as client.add."""
    command = add(runs, "export", export_run, "write a run's curves for TensorBoard or MLflow")
    command.add_argument("id")
    command.add_argument("--tensorboard", type=Path, metavar="DIR", help="event files, in a folder of the run's name")
    command.add_argument("--mlflow", metavar="URI", help="a folder, or the address of a tracking server")


def export_run(options: argparse.Namespace, client: Any) -> None:
    """Raises UsageError if nothing is named that is to be written, or it cannot be."""
    if options.tensorboard is None and options.mlflow is None:
        raise UsageError("runs export: say --tensorboard DIR or --mlflow URI")
    run = client.ask(f"/runs/{quote(options.id)}")
    points = list(list_points(run))
    if options.tensorboard is not None:
        tensorboard.write_points(points, options.tensorboard / run["id"])
        print(f"{run['id']}: {len(points)} points in {options.tensorboard / run['id']}")
    if options.mlflow is not None:
        number = mlflow_runs.write_run(options.mlflow, run["id"], run["wanted"], points)
        print(f"{run['id']}: {len(points)} points in run {number} of {options.mlflow}")


def list_points(run: Mapping[str, Any]) -> Iterator[Scalar]:
    """All points of the curves of a run, as the API describes it. A round is at the time at which it has ended."""
    at = float(run["started"] or run["created"])
    for row in run["curve"]:
        at += row["seconds"] or 0.0
        for column, tag in TAGS.items():
            if row[column] is not None:
                yield tag.replace("SCORE", run.get("score", ACCURACY)), int(row["round"]), at, float(row[column])
