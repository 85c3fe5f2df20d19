"""A device whose model predicts values: targets, predictions with units, and runs that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="bundles are compiled here")

from torch import nn

from edge_sdk import Device, Samples, UsageError
from edge_sdk.contract.loopback import Loopback
from edge_sdk.contract.run import Run
from edge_sdk.data.store.recording import Recording
from edge_sdk.methods import METHODS
from edge_sdk.methods.shared.evaluation.evaluation import Finished, Scores
from edge_sdk.methods.shared.evaluation.reports import Models, Report, mean_errors
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.nodes.configuration.assembly import check_bundle, make_env, method_of
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.nodes.kernels.rollout import check as check_rollout
from edge_sdk.nodes.models.last_line import ModelsDeclined
from tests.values import RATE, compile_linear, draw


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_linear(tmp_path_factory.mktemp("values") / "linear.bundle")


def make(bundle: Path, directory: Path, events: list[Any]) -> Device:
    device = Device("a", hospital="h", broker="mqtt://127.0.0.1:1", bundle=bundle, directory=directory)
    device.on_event = events.append
    parts = [Samples(x, tuple(y.tolist())) for x, y in (draw(200), draw(100, 1), draw(60, 2))]
    device.train_on(*parts)
    return device


def run_of(bundle: Path, **more: Any) -> Run:
    return Run(
        id=more.pop("id", "r"), bundle=read_bundle(bundle).sha256, classes=("rate",), **{"method": "fedavg", **more}
    )


def best(seed: int = 0) -> np.ndarray:
    """Parameters of the least squares on what a device trains on."""
    x, y = draw(200, seed)
    rows = np.concatenate([x, np.ones((len(x), 1))], 1)
    return np.linalg.lstsq(rows, RATE.scaled(y[:, None])[:, 0], rcond=None)[0].astype(np.float32)


def test_a_device_learns_and_predicts_with_unit_and_interval(bundle: Path, tmp_path: Path) -> None:
    device = make(bundle, tmp_path, [])
    initial = device.predict(draw(1)[0])[0].value
    assert initial.unit == "bpm" and initial.low is None
    run = run_of(bundle, rounds=1)
    device.part.assemble(run)
    env, theta = device.part.env(run), device.part.model.theta0.copy()
    for _ in range(300):
        theta -= 0.3 * env.grad_fn(theta, None)[1]
    assert theta == pytest.approx(best(), abs=1e-3), "the gradient is of mean squares, in halves of the range"
    device.part.receive_event(1, Scores(1, {"samples": 60.0, "global_squared:0": 60.0 * (2 / 70) ** 2}))
    device.part.receive_event(1, Models(1, {"global": theta}))
    device.part.receive_event(2, Finished(1))
    x, y = draw(500, 7)
    found = device.predict(x)
    assert np.abs(found.values[:, 0] - y).mean() < 2 and found[0].label is None and found.labels[:2] == (None, None)
    value = found[3].value
    assert (
        str(value).endswith(" bpm") and value.name == "rate" and value.high - value.low == pytest.approx(2 * 1.645 * 2)
    )
    inside = np.mean([low.value.low <= true <= low.value.high for low, true in zip(found, y, strict=True)])
    assert 0.85 < inside < 0.95, "noise is 2 bpm, and normal"
    assert device.predict(x, smooth=2).values[1, 0] == pytest.approx(found.values[:2, 0].mean())
    for wrong, said in (({"abstain": 0.5}, "no probability"), ({"smooth": 0}, "at least 1")):
        with pytest.raises(UsageError, match=said):
            device.predict(x, **wrong)
    with pytest.raises(UsageError, match="no probabilities"):
        device.log_probabilities(x)


def test_scores_are_sums_in_halves_of_the_range(bundle: Path, tmp_path: Path) -> None:
    device = make(bundle, tmp_path, [])
    env = device.part.env(run_of(bundle))
    x, y = draw(60, 2)
    for theta, score, (inputs, true) in ((best(), env.score, (x, y)), (best(), env.test, draw(100, 1))):
        d = np.concatenate([inputs, np.ones((len(inputs), 1))], 1) @ theta - (true - 110) / 70
        assert score is not None
        sums = score(theta)
        assert sums["samples"] == len(true) and sums["absolute:0"] == pytest.approx(np.abs(d).sum(), rel=1e-4)
        assert sums["error:0"] == pytest.approx(d.sum(), abs=1e-3) and sums["loss"] == pytest.approx(
            (d**2).sum(), rel=1e-4
        )
        assert "correct" not in sums


def test_worse_models_of_a_run_do_not_predict(bundle: Path, tmp_path: Path) -> None:
    events = list[Any]()
    device = make(bundle, tmp_path, events)
    for name, theta in (("good", best()), ("bad", best() + np.float32(0.2)), ("as-good", best(5))):
        device.part.assemble(run_of(bundle, id=name))
        device.part.receive_event(1, Models(1, {"global": theta}))
        device.part.receive_event(2, Finished(1))
    declined = [event for event in events if isinstance(event, ModelsDeclined)]
    assert [one.run for one in declined] == ["bad"] and device.part.working.run == "as-good"
    assert declined[0].loss > declined[0].loss_before


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"settle": {"statistics": True}}, "run.settle chooses by counts of right samples"),
        ({"uploads": {"bits": 8, "secret": True}}, "secret sums have no place"),
        ({"method": "hsgd"}, "method hsgd"),
        ({"method": "fedal", "public": "ab" * 32}, "method fedal"),
        ({"classes": ("a", "b")}, "is for a, b, but bundle linear predicts"),
    ],
)
def test_what_needs_classes_is_refused_before_a_run_begins(bundle: Path, more: dict[str, Any], said: str) -> None:
    file = read_bundle(bundle)
    run = Run(**{"id": "r", "bundle": file.sha256, "classes": ("rate",), "method": "fedavg", **more})
    with pytest.raises(UsageError, match=f"task value: .*{said}"):
        check_bundle(run, file, "device")
    with pytest.raises(UsageError, match="task value: a rollout"):
        check_rollout(run, None, file)


def test_labels_that_are_no_numbers(bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = make(bundle, tmp_path, [])
    x, y = draw(3)
    device.train_on(Samples(x, (72.0, "walk", float(y[0]))))
    assert device.part.parts(run_of(bundle), cancellable=False).x.shape == (2, 3) and "walk" in caplog.text
    with pytest.raises(UsageError, match="expected a finite number in bpm"):
        device.part.own_model.task.write("walk")


def test_a_model_in_another_range_is_no_warm_start(bundle: Path, tmp_path: Path) -> None:
    other = compile_linear(tmp_path / "other.bundle", type(RATE)(("bpm",), (), (0.0,), (300.0,)))
    device = make(bundle, tmp_path / "a", [])
    device.part.assemble(run_of(bundle))
    device.part.receive_event(1, Models(1, {"global": best()}))
    device.part.receive_event(2, Finished(1))
    again = make(other, tmp_path / "a", [])
    assert again.part.env(run_of(other, id="next", method="ditto")).earlier == {}
    same = make(bundle, tmp_path / "a", [])
    assert {*same.part.env(run_of(bundle, id="next", method="ditto")).earlier} == {"global"}


WHOLE = [name for name, method in METHODS.items() if method.kernels == "plain"]
"""Methods that docs/methods.md says to take values."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_linear(tmp_path_factory.mktemp("values") / "network.bundle", hidden=8)


AROUND = [{"uploads": {"bits": 4}}, {"robust": {"rule": "median"}}]


@pytest.mark.parametrize(("name", "more"), [*((name, {}) for name in WHOLE), *(("fedavg", more) for more in AROUND)])
def test_a_fleet_learns_by_each_method_that_trains_whole_models(
    name: str, more: dict[str, Any], network: Path, tmp_path: Path
) -> None:
    bundle = network
    settings = {"fedbn": {"personal_slots": "bias"}, "augfl": {"rho": 8.0}}.get(name, {})
    run = run_of(bundle, id="r", method=name, rounds=12, seed=1, settings=settings, **more)
    check_bundle(run, read_bundle(bundle), "device")
    names, tree = ("a1", "a2", "b1"), {"a": ("a1", "a2"), "b": ("b1",)}
    envs = {one: make(bundle, tmp_path / one, []).part.env(run) for one in names}
    model = envs["a1"]
    for hospital, own in tree.items():
        sizes = dict.fromkeys(own, 1)
        envs[hospital] = make_env(run, model.layout, model.theta0, sizes=sizes)
    sizes = {hospital: len(own) for hospital, own in tree.items()}
    envs["cloud"] = make_env(run, model.layout, model.theta0, sizes=sizes)
    told = Loopback(method_of(run), tree, envs, {}, 0, root="cloud").run().told
    reports = [event for node, event in told if node == "cloud" and isinstance(event, Report)]
    sums = reports[-1].sums
    assert sums["samples"] == 180 and sums["devices"] == 3
    errors = RATE.mean_errors(mean_errors(sums), run.classes)
    assert "test_global" in errors or "test_personal" in errors
    assert envs["a1"].score is not None
    before = 70 * envs["a1"].score(model.theta0)["absolute:0"] / 60
    assert min(error["rate"] for error in errors.values()) < 0.9 * before, "better than the initial model"
    assert "off by" in reports[-1].to_sentence()


# Live -----------------------------------------------------------------------------------------------------------
def test_what_is_observed_gets_numbers_as_labels(tmp_path: Path) -> None:
    signal = SignalSpec(("ppg",), ("",), 10.0, 10, 10)
    net = nn.Sequential(nn.Flatten(), nn.Linear(10, 1)).eval()
    spec = Spec("live", (1, 10), loss="huber", task=RATE, signal=signal)
    compile_module(net, spec).save(tmp_path / "live.bundle")
    place = {
        "broker": "mqtt://127.0.0.1:1",
        "directory": tmp_path / "a",
        "training": LocalTraining(recording=Recording(least=5)),
    }
    device = Device("a", hospital="h", bundle=tmp_path / "live.bundle", **place)  # type: ignore[arg-type]
    for minute in range(20):  # recordings of their own: some of them are held out
        began = 1_700_000_000.0 + 3600 * minute
        device.observe(np.full((600, 1), minute, np.float32), time=began)
        assert device.label(60.0 + minute, began, began + 60) > 50
    with pytest.raises(UsageError, match="expected a finite number in bpm"):
        device.label("walk", began, began + 60)
    assert device.count_windows()["60.0"] > 50
    parts = device.part.parts(run_of(tmp_path / "live.bundle"), cancellable=False)
    assert len(parts.x) > 500 and parts.held_out is not None and len(parts.held_out[0])
    assert RATE.in_unit(parts.y)[:, 0] == pytest.approx(60 + parts.x[:, 0, 0], abs=1e-3), (
        "each window has its own number"
    )
    with pytest.raises(UsageError, match="questions are for the names of classes"):
        device.questions()
    device.close()
