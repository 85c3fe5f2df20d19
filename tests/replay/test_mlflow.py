"""Runs for MLflow, read back by its own client. What needs no package is tested without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.replay.reports import mlflow_runs
from edge_sdk.replay.reports.scalars import scalars
from tests.replay.test_charts import RESULT

STATISTICS = {"all": {"devices": 1, "models": {"personalised": {"accuracy": 0.75, "macro_f1": 0.5}}}}


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the export says to the package ends with the test."""
    for name in mlflow_runs.QUIET:
        monkeypatch.setenv(name, "")
    yield


@pytest.mark.long
def test_what_is_written_is_what_is_read(tmp_path: Path, own_environment: None) -> None:
    pytest.importorskip("mlflow", reason="runs are MLflow's")
    first, last, end = RESULT["curve"]
    result = {**RESULT, "statistics": STATISTICS, "curve": [{**first, "sent_parameters": 40}, last, end]}
    uri = str(tmp_path / "mlruns")
    settings = {"method": "fedslr", "settings": {"eta_l": 0.1}, "id": ""}
    run = mlflow_runs.write_run(uri, "mine", settings, scalars(result))
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.get_run(run)
    assert found.info.run_name == "mine" and found.info.status == "FINISHED"
    assert found.data.params == {"method": "fedslr", "settings.eta_l": "0.1"}
    points: dict[str, Any] = {
        tag: [(m.step, m.timestamp, m.value) for m in client.get_metric_history(run, tag)] for tag in found.data.metrics
    }
    assert points == {
        "loss": [(1, 3000, 2.0)],
        "bytes": [(1, 3000, 5.0), (1, 4000, 6.0)],
        "numbers that travel down": [(1, 3000, 40.0)],
        "accuracy in evaluations/global": [(1, 4000, 0.25)],
        "accuracy in evaluations/personal": [(1, 4000, 0.75)],
        "test all/accuracy/personalised": [(1, 4000, 0.75)],
        "test all/macro_f1/personalised": [(1, 4000, 0.5)],
    }
    mlflow_runs.write_run(uri, "second", {}, [("loss", i, float(i), 1.0) for i in range(1200)])
    experiment = client.get_experiment_by_name(mlflow_runs.EXPERIMENT)
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(r.info.run_name for r in runs) == ["mine", "second"]
    with pytest.raises(UsageError, match="cannot be written"):
        (tmp_path / "file").write_text("")
        mlflow_runs.write_run(str(tmp_path / "file"), "third", {}, [])


def test_settings_are_flat_and_empty_ones_left_out() -> None:
    table = {"a": 1, "b": {"c": 2, "d": {}}, "e": "", "f": [], "g": False}
    assert dict(mlflow_runs.flatten(table)) == {"a": 1, "b.c": 2, "g": False}


def test_without_the_package_it_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'auscult\[mlflow\]'"):
        mlflow_runs.check_installed()
