"""Split models: what each party computes from its own data and the others' embeddings is the joint model's gradient."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import BundleError, parse
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel
from edge_sdk.models.bundle.split import SplitNet, SplitSpec, compile_split
from edge_sdk.models.ir.errors import CompileError

SHAPES = {"hospital": (6,), "device": (4,), "home": (3,)}
PARTIES = {"hospital": ("head", "hospital"), "device": ("device",), "home": ("home",)}


def tower(inputs):
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh())


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(2)
    return SplitNet({k: tower(*v) for k, v in SHAPES.items()}, nn.Linear(15, 3)).eval()


@pytest.fixture(scope="module")
def model(net):
    return SplitModel(parse(compile_split(net, SplitSpec("three", SHAPES, PARTIES)).data))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    return {k: rng.standard_normal((9, *v)).astype(np.float32) for k, v in SHAPES.items()}, rng.integers(0, 3, 9)


def test_three_towers_and_their_owners(model):
    assert model.towers == ("hospital", "device", "home")
    assert model.parties == PARTIES
    assert {s.group for s in model.layout.slots} == {"head", "hospital", "device", "home"}


@pytest.mark.parametrize("party", PARTIES)
def test_every_party_gets_its_part_of_the_joint_gradient(model, net, data, party):
    x, y = data
    z = net(*(torch.from_numpy(v) for v in x.values()))
    want = nn.functional.cross_entropy(z, torch.from_numpy(y))
    grads = dict(zip(dict(net.named_parameters()), torch.autograd.grad(want, list(net.parameters())), strict=True))
    theta = {g: model.group(model.theta0, g) for g in ("head", *SHAPES)}
    own = [t for t in SHAPES if t in PARTIES[party]]
    others = {t: model.embed(t, theta[t], x[t]) for t in SHAPES if t not in own}
    held = {g: theta[g] for g in {"head", *own}}
    loss, got = model.party_grad(party, held, {t: x[t] for t in own}, others, y)
    assert loss == pytest.approx(float(want.detach()), rel=1e-5)
    assert set(got) == set(PARTIES[party])
    for group, grad in got.items():
        parts = [g.reshape(-1).numpy() for n, g in grads.items() if n.startswith(group + ".")]
        np.testing.assert_allclose(grad, np.concatenate(parts), atol=1e-6)


@pytest.mark.parametrize("party", PARTIES)
def test_every_party_predicts_with_the_others_embeddings(model, data, party):
    x, _ = data
    theta = {g: model.group(model.theta0, g) for g in ("head", *SHAPES)}
    own = [t for t in SHAPES if t in PARTIES[party]]
    others = {t: model.embed(t, theta[t], x[t]) for t in SHAPES if t not in own}
    got = model.party_logits(party, {g: theta[g] for g in {"head", *own}}, {t: x[t] for t in own}, others)
    np.testing.assert_allclose(got, model.logits(model.theta0, x), atol=1e-6)


def test_the_joint_output_is_the_modules(model, net, data):
    x = data[0]
    want = net(*(torch.from_numpy(v) for v in x.values())).detach().numpy()
    np.testing.assert_allclose(model.logits(model.theta0, x), want, atol=1e-5)


def test_what_is_missing_or_of_another_shape_is_named(model, data):
    x, y = data
    theta = {g: model.group(model.theta0, g) for g in ("head", "device")}
    with pytest.raises(UsageError, match=r"z\.hospital, z\.home is missing"):
        model.party_grad("device", theta, {"device": x["device"]}, {}, y)
    embeddings = {"hospital": np.zeros((9, 5), np.float32), "home": np.zeros((9, 4), np.float32)}
    with pytest.raises(UsageError, match=r"z\.home: expected float \(9, 5\), got float32 \(9, 4\)"):
        model.party_grad("device", theta, {"device": x["device"]}, embeddings, y)
    with pytest.raises(UsageError, match="no group 'roof'"):
        model.group(model.theta0, "roof")


def test_other_bundles_are_no_split_models():
    from pathlib import Path

    wrist = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
    assert Model(wrist).name == "wrist"
    with pytest.raises(BundleError, match="wrist is no split model"):
        SplitModel(wrist)


@pytest.mark.parametrize(
    ("inputs", "parties", "words"),
    [
        ({"hospital": (6,)}, PARTIES, "the towers are hospital, device, home"),
        (SHAPES, {"hospital": ("roof",)}, r"party 'hospital' owns \['roof'\]"),
        (SHAPES, {"hospital": ()}, "owns nothing"),
    ],
)
def test_specs_that_do_not_fit(net, inputs, parties, words):
    with pytest.raises(CompileError, match=words):
        compile_split(net, SplitSpec("three", inputs, parties))


class Counted(nn.Linear):
    """Something else from the hundredth call on."""

    def __init__(self):
        super().__init__(4, 5)
        self.seen = []

    def forward(self, x):
        self.seen += [0] * self.training
        return super().forward(x) * (1 + len(self.seen) // 100)


class Branching(nn.Linear):
    """Something else in training."""

    def forward(self, x):
        return super().forward(x) * (2 if self.training else 1)


class Weighed(nn.Linear):
    """A gradient that depends on the other samples."""

    def forward(self, x):
        h, share = super().forward(x), x[:, :1].abs() / x[:, :1].abs().mean()
        return h.detach() + share * (h - h.detach())


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Counted, r"^device: self\.seen in Python"),
        (Branching, r"^device: does something else in training"),
        (lambda: Weighed(4, 5), "gradient of a sample changes .* .device: mean over the samples"),
        (lambda: nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.1)), r"^device\.1: Dropout"),
    ],
)
def test_a_tower_that_would_train_otherwise_than_in_torch_is_refused(part, words):
    part = part() if part is not Branching else Branching(4, 5)
    net = SplitNet({"device": part, "home": tower(3)}, nn.Linear(10, 3)).eval()
    shapes, parties = {"device": (4,), "home": (3,)}, {"device": ("head", "device"), "home": ("home",)}
    with pytest.raises(CompileError, match=words):
        compile_split(net, SplitSpec("two", shapes, parties))
