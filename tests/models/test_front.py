"""The front of a module: where it is cut, and that graphs which begin behind it give the same bits."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.manifest import FROM_FRONT, FRONT, read_front, sample_bytes
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import tensors
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo import ZOO
from tests.models.blocked_layout import skip_without_blocks

COUNT = 45


def frozen_body(unit=nn.ReLU, norm=True):
    layers = [
        nn.Conv1d(3, 8, 5, padding=2),
        *([nn.BatchNorm1d(8)] if norm else []),
        unit(),
        nn.MaxPool1d(4),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers).requires_grad_(False)


class NewHead(nn.Module):
    """A frozen body, and behind it dropout and a head that is trained."""

    def __init__(self, unit=nn.ReLU, share=0.0):
        super().__init__()
        self.body, self.drop = frozen_body(unit), nn.Dropout(share)
        self.head = nn.Sequential(nn.Linear(128, 9), nn.ReLU(), nn.Linear(9, 4))

    def forward(self, x):
        return self.head(self.drop(self.body(x)))


class DropsInside(NewHead):
    """Dropout between two frozen layers."""

    def __init__(self):
        super().__init__(share=0.4)
        self.later = nn.Linear(128, 128).requires_grad_(False)

    def forward(self, x):
        return self.head(self.later(self.drop(self.body(x))))


class TwoInputs(nn.Module):
    """A spectrum of a signal, and tokens of an embedding that is trained; a mask hides some of them."""

    def __init__(self):
        super().__init__()
        self.body, self.table, self.head = frozen_body(norm=False), nn.Embedding(11, 5), nn.Linear(133, 4)

    def forward(self, x, ids):
        shown = (ids > 2).unsqueeze(2)
        return self.head(torch.cat([self.body(x), (self.table(ids) * shown).sum(1)], 1))


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = frozen_body(nn.Tanh), nn.Linear(128, 2)

    def forward(self, x):
        return self.head(self.body(x))


class Scaled(nn.Module):
    """One scaling before the first layer: to keep it would take as much as the data."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(192, 4)

    def forward(self, x):
        return self.head(x.flatten(1) * 0.1)


class Large(nn.Module):
    """A frozen layer that makes so much of a sample that to keep it is senseless."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Conv1d(3, 96, 5, padding=2).requires_grad_(False), nn.Conv1d(96, 4, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x))).mean(2)


def zoo(name):
    return ZOO[name].build()


SHAPE = (3, 64)
CUT = {
    "features": (lambda: zoo("features"), SHAPE, 14, {}),
    "features beside the data": (lambda: zoo("features-conv"), SHAPE, 14, {}),
    "new head": (NewHead, SHAPE, 4, {}),
    "new head behind GELU": (lambda: NewHead(nn.GELU), SHAPE, 4, {}),
    "dropout after the front": (lambda: NewHead(share=0.3), SHAPE, 4, {"dropout": "keep"}),
    "adapters": (lambda: zoo("transformer"), (32, 12), 5, {"lora": 2, "target": ["linear"]}),
    "two inputs": (TwoInputs, {"x": SHAPE, "ids": (6,)}, 4, {"below": {"ids": 11}}),
    "regression": (Regression, SHAPE, 0, {"loss": "mean_squared_error"}),
}
WHOLE = {
    "wrist": (lambda: zoo("wrist"), SHAPE, 14, {}),
    "statistics of the batch": (NewHead, SHAPE, 4, {"norm": "batch"}),
    "statistics in theta": (NewHead, SHAPE, 4, {"norm": "running"}),
    "one scaling": (Scaled, SHAPE, 4, {}),
    "too much to keep": (Large, SHAPE, 4, {}),
    "native": (NewHead, SHAPE, 4, {"native": True}),
}


def compiled(build, shape, classes, settings, progress=lambda text: None):
    torch.manual_seed(5)
    spec = Spec("net", shape, classes, **settings)
    return parse(compile_module(build().eval(), spec, progress=progress, search=1).data)


@pytest.fixture(scope="module", params=CUT)
def model(request):
    return Model(compiled(*CUT[request.param]))


def drawn(model, count=COUNT):
    """Samples, targets and some parameters."""
    random, inputs = np.random.default_rng(6), {}
    for i in model.bundle.manifest["inputs"]:
        shape = (count, *i["shape"])
        floats = random.standard_normal(shape).astype(np.float32)
        inputs[i["name"]] = random.integers(0, i["below"], shape) if i["below"] else floats
    x = inputs if len(inputs) > 1 else inputs["x"]
    y = random.standard_normal((count, *model.output_shape)).astype(np.float32)
    theta = model.theta0 + random.normal(0, 0.1, model.theta0.size).astype(np.float32)
    return x, random.integers(0, model.classes, count) if model.classes else y, theta


def without(model):
    """The same bundle as a release without fronts reads it."""
    found = Model(model.bundle)
    found.has_front = False
    return found


def test_gradients_behind_the_front_have_the_bits_of_those_from_the_data(model):
    x, y, theta = drawn(model)
    steps = [np.array(rows) for rows in ([7], [3, 3, 40], range(20), range(COUNT))]
    bound = model.bind(x)
    assert bound.choose("loss_grad") == f"loss_grad{FROM_FRONT}"
    some, others = model.grad_fn(bound, y), without(model).grad_fn(x, y)
    for rows in steps:
        found, wanted = (f(theta, rows, np.random.default_rng(1)) for f in (some, others))
        assert found[0] == wanted[0] and found[1].tobytes() == wanted[1].tobytes(), len(rows)


def test_judging_behind_the_front_has_the_bits_of_that_from_the_data(model):
    x, y, theta = drawn(model)
    bound = model.bind(x)
    assert bound.choose("predict") == f"predict{FROM_FRONT}"
    assert model.predict_fn(bound)(theta).tobytes() == model.predict(theta, x).tobytes()
    assert model.score(bound, y)(theta) == without(model).score(x, y)(theta)


def test_the_front_of_a_sample_does_not_depend_on_the_others(model):
    x, _, _ = drawn(model)
    rows = model.samples(x)
    kept = model.front(x)
    assert len(kept) == COUNT and kept.nbytes == COUNT * model.front_bytes > 0
    assert kept.tobytes() == np.concatenate([model.front(rows[i : i + 4]) for i in range(0, COUNT, 4)]).tobytes()


def test_graphs_from_the_data_are_there_as_before(model):
    graphs = model.bundle.manifest["graphs"]
    assert {"predict", "loss_grad", "vjp", FRONT, f"loss_grad{FROM_FRONT}", f"predict{FROM_FRONT}"} <= {*graphs}
    assert {i["name"] for i in graphs["loss_grad"]["inputs"]} >= {i["name"] for i in model.bundle.manifest["inputs"]}
    assert not {i["name"] for i in graphs[f"loss_grad{FROM_FRONT}"]["inputs"]} & {"x"}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_not_worth_it_or_not_the_same_is_left_whole(name):
    with skip_without_blocks():
        bundle = compiled(*WHOLE[name])
    assert read_front(bundle.manifest) == () and not any("front" in graph for graph in bundle.manifest["graphs"])
    model = Model(bundle)
    assert not model.has_front and model.front_bytes == 0


def test_dropout_inside_ends_the_front_before_it():
    bundle = compiled(DropsInside, SHAPE, 4, {"dropout": "keep"})
    entry = bundle.manifest["graphs"]
    assert {i["name"] for i in entry[FRONT]["inputs"]} <= {"x", "buffers"}
    assert "masks" in {i["name"] for i in entry[f"loss_grad{FROM_FRONT}"]["inputs"]}
    model = Model(bundle)
    x, y, theta = drawn(model)
    found, wanted = (m.grad_fn(x, y)(theta, None, np.random.default_rng(2)) for m in (model, without(model)))
    assert model.has_front and found[0] == wanted[0] and found[1].tobytes() == wanted[1].tobytes()
    assert model.predict_fn(x)(theta).tobytes() == model.predict(theta, x).tobytes()


def test_graphs_behind_the_front_take_the_tensors_of_theta_one_by_one_where_others_do(monkeypatch):
    monkeypatch.setattr(tensors, "LEAST", 0)
    monkeypatch.setattr(tensors, "EACH", 0)
    bundle = compiled(*CUT["new head"])
    assert tensors.PREFIX + "head.0.weight" in {
        t["name"] for t in bundle.manifest["graphs"][f"loss_grad{FROM_FRONT}"]["tensors"]
    }
    model = Model(bundle)
    x, y, theta = drawn(model)
    assert model.has_front
    assert model.grad_fn(x, y)(theta)[1].tobytes() == without(model).grad_fn(x, y)(theta)[1].tobytes()


def test_the_compiler_says_what_is_kept():
    lines = []
    bundle = compiled(*CUT["features"], progress=lines.append)
    assert any("computed once for each sample, kept: float32 (87,)" in line for line in lines)
    assert sample_bytes(read_front(bundle.manifest)) == 4 * 87
