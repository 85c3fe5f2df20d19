"""A run's models predict only where they are not worse, on the device's own samples, than those before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from edge_sdk import Device, Samples
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.model.tasks.several_labels import SeveralLabels
from edge_sdk.model.tasks.step_classes import StepClasses
from edge_sdk.model.tasks.step_values import StepValues
from edge_sdk.model.tasks.task import OutputTask
from edge_sdk.model.tasks.values import Values
from edge_sdk.nodes.models.last_line import MOST, ModelsDeclined, are_worse, spread
from edge_sdk.nodes.models.versions import mark_losses, rate
from edge_sdk.nodes.models.working_model import WorkingModel
from tests.nodes.models.test_versions import NAMES, WRIST, X

MANY = Samples(X, tuple(NAMES[0] if i < 30 else NAMES[1] for i in range(40)))
EVEN = Samples(X, tuple(NAMES[0] if i < 23 else NAMES[1] for i in range(40)))
TASKS = [
    (Values(("",)), "0.25", (1,)),
    (StepValues(("",), steps=2), "0.25|0.25", (1, 2)),
    (SeveralLabels(("a", "b")), "none", (2,)),
    (StepClasses(("a", "b"), 2), "a|a", (2, 2)),
]
"""A task, a label, and the shape of a row that is 0.25 everywhere, and right."""


class Told(Device):
    """A device that keeps what it is told."""

    def __init__(self, directory: Path, validation: Samples | None = MANY) -> None:
        self.events = list[object]()
        place = {"hospital": "h", "broker": "mqtt://127.0.0.1:1", "bundle": WRIST, "directory": directory}
        super().__init__("d1", **place)  # type: ignore[arg-type]
        self.on_event = self.events.append
        self.train_on(MANY, None, validation)

    def saying(self, code: int) -> np.ndarray:
        """Parameters of a model that says one class of everything."""
        theta = self.part.model.theta0.copy()
        theta[self.part.model.layout.size - self.part.model.classes + code] = 1e4
        return theta

    def hear(self, run: str, code: int, over: bool = True) -> None:
        """A run tells its models, which say that class of everything."""
        self.part.assemble(Run(id=run, method="fedavg", bundle=self.part.model.sha256, classes=NAMES))
        self.part.receive_event(1, Models(1, {"global": self.saying(code)}))
        if over:
            self.part.receive_event(2, Finished(1))

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
    assert device.says() == {NAMES[0]} and device.part.working.run == "good"
    assert device.declined == [ModelsDeclined("poisoned", "good", 10, 30, 40)]
    assert (
        "the models of run poisoned are declined: 10 of 40 own samples are right, 30 with those before" in caplog.text
    )
    assert Told(tmp_path).says() == {NAMES[0]}


def test_models_of_a_run_that_turns_bad_give_way_to_those_before_the_run(tmp_path: Path) -> None:
    device = Told(tmp_path)
    device.hear("good", 0)
    device.hear("turning", 0, over=False)
    assert device.part.working.run == "turning"
    device = Told(tmp_path)  # killed in between
    device.hear("turning", 1)
    assert device.says() == {NAMES[0]} and device.part.working.run == "good" and len(device.declined) == 1
    device.hear("turning", 0)
    assert device.part.working.run == "turning", "it has become good again"


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


def test_where_the_models_are_damaged_those_before_predict(tmp_path: Path) -> None:
    """The bundle's initial model did, which knows nothing."""
    device = Told(tmp_path)
    device.hear("r1", 0)
    device.hear("r2", 0)
    (tmp_path / "r2.npz").write_bytes(b"no archive")
    again = Told(tmp_path)
    assert again.part.working.run == "r1"
    again.part.assemble(Run(id="r2", method="fedavg", bundle=again.part.model.sha256, classes=NAMES))
    again.part.receive_event(2, Finished(1))
    assert again.part.working.run == Told(tmp_path).part.working.run == "r1"


def test_the_rule_is_mcnemars() -> None:
    """Of the samples that one of two models gets right, so many more by the old one that chance does not explain it."""
    for lost, won in ((4, 0), (5, 0), (20, 8), (23, 8), (0, 9)):
        losses = np.array([1] * lost + [0] * won + [1] * 7 + [0] * 11, bool)
        before = np.array([0] * lost + [1] * won + [1] * 7 + [0] * 11, bool)
        assert are_worse(losses, before) == (lost - won > 2 * (lost + won) ** 0.5)


def test_of_many_samples_some_are_compared_over_all_the_time_that_there_is() -> None:
    many = Samples(np.arange(5000, dtype=np.float32)[:, None], tuple(map(str, range(5000))))
    some = spread(many)
    assert len(some) == MOST and some.labels[0] == "0" and some.labels[-1] == "4999"
    assert all(label == f"{x:g}" for label, x in zip(some.labels, some.x[:, 0], strict=True))
    assert spread(some) is some


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_models_whose_outputs_are_no_numbers_or_beyond_all_measure_are_worse(bad: float) -> None:
    """They once were not: no sum with such a loss is above a multiple of its own root."""
    some, usual = np.where(np.arange(9) < 5, bad, 0.5), np.full(9, 0.5)
    assert are_worse(np.full(9, bad), usual) and are_worse(some, usual)
    assert not are_worse(usual, some) and not are_worse(some, some)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("task", "label", "shape"), TASKS)
def test_what_is_no_number_is_as_wrong_as_can_be(
    task: OutputTask, label: str, shape: tuple[int, ...], bad: float
) -> None:
    """Once it counted as the first class of a step, as no label, or as a step that nobody knows."""
    rows = np.full((2, *shape), 0.25)
    rows[1].flat[-1] = bad
    samples = Samples(np.zeros((2, 1), np.float32), (label, label))
    said = SimpleNamespace(rows=rows)
    working = cast(
        WorkingModel, SimpleNamespace(model=SimpleNamespace(task=task), whose="d1", predict=lambda x, which: said)
    )
    usual, lost = mark_losses(working, samples)
    assert usual == 0 and lost == (1.0 if task.histograms else np.inf)
    assert rate(working, samples, task).tolist() == [1.0, 0.0]
