"""Clients of dense layers that train in one call: within rounding of single steps, whoever else is in the call."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("torch", reason="networks are compiled with it")

from torch import nn

from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.training.local import batches
from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive.dense import read_dense_layers
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.replay.planning.bundles import compile_network, find_shipped_bundle
from edge_sdk.simulation.training.batched_clients import WantedSteps, make_lockstep
from edge_sdk.simulation.training.dense_clients import DenseGradient, DenseTraining, find_dense_layers
from edge_sdk.simulation.training.epochs import TrainingCalls, descend_singly

INPUTS, CLASSES = 30, 3
ROUNDING = 1e-5
"""Most that a client's way may be apart from single steps, in lengths of the way."""


def chain_of(tmp_path, sizes, relu=True, **more):
    """The model of a chain of dense layers."""
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU() if relu else nn.Identity())]
    compiled = compile_module(nn.Sequential(*layers[:-1]).eval(), Spec("chain", (sizes[0],), **more))
    path = tmp_path / "chain.bundle"
    path.write_bytes(compiled.data)
    return Model(path)


@pytest.fixture(scope="module")
def model():
    return Model(compile_network("mlp", ["--input", str(INPUTS), "--classes", str(CLASSES)], 3, print))


def training_of(model):
    return DenseTraining(model, find_dense_layers(model), TrainingCalls())


def wanted_by(training, count, seed, terms=None, batch=7, epochs=2, eta=0.05):
    """The steps of a client with so many samples, and its gradient for one."""
    random, model = np.random.default_rng(seed), training.model
    x = random.standard_normal((count, *model.input_shape)).astype(np.float32)
    y = random.integers(0, model.classes, count)
    step = model.grad_fn(x, y)
    rows = [np.arange(count) if row is None else row for row in batches(random, count, batch, epochs)]
    start = model.theta0 + 0.01 * random.standard_normal(model.layout.size).astype(np.float32)
    terms = {"damp": 0.0, "pull": None, "base": None, **(terms or {})}
    return WantedSteps(DenseGradient(step, training, make_lockstep(), x, y), start, rows, eta, **terms)


def check_against_single_steps(training, wanted):
    """Makes the steps both ways."""
    starts, singly, means = [each.v.copy() for each in wanted], [], []
    for each, start in zip(wanted, starts, strict=True):
        v = start.copy()
        more = each.eta, each.damp, each.pull, each.base
        means.append(descend_singly(each.gradient.step, v, each.rows, *more))
        singly.append(v)
    losses = training(wanted)
    assert not training.trained.why
    for each, start, v, found, expected in zip(wanted, starts, singly, losses, means, strict=True):
        assert np.linalg.norm(each.v - v) <= ROUNDING * np.linalg.norm(v - start)
        assert found == pytest.approx(expected, rel=ROUNDING)


def terms_of(model):
    other = (0.1 * np.random.default_rng(6).standard_normal(model.layout.size)).astype(np.float32)
    return [{}, {"damp": 0.1}, {"base": other}, {"pull": other}, {"damp": 0.1, "pull": other, "base": other - 1}]


def test_each_comes_to_what_single_steps_come_to(model):
    for k, terms in enumerate(terms_of(model)):
        training = training_of(model)
        wanted = [wanted_by(training, count, k, terms, eta=0.05 / (count % 3 + 1)) for count in (20, 20, 23, 7)]
        check_against_single_steps(training, wanted)
        assert training.trained.together == sum(len(each.rows) for each in wanted)


@pytest.mark.parametrize("sizes", [(12, 4), (12, 6, 5, 4)])
def test_there_may_be_one_layer_or_several(tmp_path, sizes):
    training = training_of(chain_of(tmp_path, sizes, classes=4))
    assert [one.outputs for one in training.layers] == [*sizes[1:]]
    check_against_single_steps(training, [wanted_by(training, 11, seed, {"damp": 1e-3}) for seed in range(3)])


def test_layers_without_relu_and_smoothed_labels(tmp_path):
    training = training_of(chain_of(tmp_path, (12, 6, 4), relu=False, classes=4, smoothing=0.2))
    assert not any(one.relu for one in training.layers)
    check_against_single_steps(training, [wanted_by(training, 11, seed) for seed in range(2)])


def test_what_a_client_comes_to_does_not_depend_on_the_others(model):
    found = []
    for seeds in ([5], [1, 5, 2, 5, 3], range(40)):
        training = training_of(model)
        wanted = [wanted_by(training, 9 if seed == 3 else 20, seed, {"damp": 1e-3}) for seed in seeds]
        training(wanted)
        found += [each.v.tobytes() for each, seed in zip(wanted, seeds, strict=True) if seed == 5]
    assert len(found) == 4 and len({*found}) == 1


def test_who_has_very_many_samples_makes_single_steps(model):
    training = training_of(model)
    few, many = wanted_by(training, 20, 1), wanted_by(training, INPUTS + 1, 2)
    v = many.v.copy()
    losses = descend_singly(many.gradient.step, v, many.rows, many.eta, 0.0, None, None)
    assert training([many, few])[0] == losses and many.v.tobytes() == v.tobytes()
    assert (training.trained.together, training.trained.step) == (len(few.rows), len(many.rows))


class Held(nn.Linear):
    """A dense layer whose weights get no gradient."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight.detach(), self.bias)


def test_a_chain_that_stops_gradients_is_refused():
    compiled = compile_module(
        nn.Sequential(Held(6, 4), nn.ReLU(), nn.Linear(4, 3)).eval(), Spec("chain", (6,)), search=0
    )
    bundle = parse(compiled.data)
    assert len(read_dense_layers(bytes(bundle.parts["predict.onnx"]))) == 2  # of predictions alone it is one
    with pytest.raises(UsageError, match="stops gradients"):
        find_dense_layers(Model(bundle))


def test_other_networks_are_refused_with_what_is_in_the_way():
    with pytest.raises(UsageError, match="Conv"):
        find_dense_layers(Model(find_shipped_bundle("wrist.bundle")))
    features = Model(compile_network("features", ["--input", "3,64", "--classes", "14"], 0, print))
    with pytest.raises(UsageError, match=r"branches|no part of a chain"):
        read_dense_layers(bytes(features.bundle.parts["predict.onnx"]))
