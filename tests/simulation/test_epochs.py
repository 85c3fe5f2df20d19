"""All steps of an epoch in one call: the same bits as one by one, and never silently anything else."""

from __future__ import annotations

import json
from math import prod

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the graph of an epoch is written with it")

import onnx

from edge_sdk import cli
from edge_sdk.methods.shared.training.local import batches, descend
from edge_sdk.model.model import Model
from edge_sdk.models.derive.epoch import find_parts
from edge_sdk.replay.planning.bundles import compile_network, find_shipped_bundle
from edge_sdk.simulation.training.epochs import EpochGradient, EpochGraphs, TrainingCalls
from tests.simulation.jobs import job_of, play
from tests.simulation.test_job import model_of, without_times

SAMPLES = 23


@pytest.fixture(scope="module", params=["mlp", "wrist"])
def model(request):
    if request.param == "wrist":
        return Model(find_shipped_bundle("wrist.bundle"))
    return Model(compile_network("mlp", ["--input", "30", "--classes", "2"], 3, print))


def gradients(model, trained):
    random = np.random.default_rng(5)
    x = random.standard_normal((SAMPLES, *model.input_shape)).astype(np.float32)
    step = model.grad_fn(x, random.integers(0, model.classes, SAMPLES))
    return step, EpochGradient(step, EpochGraphs(model, trained), x, random.integers(0, model.classes, SAMPLES))


def after(model, gradient, batch, **terms):
    v = model.theta0.copy()
    loss = descend(gradient, v, batches(np.random.default_rng(3), SAMPLES, batch, 2), 0.05, **terms)
    return v.tobytes(), loss


def terms_of(model):
    other = (0.1 * np.random.default_rng(6).standard_normal(model.layout.size)).astype(np.float32)
    return [{}, {"damp": 1e-3}, {"base": other}, {"damp": 0.1, "pull": other, "base": other - 1}]


@pytest.mark.parametrize("batch", [5, 0, 1])
def test_an_epoch_in_one_call_is_its_steps_to_the_bit(model, batch):
    """With a last batch that is smaller, with all samples at once, and with one at a time."""
    trained = TrainingCalls()
    x = np.random.default_rng(5).standard_normal((SAMPLES, *model.input_shape)).astype(np.float32)
    y = np.arange(SAMPLES) % model.classes
    step = model.grad_fn(x, y)
    many = EpochGradient(step, EpochGraphs(model, trained), x, y)
    for terms in terms_of(model):
        expected = after(model, step, batch, **terms)
        for _ in range(2):  # the first is trained both ways
            assert after(model, many, batch, **terms) == expected
    steps = 2 * (-(-SAMPLES // batch) if batch else 1)
    assert (trained.epoch, trained.step, trained.why) == (4 * steps, 4 * steps, [])


@pytest.mark.parametrize("limit", [1 << 20, 0])
def test_an_epoch_begins_behind_the_front_where_that_is_kept(limit):
    trained = TrainingCalls()
    model = Model(compile_network("features", ["--input", "3,64", "--classes", "4"], 0, print))
    model.kept_limit = limit
    x = np.random.default_rng(5).standard_normal((SAMPLES, 3, 64)).astype(np.float32)
    y, graphs = np.arange(SAMPLES) % 4, EpochGraphs(model, trained)
    step, many = model.grad_fn(x, y), EpochGradient(model.grad_fn(x, y), graphs, x, y)
    for terms in terms_of(model):
        expected = after(model, step, 5, **terms)
        assert [after(model, many, 5, **terms) for _ in range(2)] == [expected] * 2
    assert {graph for _, graph in graphs.sessions} == {"loss_grad^front" if limit else "loss_grad"}
    assert trained.epoch == trained.step == 40 and not trained.why


def test_steps_take_each_parameter_by_itself_and_as_it_is_used(model):
    """And theta as a whole, where a gradient graph does more with it than to cut it."""
    graph = onnx.load_from_string(bytes(model.bundle.parts["loss_grad.onnx"]))
    parts, nodes = find_parts(graph)
    assert [prod(part.shape) for part in parts] == [slot.size for slot in model.layout.slots]
    weights = [(slot.shape, part.shape) for slot, part in zip(model.layout.slots, parts, strict=True)]
    assert all(found == shape for shape, found in weights if len(shape) == 2) and len(nodes) < len(graph.graph.node)
    graph.graph.node.append(onnx.helper.make_node("Identity", ["theta"], ["again"]))
    (whole,), nodes = find_parts(graph)
    assert (whole.name, whole.shape) == ("theta", (model.layout.size,)) and len(nodes) == len(graph.graph.node)


def test_a_graph_that_does_more_with_theta_makes_the_same_steps(model, monkeypatch):
    trained = TrainingCalls()
    step, _ = gradients(model, trained)
    graphs = EpochGraphs(model, trained)
    part = onnx.load_from_string(bytes(model.bundle.parts["loss_grad.onnx"]))
    part.graph.node.append(onnx.helper.make_node("Identity", ["theta"], ["again"]))
    write = graphs.write
    monkeypatch.setattr(graphs, "write", lambda data, terms: write(part.SerializeToString(), terms))
    random = np.random.default_rng(5)
    x = random.standard_normal((SAMPLES, *model.input_shape)).astype(np.float32)
    many = EpochGradient(step, graphs, x, random.integers(0, model.classes, SAMPLES))
    for terms in terms_of(model):
        expected = after(model, step, 5, **terms)
        assert [after(model, many, 5, **terms) for _ in range(2)] == [expected] * 2
    assert trained.epoch == trained.step == 40 and not trained.why


def test_what_rounds_differently_is_trained_by_steps_and_said(model):
    trained = TrainingCalls()
    x = np.zeros((SAMPLES, *model.input_shape), np.float32)
    graphs = EpochGraphs(model, trained)
    exact = model.grad_fn(x, np.zeros(SAMPLES, np.int64))

    def step(theta, indices=None):
        loss, gradient = exact(theta, indices)
        return loss, np.nextafter(gradient, np.float32(1))

    many = EpochGradient(step, graphs, x, np.zeros(SAMPLES, np.int64))
    assert [after(model, many, 5) for _ in range(2)] == [after(model, step, 5)] * 2
    assert trained.epoch == 0 and trained.step == 20
    assert trained.why == [f"{model.name}: epochs of steps of 5 samples round differently in one call"]


def test_steps_that_are_too_large_for_a_call_are_made_one_by_one(model):
    trained, count = TrainingCalls(), model.max_batch + 1
    x = np.zeros((count, *model.input_shape), np.float32)
    step = model.grad_fn(x, np.zeros(count, np.int64))
    many = EpochGradient(step, EpochGraphs(model, trained), x, np.zeros(count, np.int64))
    found, expected = model.theta0.copy(), model.theta0.copy()
    assert descend(many, found, iter([None]), 0.1) == descend(step, expected, iter([None]), 0.1)
    assert found.tobytes() == expected.tobytes() and (trained.epoch, trained.step) == (0, 1)
    assert "in parts of" in trained.why[0]


@pytest.mark.parametrize("method", ["fedslr", "fedavg"])
def test_a_simulation_says_how_it_trained_and_comes_to_the_same_both_ways(tmp_path, method):
    said = []
    found = play(job_of(tmp_path / "epoch", clients=40, cohort=8, method=method), say=said.append)
    steps = job_of(tmp_path / "step", clients=40, cohort=8, method=method, more={"calls": "step"})
    other = play(steps, say=said.append)
    assert without_times(found) == without_times(other)
    assert model_of(tmp_path / "epoch") == model_of(tmp_path / "step")
    told = found["simulation"]["training"]
    assert told["epoch"] > told["step"] > 0 and other["simulation"]["training"]["epoch"] == 0
    assert f"training: {told['epoch']} steps in calls of a whole epoch, {told['step']} one by one" in said
    assert "training: each step in a call of its own" in said and not any("training: 0 steps" in line for line in said)


def test_the_command_takes_a_way_to_train(tmp_path, capsys):
    words = "simulate breast-cancer --method fedavg --clients 30 --cohort 5 --rounds 2 --samples 20 --judges 5 --seed 3"
    words += " --no-neighbours"  # tests/replay/test_neighbours.py has them
    cli.main([*words.split(), "--calls", "step", "--json", "--out", str(tmp_path)])
    assert json.loads(capsys.readouterr().out)["simulation"]["training"]["epoch"] == 0


def test_inputs_of_a_model_may_have_any_name():
    """An input named as something of the graph of an epoch ended a simulation with an error of onnx."""
    import torch

    from edge_sdk.model.bundle import parse
    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.specification.spec import Spec

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(7, 3)

        def forward(self, start, rows, order, eta):
            return self.layer(torch.cat([start, rows, order, eta], 1))

    torch.manual_seed(0)
    sizes = {"start": (2,), "rows": (2,), "order": (2,), "eta": (1,)}
    model = Model(parse(compile_module(Net().eval(), Spec("m", sizes)).data))
    random, trained = np.random.default_rng(5), TrainingCalls()
    x = {name: random.standard_normal((SAMPLES, *size)).astype(np.float32) for name, size in sizes.items()}
    y = np.arange(SAMPLES) % 3
    step = model.grad_fn(x, y)
    many = EpochGradient(step, EpochGraphs(model, trained), x, y)
    for terms in terms_of(model):
        for _ in range(2):
            assert after(model, many, 5, **terms) == after(model, step, 5, **terms)
    assert trained.epoch
    assert not trained.why
