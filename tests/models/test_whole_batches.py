"""Statistics of a batch are those of all its samples: a step is not cut in pieces, and one value has no variance."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import BundleError, check_manifest
from edge_sdk.model.model import Model
from edge_sdk.model.whole_batches import find_least
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.nodes.kernels import plain

MOST = 4


def compile_net(folder, net, shape, **options):
    torch.manual_seed(0)
    compile_module(net.eval(), Spec("m", shape, norm="batch", **options)).save(folder / "m.bundle")
    return Model(folder / "m.bundle")


def draw(batch, shape):
    rng = np.random.default_rng(batch)
    return (3 * rng.standard_normal((batch, *shape)) + 1).astype(np.float32), rng.integers(0, 3, batch)


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """A module with one value of each sample and channel, and its bundle for steps of 4."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    return net, compile_net(tmp_path_factory.mktemp("dense"), net, (5,), max_batch=MOST)


def test_a_step_of_all_that_fit_is_torchs(dense):
    net, model = dense
    x, y = draw(MOST, (5,))
    loss, grad = model.grad_fn(x, y)(model.theta0)
    want = F.cross_entropy(net.train()(torch.from_numpy(x)), torch.from_numpy(y))
    grads = torch.cat([g.ravel() for g in torch.autograd.grad(want, list(net.parameters()))]).numpy()
    assert loss == pytest.approx(want.item(), rel=1e-5)
    np.testing.assert_allclose(grad, grads, atol=1e-5)


@pytest.mark.parametrize("batch", [MOST + 1, 2 * MOST])
def test_a_larger_step_is_refused(dense, batch):
    _, model = dense
    with pytest.raises(UsageError, match=rf"{batch} samples .* max_batch = {MOST}.*--max-batch {batch}"):
        model.grad_fn(*draw(batch, (5,)))(model.theta0)


def test_samples_beyond_a_step_are_no_fault(dense):
    _, model = dense
    assert np.isfinite(model.grad_fn(*draw(9, (5,)))(model.theta0, np.arange(3))[0])


def test_a_single_sample_is_refused(dense):
    _, model = dense
    assert find_least(model.bundle.manifest) == 2
    x, y = draw(1, (5,))
    with pytest.raises(UsageError, match="one value of each channel"):
        model.grad_fn(x, y)(model.theta0)
    for call in (model.loss_grad, model.loss_grad_buffers, model.vjp):
        with pytest.raises(UsageError, match="one value of each channel"):
            call(model.theta0, x, np.ones((1, 3), np.float32) if call == model.vjp else y)
    assert model.predict(model.theta0, x).shape == (1, 3)


def test_a_single_sample_with_several_positions_is_torchs(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))
    model = compile_net(tmp_path, net, (2, 8))
    assert "min_batch" not in model.bundle.manifest
    x, y = draw(1, (2, 8))
    want = F.cross_entropy(net.train()(torch.from_numpy(x)), torch.from_numpy(y)).item()
    assert model.grad_fn(x, y)(model.theta0)[0] == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize(("norm", "batch", "fits"), [("frozen", 65, True), ("batch", 64, True), ("running", 65, False)])
def test_a_run_with_batches_that_are_too_large_is_refused_before_it_starts(norm, batch, fits):
    bundle = SimpleNamespace(manifest={"name": "m", "norm": norm, "max_batch": 64}, is_split=False)
    if fits:
        plain.check(SimpleNamespace(method="fedavg"), SimpleNamespace(batch=batch), bundle)
        return
    with pytest.raises(UsageError, match=r"batch = 65 is above max_batch = 64 .* --max-batch 65"):
        plain.check(SimpleNamespace(method="fedavg"), SimpleNamespace(batch=batch), bundle)


@pytest.mark.parametrize(
    ("count", "batch", "said"),
    [
        (1, 4, "a step of 1 sample"),
        (3, 1, "a step of 1 sample"),
        (9, 0, "a step of 9"),
        (8, 4, ""),
        (7, 3, ""),
        (9, 4, "a step of 5 samples is above max_batch = 4"),
        (3, 20, ""),
    ],
)
def test_a_device_whose_samples_do_not_go_into_batches_says_so_before_it_begins(dense, count, batch, said):
    x, y = draw(count, (5,))
    parts = SimpleNamespace(model=dense[1], x=x, y=y, settings=SimpleNamespace(batch=batch), whose="device d")
    if not said:
        return plain.check_steps(parts)
    with pytest.raises(UsageError, match=rf"device d has {count} samples, batch = .*: m: {said}"):
        plain.check_steps(parts)


def test_one_layer_at_two_places_is_refused():
    norm = nn.BatchNorm1d(4)
    net = nn.Sequential(nn.Linear(5, 4), norm, nn.ReLU(), norm, nn.Linear(4, 3)).eval()
    with pytest.raises(UnsupportedPattern, match=r"called more than once.* a layer of its own"):
        compile_module(net, Spec("m", (5,), norm="batch"))


def test_a_manifest_with_another_least_batch_is_refused(dense):
    _, model = dense
    with pytest.raises(BundleError, match="min_batch = '3'"):
        check_manifest({**model.bundle.manifest, "min_batch": 3}, model.bundle.parts)
