"""HSGD over three tiers on a compiled split model, against gradient descent on the torch module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.algebra.metrics import classification
from edge_sdk.contract.loopback import Loopback
from edge_sdk.errors import UsageError
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd.messages import Embedding
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Settings
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.methods.shared.evaluation.reports import Report
from edge_sdk.model.bundle import parse
from edge_sdk.model.split_model import SplitModel
from edge_sdk.models.bundle.split import SplitNet, SplitSpec, compile_split
from edge_sdk.nodes.kernels import split as parties

SHAPES = {"hospital": (6,), "device": (4,)}
TREE = {"h0": ("d0", "d1", "d2"), "h1": ("d3", "d4")}
SAMPLES = {d: 2 + i % 3 for i, d in enumerate(d for ds in TREE.values() for d in ds)}


def module():
    torch.manual_seed(4)
    towers = {k: nn.Sequential(nn.Linear(*v, 5), nn.Tanh()) for k, v in SHAPES.items()}
    return SplitNet(towers, nn.Linear(10, 3)).eval()


def compiled(net, owners):
    return SplitModel(parse(compile_split(net, SplitSpec("two", SHAPES, owners)).data))


@pytest.fixture(scope="module")
def model():
    return compiled(module(), parties.PARTIES)


@pytest.fixture(scope="module")
def data():
    """Device -> (x1, x2, y) to train on, and to be judged on."""
    rng = np.random.default_rng(6)

    def drawn(count):
        x1, x2 = rng.normal(size=(count, 6)).astype(np.float32), rng.normal(size=(count, 4)).astype(np.float32)
        return x1, x2, rng.integers(0, 3, count)

    return {d: (drawn(k), drawn(4)) for d, k in SAMPLES.items()}


def envs_of(model, data, settings, rounds):
    split = parties.split_of(model)
    common = dict(seed=1, rounds=rounds, theta0=model.theta0, layout=model.layout, settings=settings, split=split)
    envs = {"aggregator": HSGD.env(**common, sizes={h: len(ds) for h, ds in TREE.items()})}
    for h, devices in TREE.items():
        (x1, _, y), (other, _, _) = (joined([data[d][k] for d in devices]) for k in (0, 1))
        ends = np.cumsum([0, *(SAMPLES[d] for d in devices)])
        rows = {d: np.arange(a, b) for d, a, b in zip(devices, ends[:-1], ends[1:], strict=True)}
        held = {d: np.arange(4 * i, 4 * i + 4) for i, d in enumerate(devices)}
        kernels = parties.hospital_kernels(model, x1, y, rows, [(other, held)])
        envs[h] = HSGD.env(**common, sizes=dict.fromkeys(devices, 1), **kernels)
        for d in devices:
            (_, x2, y), (_, other2, labels) = data[d]
            envs[d] = HSGD.env(**common, **parties.device_kernels(model, x2, y, [(other2, labels)]))
    return envs


def joined(parts):
    return tuple(np.concatenate([p[i] for p in parts]) for i in range(3))


def test_every_step_together_is_gradient_descent_on_the_module(model, data):
    envs = envs_of(model, data, Settings(eta=0.2), 5)
    net = Loopback(evaluated(HSGD), TREE, envs, {}, 0)
    trace = net.run()
    found = net.nodes["aggregator"].record.state.inner.theta
    torch_net, (x1, x2, y) = module(), joined([train for train, _ in data.values()])
    for _ in range(5):
        torch_net.zero_grad()
        loss = nn.functional.cross_entropy(torch_net(torch.from_numpy(x1), torch.from_numpy(x2)), torch.from_numpy(y))
        loss.backward()
        with torch.no_grad():
            for p in torch_net.parameters():
                p -= 0.2 * p.grad
    expected = np.concatenate([p.detach().numpy().ravel() for p in torch_net.parameters()])
    np.testing.assert_allclose(found, expected, atol=2e-6)
    (report,) = [m for _, m in trace.told if isinstance(m, Report)]
    o1, o2, labels = joined([test for _, test in data.values()])
    logits = model.logits(found, {"hospital": o1, "device": o2})
    whole = classification.summary(labels, logits)
    assert report.sums["samples"] == 20 and report.sums["global_correct"] == 20 * whole["accuracy"]
    assert np.isclose(report.sums["global_loss"] / 20, whole["loss"], atol=1e-5)
    assert abs(classification.binned_auc(report.sums, "global_") - whole["auc"]) < 0.05


def test_a_model_of_other_parties_is_refused():
    other = compiled(module(), {"hospital": ("hospital",), "device": ("device", "head")})
    with pytest.raises(UsageError, match="needs head, hospital, device"):
        parties.split_of(other)


def test_whole_columns_are_kept_by_the_bias_of_the_last_layer(model, data):
    """Zeta of a round after the first travels as few whole columns; a tower without such a bias is told at once."""
    for tower, features in SHAPES.items():
        slots = [s for s in model.layout.slots if s.group == tower]
        assert parties.last_bias(model, tower) == slice(5 * features[0], 5 * features[0] + 5) and slots[-1].size == 5
    envs = envs_of(model, data, Settings(eta=0.2, keep=0.4, columns=True), 3)
    net = Loopback(evaluated(HSGD), TREE, envs, {}, 0)
    trace = net.run()
    sent = [m.zeta_2 for sender, _, m in trace.crossed if sender == "d0" and isinstance(m, Embedding)]
    columns = [(compression.unpack(parcel) != 0).any(0).sum() for parcel in sent]
    assert columns[0] == 5 and set(columns[1:]) == {2}
    torch.manual_seed(4)
    net = SplitNet({k: nn.Sequential(nn.Linear(*v, 5, bias=False)) for k, v in SHAPES.items()}, nn.Linear(10, 3)).eval()
    with pytest.raises(UsageError, match="tower hospital has no bias"):
        parties.check_columns(compiled(net, parties.PARTIES))
