"""Running statistics of batch normalisation as part of theta, against torch's training mode over several steps."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.training.parts import parts, taken
from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.passes.convolutions import batch_norm

STEP = 0.1


def make_net(momentum: float = 0.1) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4, momentum=momentum), nn.ReLU(), nn.Flatten(),
        nn.Linear(32, 6), nn.BatchNorm1d(6, momentum=0.02), nn.Linear(6, 3),
    )  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(parse(compile_module(make_net().eval(), Spec("m", (2, 8), norm="running")).data))


def draw(seed: int, count: int = 12) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return (3 * random.standard_normal((count, 2, 8)) + 5).astype(np.float32), random.integers(0, 3, count)


def train_torch(steps: int) -> nn.Module:
    """The network after plain descent in training mode, then in evaluation mode."""
    net = make_net().train()
    optimiser = torch.optim.SGD(net.parameters(), lr=STEP)
    for step in range(steps):
        x, y = draw(step)
        optimiser.zero_grad()
        F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimiser.step()
    return net.eval()


def train_bundle(model: Model, steps: int) -> np.ndarray:
    theta = model.theta0.copy()
    for step in range(steps):
        theta -= STEP * model.grad_fn(*draw(step))(theta)[1]
    return theta


def test_descent_is_torchs_training_mode_and_evaluation_uses_what_it_kept(model):
    net, theta, (x, _) = train_torch(6), train_bundle(model, 6), draw(99)
    for index in (1, 5):
        for kept in ("running_mean", "running_var"):
            slot = next(s for s in model.layout.slots if s.name == f"{index}.{kept}")
            want = getattr(net[index], kept).numpy()
            np.testing.assert_allclose(theta[slot.span], want, rtol=1e-5, atol=1e-5)
    want = net(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(model.predict(theta, x), want, atol=2e-4)
    assert np.abs(model.predict(model.theta0, x) - want).max() > 0.1  # statistics that nobody moved are of no use


def test_a_batch_in_weighted_parts_moves_statistics_once(model):
    """Weights that add up to 1 over two equal halves: statistics go half of the way to each half's."""
    x, y = draw(1, 12)
    slot = next(s for s in model.layout.slots if s.name == "1.running_mean")
    halves = [model.loss_grad(model.theta0, x[k : k + 6], y[k : k + 6], np.full(6, 1 / 12))[1] for k in (0, 6)]
    whole = model.loss_grad(model.theta0, x, y)[1]
    np.testing.assert_allclose(sum(halves)[slot.span], whole[slot.span], rtol=1e-5)


def test_other_losses_leave_statistics_alone(model):
    x, _ = draw(2)
    grad = model.vjp(model.theta0, x, np.ones((12, 3), np.float32))[1]
    assert all(not grad[s.span].any() for s in model.layout.slots if "running" in s.name)


def test_what_an_optimiser_makes_of_a_variance_is_never_below_zero(model):
    theta, (x, y) = model.theta0.copy(), draw(3)
    for s in (s for s in model.layout.slots if s.name.endswith("running_var")):
        theta[s.span] = -0.5
    assert np.isfinite(model.predict(theta, x)).all() and np.isfinite(model.loss_grad(theta, x, y)[1]).all()


def test_one_sample_has_no_variance_and_is_refused_as_in_torch(model):
    x, y = draw(4, 1)
    with pytest.raises(UsageError, match="one value of each channel"):
        model.loss_grad(model.theta0, x, y)


def test_methods_that_keep_normalisation_keep_its_statistics(model):
    """FedBN's words: scale, shift, mean and variance of both layers stay, and nothing else."""
    stays = parts(model.layout, "norm").personal
    assert len(taken(model.theta0, stays)) == 4 * 4 + 4 * 6
    assert model.bundle.manifest["buffers"] == 0


def test_the_caller_keeps_no_statistics(model):
    with pytest.raises(UsageError, match="running statistics"):
        model.loss_grad_buffers(model.theta0, *draw(0))


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("write_pull", lambda original: lambda g, old, new, m: original(g, new, old, m)),
        ("write_pull", lambda original: lambda g, old, new, m: original(g, old, new, 2 * m)),
        ("correct_bias", lambda original: lambda g, count: g.scalar(1)),
    ],
)
def test_a_wrong_step_of_statistics_is_caught(monkeypatch, name, broken):
    """Towards the wrong side, by twice the momentum, and with the biased variance."""
    from edge_sdk.models.derive import targets

    for home in (targets, batch_norm):
        if hasattr(home, name):
            monkeypatch.setattr(home, name, broken(getattr(batch_norm, name)))
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)).eval()
    with pytest.raises(ParityError, match="running_"):
        compile_module(net, Spec("m", (5,), norm="running"))
