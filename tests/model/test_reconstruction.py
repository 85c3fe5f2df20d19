"""The task of reconstructing a window: what a manifest says, what is abnormal, loss and gradient against torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.reconstruction import Reconstruction
from edge_sdk.model.tasks.task import read_task
from tests.reconstructions import NAMES, SHAPE, WAVES, best_theta, compile_waves, draw, samples


def test_a_manifest_says_the_quantile() -> None:
    assert read_task(WAVES.entry(), 0, SHAPE, SHAPE) == WAVES and WAVES.entry() == {
        "kind": "reconstruction",
        "quantile": 0.9,
    }


@pytest.mark.parametrize(
    ("entry", "output", "said"),
    [
        ({"kind": "reconstruction"}, SHAPE, "expected kind = 'reconstruction' and quantile"),
        ({"kind": "reconstruction", "quantile": 1.0}, SHAPE, "quantile = 1.0, expected a share between 0 and 1"),
        ({"kind": "reconstruction", "quantile": "0.9"}, SHAPE, "quantile = '0.9'"),
        ({"kind": "reconstruction", "quantile": float("nan")}, SHAPE, "quantile = nan"),
        (WAVES.entry(), (12,), r"the input is \(1, 12\) per sample and the output \(12,\)"),
    ],
)
def test_another_entry_is_refused(entry: dict[str, object], output: tuple[int, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_task(entry, 0, output, SHAPE)


def test_what_has_an_abnormal_label_is_left_out_of_training_and_judged_by() -> None:
    labels = ["", "walk", "Spike ", "spike", 3.5]
    assert WAVES.listed(labels, NAMES).tolist() == [True, True, False, False, True]
    assert WAVES.judged_by(labels, NAMES).all() and WAVES.listed(labels, NAMES[:1]).all()
    x = draw(5)
    truths = WAVES.truths(labels, NAMES, "a", x)
    assert WAVES.targets(labels, NAMES, "a", x) is x
    assert (truths["x"] == x).all() and truths["abnormal"].tolist() == [False, False, True, True, False]
    assert WAVES.fits(NAMES) and WAVES.fits(NAMES[:1]) and not WAVES.fits(("spike",)) and not WAVES.fits(())


def test_scores_of_judged_windows_and_the_limit_from_normal_ones() -> None:
    chosen, test = samples(50, 5, 1), samples(40, 10, 2)
    wanted, y = (WAVES.truths(part.labels, NAMES, "a", part.x) for part in (chosen, test))
    limit = WAVES.limit_of(wanted, np.zeros_like(chosen.x))
    assert limit == pytest.approx(np.quantile(np.square(chosen.x[:50], dtype=np.float64).mean((1, 2)), 0.9))
    sums = WAVES.judged(y, np.zeros_like(test.x), limit)
    assert (sums["normal"], sums["abnormal"]) == (40, 10)
    assert sums["error"] == pytest.approx(np.square(test.x[:40], dtype=np.float64).mean((1, 2)).sum())
    assert sums["variance"] == pytest.approx(test.x[:40].var(2, np.float64).mean(1).sum())
    assert WAVES.badness(sums) == sums["error"] and "alarms" not in WAVES.judged(y, np.zeros_like(test.x))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="a bundle is compiled here")
    return compile_waves(tmp_path_factory.mktemp("waves") / "waves.bundle")


def test_loss_and_gradient_are_those_of_torch(bundle: Path) -> None:
    import torch

    model, x = Model(bundle), draw(9)
    theta = (best_theta() + np.random.default_rng(0).normal(0, 0.3, model.theta0.shape)).astype(np.float32)
    weights = np.linspace(0.0, 0.3, 9).astype(np.float32)
    loss, grad = model.loss_grad(theta, x, x, weights)
    t = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    w1, b1, w2, b2 = t[:24].reshape(2, 12), t[24:26], t[26:50].reshape(12, 2), t[50:]
    own = torch.from_numpy(x.astype(np.float64))
    z = ((own.flatten(1) @ w1.T + b1) @ w2.T + b2).reshape(own.shape)
    wanted = (((z - own) ** 2).mean((1, 2)) * torch.from_numpy(weights)).sum()
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    assert grad == pytest.approx(t.grad.numpy(), rel=1e-4, abs=1e-6)


def test_a_score_counts_what_an_evaluation_tells(bundle: Path) -> None:
    model, x = Model(bundle), draw(60)
    assert read_bundle(bundle).task == WAVES
    found = model.score(x, x)(best_theta())
    errors = np.square(model.predict(best_theta(), x) - x).mean((1, 2), np.float64)
    assert errors.mean() < 0.02 < model.score(x, x)(model.theta0)["reconstruction_error"]
    assert found == pytest.approx(
        {
            "samples": 60.0,
            "loss": errors.sum(),
            "variance": x.var(2, np.float64).mean(1).sum(),
            "reconstruction_error": errors.mean(),
        },
        rel=1e-4,
    )
    told = WAVES.evaluate(x, model.predict(best_theta(), x), errors)
    assert told["quantile"] == pytest.approx(np.quantile(errors, 0.9)) and {*found} < {*told}


def test_a_wrong_shape_is_refused_with_both(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.errors import CompileError
    from edge_sdk.models.ir.specification.spec import Spec

    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 12)).eval()
    spec = Spec("flat", SHAPE, loss="mean_squared_error", task=Reconstruction())
    with pytest.raises(CompileError, match=r"a window is \(1, 12\), and the module returns \(12,\) per sample"):
        compile_module(net, spec)
    with pytest.raises(CompileError, match="loss huber with task reconstruction: expected mean_squared_error"):
        Spec("flat", SHAPE, loss="huber", task=Reconstruction())
