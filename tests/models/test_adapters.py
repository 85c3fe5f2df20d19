"""Low-rank adapters, which alone are trained, and batch normalisation without running statistics."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.cli import main
from edge_sdk.models.frontend.modules.lora import AdaptedLinear, add_adapters
from edge_sdk.models.ir.errors import CompileError, ParityError, UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.rules import RULES


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_qkv, self.mlp, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        q, k, v = self.attn_qkv(x).chunk(3, -1)
        return self.head(self.mlp((q @ k.transpose(1, 2)).softmax(-1) @ v).mean(1))


def make_block():
    torch.manual_seed(0)
    return Block().eval()


def compile_block(**given):
    return compile_module(make_block(), Spec("m", (5, 8), lora=2, target=["attn"], **given))


def test_only_adapters_are_trained():
    net = make_block()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    made = compile_module(net, Spec("m", (5, 8), lora=2, target=["attn"]))
    model = Model(parse(made.data))
    assert [s.name for s in model.layout.slots] == ["attn_qkv.lora_a", "attn_qkv.lora_b"]
    assert made.parameters == 2 * 8 + 24 * 2 and made.errors["float64"] <= 1e-9
    assert len(model.buffers0) == sum(v.numel() for v in before.values())
    x = torch.randn(4, 5, 8)
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(model.predict(model.theta0, x.numpy())), net(x), atol=1e-6)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items()), "the caller's module is not changed"


def test_a_new_head_is_trained_with_them():
    names = [s["name"] for s in parse_layout(compile_block(also=["head"]))]
    assert names == ["attn_qkv.lora_a", "attn_qkv.lora_b", "head.weight", "head.bias"]


def parse_layout(made):
    return [{"name": s.name} for s in parse(made.data).layout.slots]


def test_a_wrong_gradient_of_an_adapter_is_caught(monkeypatch):
    original = RULES["MatMul"]

    def broken(g, n, outs, want):
        return [v and g.scale(v, 1.001) for v in original(g, n, outs, want)]

    monkeypatch.setitem(RULES, "MatMul", broken)
    with pytest.raises(ParityError):
        compile_block()


class Idle(Block):
    def __init__(self):
        super().__init__()
        self.idle = nn.Linear(8, 8)


class Encoder(nn.Module):
    """Torch's own encoder layer, of which attention reads its weights and calls no layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


class Conv1D(nn.Module):
    """The linear layer of GPT-2 in transformers: its weight is (inputs, outputs)."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.weight, self.bias = nf, nn.Parameter(torch.randn(nx, nf) / 3), nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


ATTENDING = {
    "self_attn": (Encoder, ["self_attn", "self_attn.out_proj"]),
    "linear": (Encoder, ["linear1", "linear2"]),
    "c_attn": (
        lambda: nn.Sequential(OrderedDict(c_attn=Conv1D(12, 8), f=nn.Flatten(), head=nn.Linear(60, 3))),
        ["c_attn"],
    ),
}


@pytest.mark.parametrize("target", ATTENDING)
def test_adapters_where_weights_are_read_or_lie_the_other_way_round(target):
    make, layers = ATTENDING[target]
    torch.manual_seed(0)
    net = make().eval()
    made = compile_module(net, Spec("m", (5, 8), lora=2, target=[target], groups={}))
    model = Model(parse(made.data))
    names = [s.name.removeprefix("layer.") for s in model.layout.slots]
    assert names == [f"{layer}.lora_{half}" for layer in layers for half in "ab"] and made.errors["float64"] <= 1e-7
    x = torch.randn(4, 5, 8)
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(model.predict(model.theta0, x.numpy())), net(x), atol=1e-6)
    grad = model.loss_grad(model.theta0, x.numpy(), np.array([0, 1, 2, 0]), np.ones(4, np.float32))[1]
    parts = {s.name: grad[s.offset : s.offset + s.size] for s in model.layout.slots}
    assert all(np.any(v) == k.endswith("lora_b") for k, v in parts.items()), "B is zero, so that A has no gradient yet"


REFUSED = {
    "no linear layer has that in its path; there are attn_qkv, mlp, head": (Block, {"target": ["query"]}),
    "attn_qkv goes from 8 to 24; give a rank from 1": (Block, {"lora": 8}),
    "--also neck: there is no such layer": (Block, {"also": ["neck"]}),
    "idle: it is neither called nor read": (lambda: Idle(), {"target": ["idle"]}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_adapters_that_make_no_sense(words):
    make, change = REFUSED[words]
    with pytest.raises(CompileError, match=words):
        compile_module(make().eval(), Spec("m", (5, 8), **{"lora": 2, "target": ["attn"], **change}))


def test_a_layer_with_a_forward_of_its_own():
    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    with pytest.raises(CompileError, match="0: a Scaled has a forward of its own"):
        add_adapters(nn.Sequential(Scaled(8, 8)), 2, ["0"])


def test_a_rank_without_layers():
    with pytest.raises(CompileError, match="--lora 8 --target attn"):
        Spec("m", (5, 8), lora=2)


def test_the_command(tmp_path, monkeypatch):
    (tmp_path / "block_of_test.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))\n"
    )
    out = tmp_path / "m.bundle"
    given = ["--input", "6", "--lora", "2", "--target", "0", "--also", "2", f"{tmp_path / 'block_of_test.py'}:make"]
    assert main(["compile", *given, "-o", str(out)]) == 0
    names = [s.name for s in Model(out).layout.slots]
    assert names == ["0.lora_a", "0.lora_b", "2.weight", "2.bias"]
    assert issubclass(AdaptedLinear, nn.Linear)


def make_untracked():
    norm = nn.BatchNorm1d(4, track_running_stats=False)
    return nn.Sequential(nn.Conv1d(2, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)).eval()


def test_a_norm_without_running_statistics_is_refused_where_they_are_frozen():
    with pytest.raises(UnsupportedPattern, match=r"1: BatchNorm without running statistics.*--norm batch"):
        compile_module(make_untracked(), Spec("m", (2, 8)))


def test_a_norm_without_running_statistics_is_given_them_for_predictions():
    torch.manual_seed(0)
    net = make_untracked()
    made = compile_module(net, Spec("m", (2, 8), norm="batch"))
    model = Model(parse(made.data))
    assert made.errors["float64"] <= 1e-6 and net[1].running_mean is None
    x = torch.randn(5, 2, 8)
    loss, _, fresh = model.loss_grad_buffers(model.theta0, x.numpy(), torch.arange(5).numpy() % 3)
    want = nn.functional.cross_entropy(net(x), torch.arange(5) % 3)  # without statistics it always takes the batch's
    assert loss == pytest.approx(float(want.detach()), rel=1e-5)
    assert not (fresh == model.buffers0).all()
