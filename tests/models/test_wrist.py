"""The bundle in the repository is what its torch definition compiles to."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edge_sdk.model.bundle import parse, read_bundle
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.cli import main
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo import ZOO

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(7)
    return ZOO["wrist"].build().eval()


@pytest.fixture(scope="module")
def model():
    return Model(BUNDLE)


def test_compiling_afresh_gives_the_bundle_of_the_repository(net):
    entry = ZOO["wrist"]
    spec = Spec("wrist", (3, 64), 14, class_names=entry.class_names, signal=entry.signal)
    made = parse(compile_module(net, spec).data)
    kept = read_bundle(BUNDLE)
    assert made.manifest == kept.manifest
    assert made.sha256 == kept.sha256
    differing = [n for n in kept.parts if bytes(kept.parts[n]) != bytes(made.parts[n])]
    assert differing == []


def test_it_is_small_and_has_the_parameters_of_the_definition(net, model):
    assert BUNDLE.stat().st_size < 600_000
    assert model.layout.size == sum(p.numel() for p in net.parameters()) == 77_518
    assert [s.name for s in model.layout.slots] == [n for n, _ in net.named_parameters()]
    assert {s.kind for s in model.layout.slots} == {"conv", "norm", "linear", "bias"}
    assert {s.group for s in model.layout.slots} == {"body", "head"}


@pytest.mark.parametrize("batch", [1, 2, 20, 64])
def test_loss_and_gradient_are_torchs(net, model, batch):
    rng = np.random.default_rng(batch)
    x = rng.standard_normal((batch, 3, 64)).astype(np.float32)
    y, w = rng.integers(0, 14, batch), rng.uniform(0, 1, batch).astype(np.float32)
    z = net(torch.from_numpy(x))
    want = (torch.from_numpy(w) * F.cross_entropy(z, torch.from_numpy(y), reduction="none")).sum()
    grads = torch.autograd.grad(want, list(net.parameters()))
    flat = torch.cat([g.reshape(-1) for g in grads]).numpy()
    loss, grad = model.loss_grad(model.theta0, x, y, w)
    np.testing.assert_allclose(model.predict(model.theta0, x), z.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert loss == pytest.approx(float(want.detach()), rel=1e-5)
    assert np.linalg.norm(grad - flat) <= 1e-4 * np.linalg.norm(flat)


def test_training_lowers_the_loss(model):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 3, 64)).astype(np.float32), rng.integers(0, 14, 40)
    f, theta = model.grad_fn(x, y), model.theta0
    first = f(theta)[0]
    for _ in range(30):
        theta = theta - np.float32(0.05) * f(theta, rng.permutation(40)[:20])[1]
    assert f(theta)[0] < 0.8 * first


def test_the_command_line_writes_the_same_file(tmp_path, capsys):
    out = tmp_path / "w.bundle"
    assert main(["compile", "wrist", "--seed", "7", "--input", "3,64", "--classes", "14", "-o", str(out)]) == 0
    assert out.read_bytes() == BUNDLE.read_bytes()
    assert "77,518 parameters" in capsys.readouterr().out


def test_the_command_line_names_what_is_wrong(capsys):
    assert main(["compile", "nothing"]) == 2
    assert "CompileError: nothing" in capsys.readouterr().err
