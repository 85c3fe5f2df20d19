"""The task of a class for each step: labels, manifest, loss, scores that add up, what a device says, options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk import Device
from edge_sdk.algebra.metrics import label_sets
from edge_sdk.algebra.metrics.step_classes import class_shares, kappa
from edge_sdk.cli import main
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.step_classes import StepClasses
from edge_sdk.model.tasks.task import read_task
from tests.steps import SHAPE, TASK, best_theta, compile_steps, draw, samples


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="a bundle is compiled here")
    return compile_steps(tmp_path_factory.mktemp("steps") / "steps.bundle")


# Labels ---------------------------------------------------------------------------------------------------------
def test_a_text_has_a_class_for_each_step_and_an_empty_one_is_unknown() -> None:
    y = TASK.targets([" Rest|walk|WALK", "||run", "", "||"], TASK.names, "a")
    assert y.dtype == np.float32 and y.shape == (4, 3, 3)
    assert y[0].tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]] and y[1].tolist() == [[0] * 3, [0] * 3, [0, 0, 1]]
    assert not y[2:].any()
    assert (
        TASK.listed(["rest|walk|run", "||run", "||", "", "rest|walk", "rest"], ()).tolist() == [True] * 2 + [False] * 4
    )


@pytest.mark.parametrize("label", ["rest", "rest|walk", "rest|walk|swim", "rest|walk|run|run", 1.0, None, {"rest"}])
def test_what_is_no_label_of_so_many_steps_is_named(label: Any) -> None:
    with pytest.raises(UsageError, match=r"device a: label .*, expected 3 of rest, walk, run or '' with '\|' between"):
        TASK.targets([label], (), "device a")


def test_what_is_said_of_a_stretch_of_time_is_one_class() -> None:
    assert TASK.write(" WALK ") == "walk"
    for label in ("rest|walk|run", "swim", "", 3.0, frozenset({"rest"})):
        with pytest.raises(UsageError, match="expected the class of this time, one of rest, walk, run"):
            TASK.write(label)


# A manifest -----------------------------------------------------------------------------------------------------
def test_a_manifest_says_classes_and_steps() -> None:
    assert TASK.entry() == {"kind": "steps", "names": ["rest", "walk", "run"], "steps": 3}
    assert read_task(TASK.entry(), 0, (3, 3), SHAPE) == TASK
    assert TASK.identity(()) != StepClasses(TASK.names, 4).identity(())


@pytest.mark.parametrize(
    ("more", "output", "said"),
    [
        ({"steps": 0}, (3, 0), "steps = 0, expected a number of 1 to 4096"),
        ({"steps": 3.0}, (3, 3), "steps = 3.0"),
        ({"steps": True}, (3, 1), "steps = True"),
        ({"steps": 10**9}, (3, 10**9), "steps = 1000000000"),
        ({"names": ["rest"]}, (1, 3), "1 labels, expected names of 2 to 64"),
        ({"names": ["rest", "Rest"]}, (2, 3), "'rest' is there twice"),
        ({"names": ["rest", "a|b"]}, (2, 3), "'a|b'; '|' stands between steps"),
        ({"names": ["rest", 3]}, (2, 3), "names"),
        ({"names": "ab"}, (2, 3), "a list of names"),
        ({"unit": "g"}, (3, 3), "expected kind = 'steps', a list of names, and steps"),
        ({}, (3,), r"output of shape \(3,\) per sample; expected \(3, 3\)"),
    ],
)
def test_another_entry_is_refused(more: dict[str, object], output: tuple[int, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("|", r"\|")):
        read_task(TASK.entry() | more, 0, output, SHAPE)


# Scores ---------------------------------------------------------------------------------------------------------
def test_shares_are_half_or_more_for_what_is_predicted_alone() -> None:
    random = np.random.default_rng(0)
    wrong = class_shares(np.full((2, 4), np.nan))
    assert (wrong[:, 0] == 0.5).all() and (wrong[:, 1:] < 0.5).all(), "a model that has gone wrong is judged, too"
    assert np.isfinite(class_shares(np.array([[np.inf, -np.inf, 0.0], [np.inf, np.inf, np.nan]]))).all()
    z = np.concatenate([random.normal(0, 3, (500, 4)), np.zeros((3, 4)), np.full((1, 4), -700.0), np.eye(4) * 1e-17])
    shares = class_shares(z)
    assert ((shares >= 0.5) == (np.arange(4) == z.argmax(1)[:, None])).all(), "also where several are equal"
    p = np.exp(z[:500]) / np.exp(z[:500]).sum(1, keepdims=True)
    for k in range(4):
        rival = np.delete(p, k, 1).max(1)
        assert shares[:500, k] == pytest.approx(p[:, k] / (p[:, k] + rival), abs=1e-12)


def test_counts_and_histograms_are_of_steps_with_a_class_and_add_up() -> None:
    _, codes = draw(300)
    y = TASK.targets(samples(300).labels, (), "a")
    z = np.random.default_rng(1).normal(0, 1, y.shape) + 1.5 * (np.arange(3)[:, None] == codes[:, None])
    found, known = TASK.judged(y, z), y.any(1)
    assert found["samples"] == known.sum() < y.shape[0] * 3
    assert found["correct"] == (z.argmax(1) == codes)[known].sum()
    for k, scores in enumerate(TASK.by_label(found).values()):
        counts = {name: found[f"{name}:{k}"] for name in ("tp", "fp", "fn")}
        assert counts == {name: scores[name] for name in ("tp", "fp", "fn")}, "bins say what counts say"
        assert sum(counts.values()) + scores["tn"] == found["samples"]
    halves = [TASK.judged(y[part], z[part]) for part in (slice(0, 120), slice(120, None))]
    assert {n: sum(one.get(n, 0.0) for one in halves) for n in found} == found
    losses = np.random.default_rng(2).random(300)
    told = TASK.evaluate(y, z, losses)
    assert told["loss"] == pytest.approx(3 * losses.sum()), "a window's loss is the mean over its steps"
    assert told["f1"] == pytest.approx(label_sets.macro_f1(found, 3)) == pytest.approx(1 - TASK.badness(found))


def test_kappa_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    codes = np.random.default_rng(0).integers(3, size=(40, 3))
    z = np.random.default_rng(1).normal(0, 1, (40, 3, 3)) + (np.arange(3)[:, None] == codes[:, None])
    y = (np.arange(3)[:, None] == codes[:, None]).astype(np.float32)
    assert kappa(TASK.judged(y, z), 3) == pytest.approx(metrics.cohen_kappa_score(codes.ravel(), z.argmax(1).ravel()))
    alike = np.zeros_like(y)
    alike[:, 0] = 1
    assert kappa(TASK.judged(alike, alike), 3) == 1.0 and kappa(TASK.judged(y, alike), 3) == pytest.approx(0.0)
    assert kappa(TASK.judged(y[:0], z[:0]), 3) == 1.0


def test_the_baseline_says_what_most_known_steps_are() -> None:
    y = TASK.targets(["rest|walk|", "|walk|walk", "run||"], (), "a")
    found = TASK.baseline(y)
    assert found.shape == (1, 3, 3) and (found.argmax(1) == 1).all()
    assert np.exp(found[0, :, 0]) == pytest.approx([1 / 5, 3 / 5, 1 / 5])


def test_what_is_lost_on_a_window_is_the_share_of_its_known_steps_that_are_wrong() -> None:
    rows = TASK.targets(["rest|walk|run"] * 3, (), "a").astype(float)
    assert TASK.sample_losses(["rest|walk|walk", "walk||", ""], rows, "a") == pytest.approx([1 / 3, 1.0, 0.0])


# A compiled module ----------------------------------------------------------------------------------------------
def test_loss_and_gradient_are_those_of_torch_over_known_steps(bundle: Path) -> None:
    import torch

    model, some = Model(bundle), samples(7)
    y = TASK.targets(some.labels, (), "a")
    loss, grad = model.loss_grad(model.theta0, some.x, y, np.full(7, 1 / 7, np.float32))
    t = torch.tensor(model.theta0, dtype=torch.float64, requires_grad=True)
    means = torch.from_numpy(some.x.astype(np.float64)).unflatten(2, (3, 4)).mean(3)
    z = torch.einsum("kc,ncs->nks", t[:6].reshape(3, 2), means) + t[6:, None]
    wanted = -(torch.from_numpy(y.astype(np.float64)) * z.log_softmax(1)).sum() / (7 * 3)
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-5) and t.grad is not None
    assert grad == pytest.approx(t.grad.numpy(), rel=1e-4, abs=1e-6)
    sums = model.score(some.x, y)(model.theta0)
    assert sums["samples"] == y.any(1).sum() and sums["loss"] == pytest.approx(7 * 3 * wanted.item(), rel=1e-5)


def test_a_device_names_each_step(bundle: Path, tmp_path: Path) -> None:
    device = Device("a", hospital="h", broker="mqtt://127.0.0.1:1", bundle=bundle, directory=tmp_path)
    x, _ = draw(5)
    found = device.predict(x)
    z = device.part.model.predict(device.part.model.theta0, x)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    for one, mine, own in zip(found, p, z, strict=True):
        assert one.steps == tuple(TASK.names[k] for k in own.argmax(0)) and one.classes == TASK.names
        assert one.probabilities == pytest.approx(mine, rel=1e-5) and one.label is None and np.isnan(one.probability)
    assert found.labels == (None,) * 5 and device.predict(x[0])[0].steps == found[0].steps
    with pytest.raises(UsageError, match="smooth = 2: steps tells the steps of each window"):
        device.predict(x, smooth=2)
    with pytest.raises(UsageError, match="no probability of one class"):
        device.predict(x, abstain=0.5)
    device.close()


def test_the_best_parameters_find_the_classes(bundle: Path) -> None:
    model, (x, codes) = Model(bundle), draw(200)
    assert (model.predict(best_theta(), x).argmax(1) == codes).mean() > 0.95


# Options --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--task", "steps", "--steps", "4"), "name the classes in the order of the outputs"),
        (("--names", "a,b"), "say how many steps a window has"),
        (("--task", "steps", "--names", "a", "--steps", "4"), "1 labels, expected names of 2"),
        (
            ("--task", "steps", "--names", "a,b", "--steps", "5"),
            "a window of 64 samples has no 5 steps of equal length",
        ),
        (("--task", "steps", "--names", "a,b", "--steps", "4", "--unit", "g"), "leave them out with --task steps"),
        (("--task", "steps", "--names", "a,b", "--steps", "4", "--loss", "huber"), "expected soft_cross_entropy"),
        (
            ("--task", "steps", "--names", "a,b", "--steps", "4", "--augment", "shift=0.1"),
            "moved in time has something else",
        ),
        (("--task", "labels", "--names", "a,b", "--steps", "4"), "say --task steps"),
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
    more = ("--input", "6", "--task", "steps", "--names", "a,b", "--steps", "4", "-o")
    assert main(["bundle", "compile", "mlp", *more, str(tmp_path / "x")]) == 2
    assert "returns (2,) per sample; return logits of the classes at each step, (2, 4)" in capsys.readouterr().err


def test_the_network_of_the_zoo_keeps_time(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="bundles are compiled here")
    path = tmp_path / "x.bundle"
    more = ("--input", "2,64", "--task", "steps", "--names", "a,b", "--steps", "16", "--search", "0", "-o", str(path))
    assert main(["bundle", "compile", "steps", *more]) == 0
    assert read_bundle(path).task == StepClasses(("a", "b"), 16)
    model, x = Model(path), np.random.default_rng(0).normal(size=(1, 2, 64)).astype(np.float32)
    theta = model.theta0 + np.random.default_rng(1).normal(0, 0.1, len(model.theta0)).astype(np.float32)
    other = x.copy()
    other[..., 62:] += 3
    changed = np.abs(model.predict(theta, x) - model.predict(theta, other)).max(1)[0]
    assert changed[15] > 1e-4 and changed[14] > 1e-6, "a step and those about it"
