"""The task of values at each step: labels, manifest, loss, scores that add up, what a device says, options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk import Device
from edge_sdk.cli import main
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.inputs import UNKNOWN
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.step_values import StepValues
from edge_sdk.model.tasks.task import read_task
from tests.step_values import ONE, SHAPE, TASK, best_theta, compile_step_values, draw, samples

NAN = float("nan")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="a bundle is compiled here")
    return compile_step_values(tmp_path_factory.mktemp("curves") / "curves.bundle")


# Labels ---------------------------------------------------------------------------------------------------------
def test_labels_are_numbers_along_time_or_texts_and_what_is_missing_is_unknown() -> None:
    labels: list[Any] = ["40 0||180 10", (40, NAN, 180, 0, NAN, 10), (40, 60, 180, 0, NAN, 10), "", "||"]
    y = TASK.targets(labels, TASK.names, "a")
    assert y.dtype == np.float32 and y.shape == (5, 2, 3)
    for one in y[:3]:
        assert one[:, [0, 2]].tolist() == [[-1, 1], [-1, 1]] and (one[:, 1] == UNKNOWN).all(), "in halves of the range"
    assert (y[3:] == UNKNOWN).all()
    assert TASK.listed([*labels, "1 2|3 4", 72.0], ()).tolist() == [True] * 3 + [False] * 4
    assert ONE.targets(["110|40|", (110, 40, NAN)], (), "a")[:, 0, :2].tolist() == [[0, -1]] * 2


@pytest.mark.parametrize(
    "label", ["72", "1 2|3 4", "1|2|3", "1 2|3 4|walk", "1 2|inf 4|5 6", 1.0, (1.0,) * 5, None, {"rest"}, (np.inf,) * 6]
)
def test_what_is_no_label_of_so_many_steps_is_named(label: Any) -> None:
    with pytest.raises(UsageError, match=r"device a: label .*, expected 2 numbers in bpm at each of 3 steps"):
        TASK.targets([label], (), "device a")


def test_a_number_that_would_be_taken_for_an_unknown_one_is_refused() -> None:
    plain = StepValues(("",), steps=2)
    with pytest.raises(UsageError, match="expected numbers below 1e"):
        plain.targets([(1.0, 2e30)], (), "a")


def test_what_is_said_of_a_stretch_of_time_is_a_number_of_each_value() -> None:
    assert TASK.write((72, 3.25)) == "72 3.25" and ONE.write(71.5) == "71.5"
    for label in ("72", (1.0, NAN), "1 2|3 4|5 6", frozenset({"1"})):
        with pytest.raises(UsageError, match="expected 2 finite numbers in bpm of this time"):
            TASK.write(label)


def test_a_step_has_the_mean_of_what_was_said_of_most_of_it() -> None:
    assert ONE.in_step({"60": 3.0, "80": 1.0}, 1.0) == "65" and ONE.in_step({"60": 1.0}, 1.0) == "60"
    assert ONE.in_step({"60": 1.0}, 1.1) == "" and ONE.in_step({}, 0.0) == ""
    assert ONE.in_step({"60": 1.0, "walk": 2.0}, 0.0) == "", "what is no number, nobody knows"
    assert TASK.in_step({"60 1": 1.0, "80 3": 1.0}, 0.0) == "70 2"


# A manifest -----------------------------------------------------------------------------------------------------
def test_a_manifest_says_values_and_steps() -> None:
    assert read_task(TASK.entry(), 0, (2, 3), SHAPE) == TASK
    assert TASK.identity(()) != StepValues(TASK.units, TASK.names, TASK.low, TASK.high, 4).identity(())
    assert TASK.in_words() == "rate (bpm, 40 to 180), level (0 to 10) at each of 3 steps"


@pytest.mark.parametrize(
    ("more", "output", "said"),
    [
        ({"steps": 0}, (2, 0), "steps = 0, expected a number of 1 to 4096"),
        ({"steps": True}, (2, 1), "steps = True"),
        ({"steps": 10**9}, (2, 10**9), "steps = 1000000000"),
        ({"units": []}, (0, 3), "0 values, expected 1 to 16"),
        ({"half": 1}, (2, 3), "expected kind = 'step_values', units, steps"),
        ({}, (2,), r"output of shape \(2,\) per sample; expected \(2, 3\)"),
    ],
)
def test_another_entry_is_refused(more: dict[str, object], output: tuple[int, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_task(TASK.entry() | more, 0, output, SHAPE)


# Scores ---------------------------------------------------------------------------------------------------------
def test_errors_are_those_of_scikit_learn_over_known_steps_and_add_up() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    y = TASK.targets(samples(50).labels, (), "a")
    z = np.random.default_rng(1).normal(0, 1, y.shape)
    known = np.moveaxis(y, 1, 2)[(y < 1e29).all(1)], np.moveaxis(z, 1, 2)[(y < 1e29).all(1)]
    true, said = (TASK.middle + TASK.half * rows for rows in known)
    sums = TASK.judged(y, z)
    assert sums["samples"] == len(true) < 150
    for k, errors in enumerate(TASK.errors(sums, sums["samples"]).values()):
        assert errors.mae == pytest.approx(metrics.mean_absolute_error(true[:, k], said[:, k]))
        assert errors.rmse == pytest.approx(metrics.mean_squared_error(true[:, k], said[:, k]) ** 0.5)
        assert errors.bias == pytest.approx((said - true)[:, k].mean())
    halves = [TASK.judged(y[part], z[part]) for part in (slice(0, 20), slice(20, None))]
    assert {n: pytest.approx(sum(one[n] for one in halves)) for n in sums} == sums
    none = TASK.judged(y[:0], z[:0])
    assert {*none.values()} == {0.0}


def test_the_baseline_says_the_mean_of_known_steps() -> None:
    y = TASK.targets(["40 0|180 10|", "||180 10"], (), "a")
    assert TASK.baseline(y) == pytest.approx(np.full((1, 2, 3), 1 / 3))
    assert not TASK.baseline(y[:0]).any() and TASK.baseline(y[:0]).shape == (1, 2, 3)


def test_what_is_lost_on_a_window_is_the_mean_error_at_its_known_steps() -> None:
    rows = np.array([[[110.0, 110.0, 110.0]]] * 3)
    assert ONE.sample_losses(["110|180|", "||110", ""], rows, "a") == pytest.approx([0.5, 0.0, 0.0])


# A compiled module ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("loss", ["masked_squared_error", "masked_huber"])
def test_loss_and_gradient_are_those_of_torch_over_known_steps(loss: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="a bundle is compiled here")
    model, some = Model(compile_step_values(tmp_path / "x.bundle", loss=loss)), samples(7)
    y = TASK.targets(some.labels, (), "a")
    theta = (2 * model.theta0).astype(np.float32)
    found, grad = model.loss_grad(theta, some.x, y, np.full(7, 1 / 7, np.float32))
    t = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    means = torch.from_numpy(some.x.astype(np.float64)).unflatten(2, (3, 4)).mean(3)
    z = torch.einsum("kc,ncs->nks", t[:4].reshape(2, 2), means) + t[4:, None]
    known = torch.from_numpy(y < 1e29)
    of = torch.nn.functional.huber_loss if "huber" in loss else torch.nn.functional.mse_loss
    wanted = of(z[known], torch.from_numpy(y.astype(np.float64))[known], reduction="sum") / (7 * 6)
    wanted.backward()
    assert 0 < known.double().mean() < 1 and found == pytest.approx(wanted.item(), rel=1e-5) and t.grad is not None
    assert grad == pytest.approx(t.grad.numpy(), rel=1e-4, abs=1e-6)
    sums = model.score(some.x, y)(theta)
    assert sums["samples"] == known[:, 0].sum() and sums["loss"] == pytest.approx(7 * 3 * wanted.item(), rel=1e-5)


def test_a_device_says_the_values_of_each_step_in_their_units(bundle: Path, tmp_path: Path) -> None:
    device = Device("a", hospital="h", broker="mqtt://127.0.0.1:1", bundle=bundle, directory=tmp_path)
    x, _ = draw(5)
    found = device.predict(x)
    z = device.part.model.predict(device.part.model.theta0, x)
    for one, own in zip(found, z, strict=True):
        assert one.curve is not None and one.curve == pytest.approx(TASK.middle[:, None] + TASK.half[:, None] * own)
        assert (one.classes, one.units, one.label, one.values) == (TASK.names, TASK.units, None, ())
    assert len(found) == 5 and found.labels == (None,) * 5 and device.predict(x[0])[0].curve is not None
    with pytest.raises(UsageError, match="of values at steps, its `curve`, and has no value"):
        _ = found[0].value
    with pytest.raises(UsageError, match="smooth = 2: curves tells the steps of each window"):
        device.predict(x, smooth=2)
    device.close()


def test_the_best_parameters_find_the_values(bundle: Path) -> None:
    model, (x, y) = Model(bundle), draw(200)
    errors = TASK.in_unit(model.predict(best_theta(), x)) - y
    assert errors.std((0, 2)) == pytest.approx([2, 0.2], rel=0.1), "the noise of the targets"


# Options --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--task", "step_values"), "say how many steps a window has"),
        (("--task", "value", "--steps", "4"), "say --task steps or step_values"),
        (("--task", "step_values", "--steps", "5"), "a window of 64 samples has no 5 steps of equal length"),
        (("--task", "step_values", "--steps", "4", "--loss", "huber"), "expected masked_squared_error or masked_huber"),
        (("--task", "step_values", "--steps", "4", "--augment", "shift=0.1"), "moved in time has something else"),
        (("--task", "step_values", "--steps", "4", "--range", "9,1"), "numbers, the lower one first"),
    ],
)
def test_options_of_the_compiler_that_do_not_go_together(
    options: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="bundles are compiled here")
    assert main(["bundle", "compile", "steps", "--input", "2,64", *options, "-o", str(tmp_path / "x")]) == 2
    assert said in capsys.readouterr().err


def test_a_module_that_returns_no_step_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="bundles are compiled here")
    more = ("--input", "6", "--task", "step_values", "--unit", "bpm", "--steps", "4", "-o")
    assert main(["bundle", "compile", "mlp", *more, str(tmp_path / "x")]) == 2
    assert "returns (1,) per sample; return the values at each step, (1, 4)" in capsys.readouterr().err


def test_the_network_of_the_zoo_has_an_output_for_each_value(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="bundles are compiled here")
    path, made = tmp_path / "x.bundle", ("--input", "2,64", "--task", "step_values", "--steps", "16", "--search", "0")
    more = ("--unit", "bpm", "--range", "40,180", "-o", str(path))
    assert main(["bundle", "compile", "steps", *made, *more]) == 0
    assert read_bundle(path).task == StepValues(("bpm",), (), (40.0,), (180.0,), 16)
    assert Model(path).predict(Model(path).theta0, np.zeros((2, 2, 64), np.float32)).shape == (2, 1, 16)
