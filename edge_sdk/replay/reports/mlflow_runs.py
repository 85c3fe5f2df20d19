"""Curves and settings of a run for MLflow, through its own client: into a folder, or to a tracking server.

    auscult replay --mlflow mlruns        auscult runs export ID --mlflow http://127.0.0.1:5000

Nothing but the run is sent anywhere: what the package tells its makers of its use is switched off here. Its store in a
folder is in maintenance, so it has to be asked for; what is in it is read by every version there is.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.replay.reports.scalars import Scalar

EXPERIMENT = "auscult"
BATCH = 500  # values of one call; a server takes 1,000
QUIET = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
"""Environment of the package, which reads it when it is loaded."""
UNFIT = re.compile(r"[^\w\-. /:]")
"""Characters that a name in MLflow cannot have."""


def check_installed() -> None:
    """Raises UsageError if nothing can be written for MLflow here: better before a run than after it."""
    if importlib.util.find_spec("mlflow") is None:
        raise UsageError("--mlflow needs the package mlflow-skinny: pip install 'auscult[mlflow]'")


def write_run(uri: str, name: str, settings: Mapping[str, Any], points: Iterable[Scalar]) -> str:
    """Writes one run, and returns its id in MLflow. Writing it once more makes another one.

    Args:
        uri: a folder, or the address of a tracking server.
        settings: what the run was asked for, by name.
        points: all points of all curves.

    Raises:
        UsageError: nothing can be written there.
    """
    check_installed()
    os.environ |= QUIET
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    metrics = [Metric(UNFIT.sub("", tag), value, int(1000 * at), step) for tag, step, at, value in points]
    times = [metric.timestamp for metric in metrics] or [0]
    try:
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(EXPERIMENT)
        experiment = client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
        run = client.create_run(experiment, start_time=min(times), run_name=name).info.run_id
        client.log_batch(run, params=[Param(key, str(value)[:500]) for key, value in flatten(settings)])
        rest = iter(metrics)
        while batch := list(islice(rest, BATCH)):
            client.log_batch(run, metrics=batch)
        client.set_terminated(run, "FINISHED", max(times))
    except (MlflowException, OSError) as error:
        raise UsageError(f"--mlflow {uri}: cannot be written: {str(error).splitlines()[0]}") from error
    return str(run)


def flatten(settings: Mapping[str, Any], start: str = "") -> Iterable[tuple[str, Any]]:
    """Settings with the names of tables before them, as `settings.eta_l`; empty ones are left out."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{start}{key}.")
        elif value not in ("", [], (), None):
            yield f"{start}{key}", value
