"""A run's models predict only where they are not worse, on the device's own samples, than those before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk import Device, Samples
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.nodes.models.last_line import ModelsDeclined
from tests.nodes.models.test_versions import NAMES, WRIST, X

MANY = Samples(X, tuple(NAMES[0] if i < 30 else NAMES[1] for i in range(40)))
EVEN = Samples(X, tuple(NAMES[0] if i < 23 else NAMES[1] for i in range(40)))


class Told(Device):
    """A device that keeps what it is told."""

    def __init__(self, directory: Path, validation: Samples | None = MANY) -> None:
        self.events = list[object]()
        place = {"hospital": "h", "broker": "mqtt://127.0.0.1:1", "bundle": WRIST, "directory": directory}
        super().__init__("d1", **place, on_event=self.events.append)  # type: ignore[arg-type]
        self.train_on(MANY, None, validation)

    def saying(self, code: int) -> np.ndarray:
        """Parameters of a model that says one class of everything."""
        theta = self.model.theta0.copy()
        theta[self.model.layout.size - self.model.classes + code] = 1e4
        return theta

    def hear(self, run: str, code: int, over: bool = True) -> None:
        """A run tells its models, which say that class of everything."""
        self.assemble(Run(id=run, method="fedavg", bundle=self.model.sha256, classes=NAMES))
        self.receive_event(1, Models(1, {"global": self.saying(code)}))
        if over:
            self.receive_event(2, Finished(1))

    @property
    def declined(self) -> list[ModelsDeclined]:
        return [event for event in self.events if isinstance(event, ModelsDeclined)]

    def says(self) -> set[str]:
        return {*self.predict(X).labels}  # type: ignore[arg-type]


def test_models_that_are_worse_than_those_before_do_not_predict(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = Told(tmp_path)
    device.hear("good", 0)
    device.hear("poisoned", 1)
    assert device.says() == {NAMES[0]} and device.working.run == "good"
    assert device.declined == [ModelsDeclined("poisoned", "good", 10, 30, 40)]
    assert (
        "the models of run poisoned are declined: 10 of 40 own samples are right, 30 with those before" in caplog.text
    )
    assert Told(tmp_path).says() == {NAMES[0]}


def test_models_of_a_run_that_turns_bad_give_way_to_those_before_the_run(tmp_path: Path) -> None:
    device = Told(tmp_path)
    device.hear("good", 0)
    device.hear("turning", 0, over=False)
    assert device.working.run == "turning"
    device = Told(tmp_path)  # killed in between
    device.hear("turning", 1)
    assert device.says() == {NAMES[0]} and device.working.run == "good" and len(device.declined) == 1
    device.hear("turning", 0)
    assert device.working.run == "turning", "it has become good again"


def test_losses_that_chance_explains_keep_no_models_out(tmp_path: Path) -> None:
    device = Told(tmp_path, EVEN)
    device.hear("first", 0)
    device.hear("second", 1)
    assert device.says() == {NAMES[1]} and not device.declined


def test_who_has_no_samples_to_judge_by_takes_what_comes(tmp_path: Path) -> None:
    device = Told(tmp_path, None)
    device.hear("first", 0)
    device.hear("second", 1)
    assert device.says() == {NAMES[1]} and not device.declined


def test_the_models_before_outlive_what_a_later_run_clears_away(tmp_path: Path) -> None:
    device = Told(tmp_path)
    device.hear("good", 0)
    for k in range(4):
        device.hear(f"poisoned-{k}", 1)
    assert Told(tmp_path).says() == {NAMES[0]} and {one.before for one in device.declined} == {"good"}
