"""Modules that cannot be compiled are refused by name, with the place in the module and advice."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import (
    BatchSpecialised,
    CompileError,
    DataDependentControlFlow,
    DetachedGradient,
    TrainModeExport,
    UnsupportedOperator,
    UnsupportedPattern,
)
from edge_sdk.models.ir.specification.spec import Spec
from tests.models.module_check import Net, measure_error


def inner(f):
    """A function inside a submodule, so that refusals can name it."""

    class Inner(nn.Module):
        def forward(self, h):
            return f(h)

    return Net(None, extra=Inner())


FUNCTIONS = {
    "item": (lambda h: h * h.max().item(), DetachedGradient, "extra: item"),
    "log of gamma": (lambda h: torch.lgamma(h.abs() + 1), UnsupportedOperator, "extra: operator lgamma"),
    "mean of the batch": (lambda h: h - h.mean(0), UnsupportedPattern, "batch axis; samples of a batch"),
    "first sample": (lambda h: h * h[0:1], UnsupportedPattern, "batch axis"),
    "branch on data": (lambda h: h if h.sum() > 0 else -h, DataDependentControlFlow, "torch.where"),
    "shape from data": (lambda h: h[:, : int(h.sum())], DataDependentControlFlow, "values"),
    "complex numbers": (
        lambda h: torch.log(h * 1j),
        UnsupportedPattern,
        "extra: log of complex numbers; write real",
    ),
    "places found": (
        lambda h: h.index_add(0, (r := (h[:, 0] > 0).nonzero().flatten()), h[r]),
        UnsupportedPattern,
        "extra: nonzero, whose number of results depends on values; compute all, and use torch.where",
    ),
    "places found and written to": (
        lambda h: torch.zeros_like(h).index_put((torch.where(h[:, 0] > 0)[0],), torch.ones(())) * h,
        UnsupportedPattern,
        "extra: where, whose number of results depends on values",
    ),
    "fixed batch": (lambda h: h.reshape(37, -1), BatchSpecialised, r"extra: works for one batch size"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    f, error, words = FUNCTIONS[name]
    with pytest.raises(error, match=words):
        measure_error(inner(f), (8,))


class Packed(nn.Module):
    """An LSTM on a packed sequence."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(2, 6, batch_first=True)

    def forward(self, h):
        lengths = torch.full((h.shape[0],), 3)
        steps = nn.utils.rnn.pack_padded_sequence(h.reshape(-1, 3, 2), lengths, batch_first=True)
        return self.layer(steps)[1][0][0]


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.EmbeddingBag(10, 6)

    def forward(self, h):
        return self.rows(h.abs().long().clamp(max=9)) + h


def sample_cubic(h):
    places = h.reshape(-1, 1, 3, 2).expand(-1, 2, -1, -1)
    return F.grid_sample(h.reshape(-1, 1, 2, 3), places, "bicubic", align_corners=False).flatten(1)


EYE = torch.eye(6)
SAYS = {
    "packed sequence": (Net(None, extra=Packed()), DataDependentControlFlow, "^extra.layer: .* the padded one"),
    "bag": (Net(None, extra=Bag()), UnsupportedOperator, r"^extra.rows: operator embedding_bag .*mean\(1\)"),
    "cubic samples": (inner(sample_cubic), UnsupportedOperator, "^extra: operator GridSample .* bilinear or nearest"),
    "numpy": (
        inner(lambda h: h * torch.from_numpy(h.detach().numpy())),
        CompileError,
        "^extra: .*functions of tensors",
    ),
    "loop": (inner(lambda h: torch.stack([row * 2 for row in h])), BatchSpecialised, "^extra: .* do not loop over"),
    "mask": (inner(lambda h: h * h[h > 0].sum()), UnsupportedPattern, r"^extra: values read by a mask, .* multiply by"),
    "quantile": (
        inner(lambda h: h * h.quantile(0.3, 0, keepdim=True)),
        CompileError,
        "^extra: ",
    ),
    "singular values": (inner(lambda h: torch.linalg.svdvals(h[:, None]) * h), UnsupportedOperator, "apart"),
    "Python number": (
        inner(lambda h: h.reshape(len(h), 2, -1)[:, : int(h.abs().mean(0).topk(1).indices[0].item()) + 1].flatten(1)),
        DataDependentControlFlow,
        r"^extra: a Python number is computed from values \(.*topk.*\.item\(\)",
    ),
    "kernel of each sample": (
        inner(
            lambda h: F.conv1d(h[None], h[:, None, :3], groups=h.shape[0]).reshape(h.shape[0], -1).repeat(1, 2)[:, :6]
        ),
        UnsupportedPattern,
        "^extra: conv1d with a number of groups that grows with the batch; .*unfold",
    ),
    "vmap": (inner(lambda h: torch.vmap(torch.tanh)(h)), UnsupportedPattern, r"^extra: torch\.vmap, .* as an axis"),
    "one precision": (inner(lambda h: h @ EYE), CompileError, "runs in one precision only"),
    "half precision": (inner(lambda h: h.half() * h), UnsupportedPattern, "^extra: a conversion to float16 .*float32"),
    "bytes": (inner(lambda h: h.round().byte() * h), UnsupportedPattern, r"^extra: a conversion to uint8 .*\.long\(\)"),
    "shift": (inner(lambda h: (h.long() << 1) * h), UnsupportedPattern, r"^extra: a conversion to uint64 .*shifts"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SAYS)
def test_errors_say_where_and_what_to_do(name):
    net, error, words = SAYS[name]
    with pytest.raises(error, match=words) as told:
        measure_error(net, (8,))
    assert "\n" not in str(told.value)


MODULES = {
    "dropout": (lambda: nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.5)), TrainModeExport, r"1: Dropout\(p=0.5\)"),
    "attention dropout": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 8, 0.1, batch_first=True)),
        TrainModeExport,
        "self_attn: MultiheadAttention.* --dropout off",
    ),
    "gru dropout": (lambda: nn.Sequential(nn.GRU(8, 3, 2, dropout=0.1)), TrainModeExport, r"0: GRU\(p=0.1\)"),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, error, words = MODULES[name]
    with pytest.raises(error, match=words):
        measure_error(make(), (8,))


def test_a_module_in_training_mode():
    with pytest.raises(TrainModeExport, match=r"call eval\(\)"):
        compile_module(nn.Sequential(nn.Linear(8, 3)).train(), Spec("m", (8,)))


def test_dropout_by_the_function_in_training_mode_is_refused_by_the_gate_or_before():
    with pytest.raises(CompileError):
        measure_error(inner(lambda h: F.dropout(h, 0.5, training=True)), (8,))


def test_classes_that_the_module_does_not_return():
    with pytest.raises(CompileError, match="classes = 4, but the module returns 3"):
        compile_module(Net(lambda h: h).eval(), Spec("m", (8,), classes=4))


def test_cross_entropy_of_images():
    net = nn.Sequential(nn.Conv1d(2, 4, 3))
    with pytest.raises(CompileError, match="cross entropy needs an output of") as told:
        compile_module(net.eval(), Spec("m", (2, 9)))
    assert "--loss soft_cross_entropy" in str(told.value)
    with pytest.raises(CompileError, match="cross entropy needs an output of"):
        compile_module(net.eval(), Spec("m", (2, 9), classes=4))


def test_labels_of_positions_are_trained_with_the_loss_that_is_named():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv1d(2, 4, 3)).eval()
    model = Model(parse(compile_module(net, Spec("m", (2, 9), loss="soft_cross_entropy"), search=2).data))
    x, labels = torch.randn(5, 2, 9), torch.randint(0, 4, (5, 7))
    y = F.one_hot(labels, 4).transpose(1, 2).float()
    F.cross_entropy(net(x), labels).backward()
    want = np.concatenate([p.grad.numpy().ravel() for p in net.parameters()])
    assert np.allclose(model.loss_grad(model.theta0, x.numpy(), y.numpy())[1], want, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"), [({"loss": "hinge"}, "loss 'hinge'"), ({"input": ()}, "shape of one sample")]
)
def test_specs_that_make_no_sense(change, words):
    with pytest.raises(CompileError, match=words):
        Spec(**{"name": "m", "input": (8,), **change})


def test_features_of_a_layer_that_is_not_there():
    with pytest.raises(CompileError, match="no layer 'neck' in the graph; there are a"):
        compile_module(Net(torch.relu).eval(), Spec("m", (8,), features="neck"))
