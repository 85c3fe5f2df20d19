"""The task of forecasting a window's end: manifest, what the network may see, loss, predictions, a replay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edge_sdk import Device
from edge_sdk.cli import main
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.forecast import Forecast
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task import read_task
from edge_sdk.replay.anomalies.asked import AskedTask
from edge_sdk.replay.anomalies.neighbours import changes, fit_ahead, last_errors
from edge_sdk.replay.traces.falls import write_fall_traces
from tests.reconstructions import NAMES

SHAPE, TASK = (2, 12), Forecast(0.9, 3)
SIGNAL = SignalSpec(("a", "b"), ("g", "g"), 8.0, 12, 6, (1.0, 2.0), (0.5, 4.0))


def draw(count: int, seed: int = 0) -> np.ndarray:
    """Straight lines (count, 2, 12), float32."""
    slope, begin = np.random.default_rng(seed).normal(size=(2, count, 2, 1))
    return (begin + slope * np.arange(12)).astype(np.float32)


# A manifest -----------------------------------------------------------------------------------------------------
def test_a_manifest_says_the_horizon() -> None:
    assert TASK.entry() == {"kind": "forecast", "quantile": 0.9, "horizon": 3}
    assert read_task(TASK.entry(), 0, (2, 3), SHAPE) == TASK
    assert TASK.identity(()) != Forecast(0.9, 4).identity(())


@pytest.mark.parametrize(
    ("more", "output", "said"),
    [
        ({"horizon": 0}, (2, 3), "horizon = 0, expected a number of values above 0"),
        ({"horizon": 3.0}, (2, 3), "horizon = 3.0"),
        ({"horizon": True}, (2, 1), "horizon = True"),
        ({"horizon": 12}, (2, 12), r"a window of shape \(2, 12\) has no values before the last 12"),
        ({"quantile": 1.0}, (2, 3), "task forecast: quantile = 1.0"),
        ({"unit": "g"}, (2, 3), "expected kind = 'forecast', quantile and horizon"),
        ({}, SHAPE, r"the output \(2, 12\) per sample; expected \(2, 3\)|output \(2, 12\); expected \(2, 3\)"),
    ],
)
def test_another_entry_is_refused(more: dict[str, object], output: tuple[int, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_task(TASK.entry() | more, 0, output, SHAPE)


# Parts of a window ----------------------------------------------------------------------------------------------
def test_targets_are_the_ends_of_windows() -> None:
    x = draw(5)
    assert (TASK.targets([""] * 5, NAMES, "a", x) == x[..., 9:]).all()
    truths = TASK.truths(["", "spike", "", "", ""], NAMES, "a", x)
    assert (truths["x"] == x[..., 9:]).all() and truths["abnormal"].tolist() == [False, True, False, False, False]
    assert TASK.judged(truths, x[..., 9:], 1.0).keys() >= {"error", "alarms"}
    assert "variance" not in TASK.judged(truths, x[..., 9:], 1.0)


def test_what_is_forecast_next_lies_after_the_window() -> None:
    shifted = TASK.shifted(draw(2))
    assert (shifted[..., :9] == draw(2)[..., 3:]).all() and (shifted[..., 9:] == 0).all()


# A compiled module ----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module that would copy its input's end if it were given it."""
    torch = pytest.importorskip("torch", reason="a bundle is compiled here")
    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.specification.spec import Spec

    class Copying(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(3, 3)

        def forward(self, x: object) -> object:
            return self.map(x[..., -3:])  # type: ignore[index]

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("ahead") / "ahead.bundle"
    spec = Spec("copying", SHAPE, loss="mean_squared_error", task=TASK, signal=SIGNAL)
    compile_module(Copying().eval(), spec, search=0).save(path)
    return path


def straight() -> np.ndarray:
    """Parameters with which straight lines go on: x3 + k (x3 - x2)."""
    weights = np.array([[0, -k, 1 + k] for k in (1, 2, 3)])
    return np.concatenate([weights.ravel(), np.zeros(3)]).astype(np.float32)


def test_no_module_sees_what_it_is_to_forecast(bundle: Path) -> None:
    model, x = Model(bundle), draw(4)
    other = x.copy()
    other[..., 9:] = 1e3
    assert (model.predict(model.theta0, x) == model.predict(model.theta0, other)).all()
    assert model.predict(straight(), x) == pytest.approx(x[..., 9:], abs=1e-4)


def test_loss_and_gradient_are_those_of_torch(bundle: Path) -> None:
    import torch

    model, x = Model(bundle), draw(6)
    loss, grad = model.loss_grad(model.theta0, x, TASK.part(x), np.full(6, 1 / 6, np.float32))
    t = torch.tensor(model.theta0, dtype=torch.float64, requires_grad=True)
    own = torch.from_numpy(x.astype(np.float64))
    wanted = ((own[..., 6:9] @ t[:9].reshape(3, 3).T + t[9:] - own[..., 9:]) ** 2).mean()
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-5) and t.grad is not None
    assert grad == pytest.approx(t.grad.numpy(), rel=1e-4, abs=1e-6)


def test_a_device_says_what_comes_next_in_the_units_of_its_channels(bundle: Path, tmp_path: Path) -> None:
    with_zeros = Device("a", hospital="h", broker="mqtt://127.0.0.1:1", bundle=bundle, directory=tmp_path)
    x = draw(3)
    found = with_zeros.predict(x)
    theta = with_zeros.part.model.theta0
    after = with_zeros.part.model.predict(theta, TASK.shifted(x))
    for k, one in enumerate(found):
        assert one.ahead is not None and one.ahead.shape == (2, 3)
        assert one.ahead == pytest.approx(after[k] * [[0.5], [4.0]] + [[1.0], [2.0]], rel=1e-5)
        errors = np.square(with_zeros.part.model.predict(theta, x[k : k + 1])[0] - x[k, :, 9:], dtype=np.float64)
        assert one.score == pytest.approx(errors.mean(), rel=1e-5) and one.threshold is None
    assert found[2].ahead == pytest.approx(after[2] * [[0.5], [4.0]] + [[1.0], [2.0]], rel=1e-5)
    with_zeros.close()


# Options --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--task", "forecast"), "--horizon 16"),
        (("--task", "forecast", "--horizon", "64"), "has no values before the last 64"),
        (("--task", "forecast", "--horizon", "4", "--unit", "g"), "leave them out with --task forecast"),
        (("--task", "reconstruction", "--horizon", "4"), "--horizon is of forecasts"),
    ],
)
def test_options_of_the_compiler_that_do_not_go_together(
    options: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="bundles are compiled here")
    assert main(["bundle", "compile", "forecaster-linear", "--input", "3,64", *options, "-o", str(tmp_path / "x")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "length", "said"),
    [
        (AskedTask(task="forecast"), 0, "samples of windows along time have an end"),
        (AskedTask(task="forecast", horizon=9), 9, "--horizon 9: expected 1 to 8"),
        (AskedTask(task="forecast", horizon=0), 9, "--horizon 0: expected 1 to 8"),
    ],
)
def test_a_horizon_that_data_do_not_have_is_refused(asked: AskedTask, length: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked.reconstruction((), length)


def test_a_quarter_of_a_window_is_forecast_where_nothing_is_said() -> None:
    assert AskedTask(task="forecast").reconstruction((), 64) == Forecast(0.99, 16)
    with pytest.raises(UsageError, match="--horizon 3: it is of forecasts"):
        AskedTask(horizon=3).check_asked(False)


# Neighbours -----------------------------------------------------------------------------------------------------
def test_ridge_regression_continues_lines_and_the_last_value_does_not() -> None:
    pytest.importorskip("sklearn")
    x = draw(200)
    before, after = changes(TASK, x)
    assert before.shape == (200, 18) and after.shape == (200, 6) and (before.reshape(200, 2, 9)[..., -1] == 0).all()
    assert fit_ahead(TASK, x, 1.0, 0)(draw(50, 1)).mean() < 0.02
    slopes = x[:, :, 1] - x[:, :, 0]
    assert last_errors(TASK, x) == pytest.approx((slopes**2).mean(1) * (1 + 4 + 9) / 3, rel=1e-3)
    assert not len(last_errors(TASK, x[:0])) and not len(fit_ahead(TASK, x, 1.0, 0)(x[:0]))


def test_a_replay_over_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="a bundle is compiled here")
    pytest.importorskip("sklearn", reason="neighbours are judged")
    write_fall_traces(tmp_path / "falls", devices=2, minutes=5)
    bundle, out = tmp_path / "next.bundle", tmp_path / "out"
    made = ("--input", "3,32", "--horizon", "8", "--search", "0", "-o", str(bundle))
    assert main(["bundle", "compile", "forecaster-linear", *made]) == 0
    assert read_bundle(bundle).task == Forecast(0.99, 8)
    more = ("--window", "32", "--abnormal", "fall", "--hospitals", "1", "--method", "fedavg", "--rounds", "2")
    assert main(["replay", str(tmp_path / "falls"), "--bundle", str(bundle), *more, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "the last 8 values of a window" in told and "alone, last value" in told and "mean error of forecasts" in told
    found = json.loads((out / "result.json").read_text())["anomalies"]
    assert found["task"]["kind"] == "forecast" and found["task"]["horizon"] == 8
    assert {"alone_ridge", "alone_last", "alone", "global", "pooled"} <= {*found["models"]}
    assert found["models"]["global"]["error"] < found["models"]["mean"]["error"]
    assert "Error over rounds" in (out / "report.html").read_text()
    assert main(["replay", str(tmp_path / "falls"), "--bundle", str(bundle), *more, "--horizon", "4",
                 "--out", str(tmp_path / "other")]) == 2  # fmt: skip
    assert "--horizon 4" in capsys.readouterr().err
