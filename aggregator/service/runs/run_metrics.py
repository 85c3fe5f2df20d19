"""What a run has come to so far, read from the aggregator's own files while it writes them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from edge_sdk.methods.shared.aggregation.scores import TEST
from edge_sdk.methods.shared.evaluation.reports import ACCURACY, mean_accuracies, mean_loss, mean_macro_f1, share_name

Line = Mapping[str, Any]
METRICS = "metrics.jsonl"
ERROR = "mean absolute error"
"""What is told of models that predict values, in their units."""
NO_COMPLAINTS = ("round", "evaluation", "finished", "settling", "self-labels", "stage", "rollout")


@dataclass
class RunLines:
    """The lines of a run's metrics, read on from where the last reading ended.

    Attributes:
        read: bytes that have been read.
    """

    path: Path
    read: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read_on(self) -> None:
        """Read what has come since. A line that is being written waits for the next time. From any thread."""
        with self.lock:
            self.read_more()

    def read_more(self) -> None:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            size = 0
        if size < self.read:
            self.read, self.lines = 0, []  # a crash had cut a line off, and it was removed
        if size == self.read:
            return
        with self.path.open("rb") as file:
            file.seek(self.read)
            whole, _, _ = file.read().rpartition(b"\n")
        for line in whole.splitlines() if whole else ():
            self.read += len(line) + 1
            try:
                found = json.loads(line)
            except ValueError:
                continue  # damaged; the aggregator puts it aside
            if isinstance(found, dict) and isinstance(found.get("kind"), str):
                self.lines.append(found)

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == "round"]

    @property
    def round(self) -> int:
        """Rounds that are over."""
        return int(self.rounds[-1]["round"]) if self.rounds else 0

    @property
    def finished(self) -> bool:
        return any(line["kind"] == "finished" for line in self.lines)

    @property
    def complaints(self) -> list[dict[str, Any]]:
        """What the aggregator had to say about its hospitals."""
        return [line for line in self.lines if line["kind"] not in NO_COMPLAINTS]

    def latest_accuracies(self) -> dict[str, float]:
        """Model -> mean accuracy over devices, of the latest line that has any."""
        for line in reversed(self.lines):
            if found := accuracies_of(line):
                return found
        return {}

    def latest_macro_f1(self) -> dict[str, float]:
        """Model -> mean macro-F1 over devices, of the latest line that has any; none where labels are in no sets."""
        every = (without_test(mean_macro_f1(line.get("sums", {}))) for line in reversed(self.lines))
        return next(filter(None, every), {})

    def latest_errors(self) -> dict[str, Any]:
        """Mean absolute errors of models that predict values, of the latest line that has any.

        Returns:
            "errors": model -> name of a value -> its error (None: that is no number), "units": of each value.
        """
        told: Line = next((line for line in reversed(self.lines) if errors_of(line)), {})
        return {"errors": errors_of(told), "units": list(told.get("units", ()))}

    @property
    def score(self) -> str:
        """What these accuracies are called, see `share_name`; ERROR where there are errors in their place."""
        for line in reversed(self.lines):
            if accuracies_of(line):
                return share_name(line)
            if errors_of(line):
                return ERROR
        return ACCURACY

    def latest_loss(self) -> float | None:
        return next((loss for line in reversed(self.lines) if (loss := mean_loss(line)) is not None), None)

    def seconds_per_round(self) -> float | None:
        """Mean over the latest ten rounds; None: fewer than two are over."""
        times = [line["time"] for line in self.rounds[-11:]]
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


def accuracies_of(line: Line) -> dict[str, float]:
    """Model -> mean accuracy over devices, on the samples by which rounds are judged."""
    return without_test(mean_accuracies(line.get("sums", {})))


def errors_of(line: Line) -> dict[str, dict[str, float | None]]:
    """Model -> name of a value -> mean absolute error in its unit; None: that is no number."""
    found = {
        model: {n: e if isfinite(e) else None for n, e in own.items()} for model, own in line.get("errors", {}).items()
    }
    return {model: own for model, own in found.items() if not model.startswith(TEST)} if line.get("units") else {}


def without_test(found: Mapping[str, float]) -> dict[str, float]:
    """Scores of models but those on test samples."""
    return {name: share for name, share in found.items() if not name.startswith(TEST)}
