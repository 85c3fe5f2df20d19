"""Label smoothing in the graph, against torch's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import CompileError, ParityError
from edge_sdk.models.ir.specification import losses
from edge_sdk.models.ir.specification.spec import Spec


def make_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)).eval()


def test_loss_and_gradient_are_torchs_and_scores_are_of_plain_labels():
    net = make_net()
    model = Model(parse(compile_module(net, Spec("m", (6,), smoothing=0.2)).data))
    x, y = np.random.default_rng(1).standard_normal((7, 6)).astype(np.float32), np.arange(7) % 4
    z = net(torch.from_numpy(x))
    want = F.cross_entropy(z, torch.from_numpy(y), label_smoothing=0.2)
    flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(want, list(net.parameters()))]).numpy()
    loss, grad = model.loss_grad(model.theta0, x, y)
    assert loss == pytest.approx(float(want.detach()), rel=1e-5)
    np.testing.assert_allclose(grad, flat, atol=1e-6)
    plain = float(F.cross_entropy(z.detach(), torch.from_numpy(y), reduction="sum"))
    assert model.score(x, y)(model.theta0)["loss"] == pytest.approx(plain, rel=1e-5)
    assert model.bundle.manifest["smoothing"] == 0.2


def test_a_wrong_share_is_caught(monkeypatch):
    wrong = losses.choose_loss
    monkeypatch.setattr("edge_sdk.models.derive.targets.choose_loss", lambda kind, s: wrong(kind, s * 1.01))
    with pytest.raises(ParityError):
        compile_module(make_net(), Spec("m", (6,), smoothing=0.2))


@pytest.mark.parametrize(
    "given", [{"smoothing": 1.0}, {"smoothing": -0.1}, {"smoothing": 0.1, "loss": "mean_squared_error"}]
)
def test_what_is_no_share_is_refused(given):
    with pytest.raises(CompileError, match="smoothing"):
        Spec("m", (6,), **given)
