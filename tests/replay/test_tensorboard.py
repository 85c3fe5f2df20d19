"""Event files, read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorboard", reason="event files are TensorBoard's")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from edge_sdk.errors import UsageError
from edge_sdk.replay.reports import tensorboard
from tests.replay.test_charts import RESULT

STATISTICS = {"all": {"devices": 1, "models": {"personalised": {"accuracy": 0.75, "macro_f1": 0.5}}}}


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    first, last, end = RESULT["curve"]
    result = {**RESULT, "statistics": STATISTICS, "curve": [{**first, "sent_parameters": 40}, last, end]}
    tensorboard.write_events(result, tmp_path / "run")
    found = EventAccumulator(str(tmp_path / "run"))
    found.Reload()
    points = {tag: [(e.step, e.wall_time, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert points == {
        "loss": [(1, 3.0, 2.0)],
        "bytes": [(1, 3.0, 5.0), (1, 4.0, 6.0)],
        "numbers that travel down": [(1, 3.0, 40.0)],
        "accuracy in evaluations/global": [(1, 4.0, 0.25)],
        "accuracy in evaluations/personal": [(1, 4.0, 0.75)],
        "test, all/accuracy/personalised": [(1, 4.0, 0.75)],
        "test, all/macro_f1/personalised": [(1, 4.0, 0.5)],
    }


def test_without_the_package_it_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorboard.check_installed()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'auscult\[tensorboard\]'"):
        tensorboard.check_installed()
