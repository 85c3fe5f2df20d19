"""Further results of a module, whose losses are added to the loss: deep supervision, auxiliary heads, early exits."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import targets
from edge_sdk.models.ir.errors import CompileError, ParityError
from edge_sdk.models.ir.specification.losses import write_losses
from edge_sdk.models.ir.specification.spec import Spec


class Exits(nn.Module):
    """Logits after each of three blocks; the first block is before the first trained parameter."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv1d(2, 4, 3), nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 3)
        self.early, self.middle, self.head = (nn.Linear(4, 3) for _ in range(3))
        self.drop = nn.Dropout(0.25)
        self.a.requires_grad_(False)

    def forward(self, x):
        first = self.a(x.abs()).relu()
        second = self.drop(self.b(first).relu())
        exits = {"early": self.early(first.mean(-1)), "middle": self.middle(second.mean(-1))}
        return {"logits": self.head(self.c(second).mean(-1)), "features": second.mean(-1), **exits}


HEADS = {"early": 0.25, "middle": 0.5}
FORMS = [{"dropout": "off"}, {"dropout": "keep", "native": True, "blocked": True}]


@pytest.mark.parametrize("form", FORMS)
def test_a_bundle_trains_as_torch_with_the_weighted_sum_of_losses(form):
    torch.manual_seed(1)
    net = Exits().eval()
    model = Model(parse(compile_module(net, Spec("net", (2, 40), heads=HEADS, **form), search=2).data))
    assert model.bundle.own_gradient
    assert {*model.bundle.parts} >= {"vjp.onnx", "loss_grad@early.onnx"}
    x, y, theta = torch.randn(9, 2, 40), torch.arange(9) % 3, model.theta0.copy()
    trained = [p for p in net.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=0.3)
    for _ in range(4):
        theta -= 0.3 * model.loss_grad(theta, x.numpy(), y.numpy())[1]
        optimiser.zero_grad()
        made = net(x)
        weighted = [w * F.cross_entropy(made[k], y) for k, w in HEADS.items()]
        (F.cross_entropy(made["logits"], y) + sum(weighted)).backward()
        optimiser.step()
    want = np.concatenate([p.detach().numpy().ravel() for p in trained])
    assert np.abs(theta - want).max() < 1e-5
    assert np.abs(model.predict(theta, x.numpy()) - net(x)["logits"].detach().numpy()).max() < 1e-5


def test_a_weight_that_is_lost_is_caught(monkeypatch):
    monkeypatch.setattr(targets, "write_losses", lambda g, loss, output, heads: write_losses(g, loss, output, [1, 1]))
    with pytest.raises(ParityError, match="float64"):
        compile_module(Exits().eval(), Spec("net", (2, 8), heads=HEADS, dropout="off"), search=0)


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ({"features": 1.0}, r"heads: features is \(4,\) for a sample, the result that counts \(3,\)"),
        ({"logits": 1.0}, "another result"),
        ({"late": 1.0}, "no result 'late'"),
        ({"early": -1.0}, "a weight above 0"),
    ],
)
def test_heads_that_make_no_sense_are_refused(heads, words):
    with pytest.raises(CompileError, match=words):
        compile_module(Exits().eval(), Spec("net", (2, 8), heads=heads, dropout="off"), search=0)
