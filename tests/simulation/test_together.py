"""Clients that train together on torch: within rounding of what each comes to by itself, and never silently else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="clients train together on it")

import torch

from aggregator.cohort import CohortSteps, loss_in
from edge_sdk import cli
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.training.local import batches, descend
from edge_sdk.model.bundle import LOSSES
from edge_sdk.model.inputs import compute_losses
from edge_sdk.model.model import Model
from edge_sdk.replay.planning.bundles import compile_network, find_shipped_bundle
from edge_sdk.simulation.training.batched_clients import (
    COMPARED,
    MOST,
    CohortGradient,
    CohortTraining,
    make_lockstep,
)
from edge_sdk.simulation.training.dense_clients import TOO_MANY
from edge_sdk.simulation.training.epochs import TrainingCalls
from edge_sdk.simulation.training.together import make_training
from tests.processors import PROCESSORS
from tests.simulation.jobs import job_of, play

SIZES = (23, 20, 7)
"""Samples of three clients, so that these make different numbers of steps, and of different sizes."""
ROUNDING = 1e-5


@pytest.fixture(scope="module", params=["mlp", "wrist"])
def model(request):
    if request.param == "wrist":
        return Model(find_shipped_bundle("wrist.bundle"))
    return Model(compile_network("mlp", ["--input", "30", "--classes", "2"], 3, print))


def training_of(model, trained, device="cpu"):
    steps = CohortSteps(model.bundle, device)
    return CohortTraining(model, steps, steps.device, trained)


def clients_of(model, training, lockstep, sizes=SIZES):
    """(gradient for one step, gradient that trains with others) of clients with so many samples."""
    random = np.random.default_rng(5)
    for size in sizes:
        x = random.standard_normal((size, *model.input_shape)).astype(np.float32)
        y = random.integers(0, model.classes, size)
        step = model.grad_fn(x, y)
        yield step, CohortGradient(step, training, lockstep, x, y)


def trained_by(model, gradient, size, terms, eta=0.05):
    """What a client's two epochs change, and their mean loss."""
    v = model.theta0.copy()
    loss = descend(gradient, v, batches(np.random.default_rng(size), size, 5, 2), eta, **terms)
    return v - model.theta0, loss


def terms_of(model):
    other = (0.1 * np.random.default_rng(6).standard_normal(model.layout.size)).astype(np.float32)
    return [{}, {"damp": 1e-3}, {"base": other}, {"damp": 0.1, "pull": other, "base": other - 1}]


@pytest.mark.parametrize("device", PROCESSORS)
def test_each_comes_to_what_it_comes_to_by_itself(model, device):
    trained, lockstep = TrainingCalls(), make_lockstep()
    training = training_of(model, trained, device)
    for terms in terms_of(model):
        clients = list(clients_of(model, training, lockstep))
        calls = [
            lambda k=k, size=size, many=many, terms=terms: trained_by(model, many, size, terms, 0.05 / (k + 1))
            for k, (size, (_, many)) in enumerate(zip(SIZES, clients, strict=True))
        ]
        found = list(lockstep.run(calls))
        for k, ((change, loss), size, (step, _)) in enumerate(zip(found, SIZES, clients, strict=True)):
            expected, mean = trained_by(model, step, size, terms, 0.05 / (k + 1))
            assert np.linalg.norm(change - expected) <= ROUNDING * np.linalg.norm(expected)
            assert loss == pytest.approx(mean, rel=ROUNDING)
    steps = sum(2 * -(-size // 5) for size in SIZES)
    assert (trained.together, trained.step, trained.epoch, trained.why) == (4 * steps, 0, 0, [])


def test_a_client_comes_to_the_same_with_whomever_it_trains(model):
    alone, many = ([], [])
    for found, sizes in ((alone, SIZES[:1]), (many, SIZES)):
        lockstep = make_lockstep()
        clients = list(clients_of(model, training_of(model, TrainingCalls()), lockstep, sizes))
        calls = [lambda g=g, n=n: trained_by(model, g, n, {}) for n, (_, g) in zip(sizes, clients, strict=True)]
        found.extend(lockstep.run(calls))
    assert np.linalg.norm(alone[0][0] - many[0][0]) <= ROUNDING * np.linalg.norm(alone[0][0])


def test_what_comes_out_otherwise_is_trained_by_steps_and_said(model):
    trained, lockstep = TrainingCalls(), make_lockstep()
    sound = training_of(model, trained)
    wrong = CohortTraining(model, lambda v, *rest: sound.train(v + np.float32(1e-4), *rest), "cpu", trained)
    clients = list(clients_of(model, wrong, lockstep))
    calls = [lambda g=g, n=n: trained_by(model, g, n, {}) for n, (_, g) in zip(SIZES, clients, strict=True)]
    found = list(lockstep.run(calls))
    for (change, _), size, (step, _) in zip(found, SIZES, clients, strict=True):
        assert change.tobytes() == trained_by(model, step, size, {})[0].tobytes()
    assert trained.together == 0 and trained.step == sum(2 * -(-size // 5) for size in SIZES)
    assert trained.why and f"{model.name}: steps of clients together are off by " in trained.why[0]


@pytest.mark.parametrize("change", [{"loss": "hinge"}, {"inputs": [{"name": "ids"}, {"name": "mask"}]}])
def test_a_network_that_torch_cannot_take_is_trained_by_steps_and_said(model, change):
    other = replace(model.bundle, manifest={**model.bundle.manifest, **change})
    with pytest.raises(UsageError, match="hinge" if "loss" in change else "ids, mask"):
        CohortSteps(other)


def test_a_network_that_draws_is_trained_by_steps_and_said(model, monkeypatch):
    trained = TrainingCalls()
    monkeypatch.setattr(model, "drop_sites", ("site",))
    assert make_training(model, trained) is None
    assert trained.why == [f"{model.name} drops values at random in each step"]


@pytest.mark.parametrize("method", ["fedavg", "fedslr", "scaffold"])
def test_a_simulation_comes_to_the_same_but_for_rounding(tmp_path, method):
    said, models = [], {}
    for calls in ("step", "cohort"):
        job = job_of(tmp_path / calls, clients=90, cohort=MOST + 6, rounds=3, method=method, more={"calls": calls})
        found = play(job, say=said.append)
        with np.load(tmp_path / calls / "model.npz") as file:
            models[calls] = np.concatenate([file[name].ravel() for name in sorted(file)])
    assert np.abs(models["cohort"] - models["step"]).max() <= 1e-4 * np.abs(models["step"]).max()
    told = found["simulation"]["training"]
    assert told["together"] > 100 and told["epoch"] == 0 and not told["why"]
    assert f"training: {told['together']} steps with other clients, {told['step']} one by one" in said


def test_clients_with_too_many_samples_for_one_call_are_told_of(tmp_path):
    """30 numbers a sample, and 35 samples or so: products of samples would take more than the steps."""
    found = play(job_of(tmp_path, clients=20, cohort=3, rounds=1, options={"samples": 80}, more={"calls": "cohort"}))
    told = found["simulation"]["training"]
    assert told["together"] == 0 and told["step"] > 0
    assert told["why"] == [f"mlp: {TOO_MANY}"]


def test_the_command_takes_it_and_its_result_is_the_same_each_time(tmp_path, capsys):
    words = "simulate breast-cancer --method fedslr --clients 30 --cohort 5 --rounds 2 --samples 20 --judges 5 --seed 3"
    words += " --no-neighbours"  # tests/replay/test_neighbours.py has them
    models = []
    for name in ("a", "b"):
        cli.main([*words.split(), "--calls", "cohort", "--json", "--out", str(tmp_path / name)])
        assert '"together": 0' not in capsys.readouterr().out
        with np.load(tmp_path / name / "model.npz") as file:
            models.append({key: file[key].tobytes() for key in file})
    assert models[0] == models[1]


@pytest.mark.parametrize("loss", LOSSES)
def test_clients_have_the_loss_of_devices(loss):
    rng = np.random.default_rng(3)
    z = rng.standard_normal((5, 4)).astype(np.float32)
    y = rng.integers(0, 4, 5) if loss == "cross_entropy" else rng.dirichlet([1.0] * 4, 5).astype(np.float32)
    found = loss_in({"loss": loss, "name": "net"})(torch.from_numpy(z), torch.from_numpy(y)).numpy()
    assert np.allclose(found, compute_losses(loss, z, y), rtol=1e-5)


def test_whole_ways_may_part_where_each_step_is_the_same(model):
    """Rounding grows from step to step in a network with kinks; here the later steps' own noise stands for that."""
    trained, lockstep = TrainingCalls(), make_lockstep()
    sound = training_of(model, trained)

    def apart(v, x, *rest):  # the same for the steps that are compared
        end, losses = sound.train(v, x, *rest)
        return (end if x.shape[1] <= COMPARED else end + np.float32(0.01)), losses

    clients = list(clients_of(model, CohortTraining(model, apart, "cpu", trained), lockstep))
    calls = [lambda g=g, n=n: trained_by(model, g, n, {}) for n, (_, g) in zip(SIZES, clients, strict=True)]
    list(lockstep.run(calls))
    assert trained.together > 0 and not trained.why


def test_a_wrong_second_step_is_found(model):
    trained, lockstep = TrainingCalls(), make_lockstep()
    sound = training_of(model, trained)

    def wrong(v, x, y, weights, eta, *rest):  # steps after the first are twice as long
        end, losses = sound.train(v, x, y, weights, eta, *rest)
        first, _ = sound.train(v, x[:, :1], y[:, :1], weights[:, :1], eta, *rest)
        return 2 * end - first, losses

    clients = list(clients_of(model, CohortTraining(model, wrong, "cpu", trained), lockstep))
    calls = [lambda g=g, n=n: trained_by(model, g, n, {}) for n, (_, g) in zip(SIZES, clients, strict=True)]
    list(lockstep.run(calls))
    assert trained.together == 0 and trained.why
