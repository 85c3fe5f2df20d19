"""A torch module with batch normalisation in `simulate`: it trains as in torch, running statistics with it."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import edge_sdk as auscult
from edge_sdk.model.model import Model
from edge_sdk.research.fleets.modules import bundle_of

torch = pytest.importorskip("torch", reason="a module of torch is compiled")
pytestmark = pytest.mark.usefixtures("own_cache")
ROUNDS, STEP, DECAY = 3, 0.03, 0.05


def arrays():
    random = np.random.default_rng(0)
    found = {}
    for k, (name, count) in enumerate({"ann": 70, "bob": 20, "cem": 30}.items()):
        y = np.arange(count) % 3
        x = (random.normal(size=(count, 5)) * 2 + 3 * k + y[:, None]).astype(np.float32)
        found[name] = x, y, x[:6], y[:6]
    return found


def make_net():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.0), torch.nn.Linear(8, 3)
    )


def fedavg_of_torch(net, devices):
    """FedAvg of one full batch in each round, of parameters and of running statistics."""
    w = copy.deepcopy(net).double().train()
    weights = np.array([len(y) for _, y, *_ in devices.values()]) / sum(len(y) for _, y, *_ in devices.values())
    for _ in range(ROUNDS):
        states = []
        for x, y, *_ in devices.values():
            own = copy.deepcopy(w)
            torch.nn.functional.cross_entropy(own(torch.tensor(x).double()), torch.tensor(y)).backward()
            with torch.no_grad():
                for p in own.parameters():
                    p -= STEP * (p.grad + DECAY * p)
            states.append(own.state_dict())
        mean = {key: sum(s[key].double() * k for k, s in zip(weights, states, strict=True)) for key in states[0]}
        w.load_state_dict(mean)
    return w.eval()


def test_it_is_averaged_as_in_torch_with_its_running_statistics():
    devices, net = arrays(), make_net()
    data = auscult.Fleet.from_arrays(devices, validation=0.0)
    settings = {"eta_l": STEP, "decay": 1.0, "weight_decay": DECAY, "batch": 0, "local_epochs": 1}
    play = {"rounds": ROUNDS, "hospitals": 1, "neighbours": 0, "plain": True}
    run = auscult.simulate(data, "fedavg", model=net, settings=settings, **play)
    want, x = fedavg_of_torch(net, devices), devices["bob"][0]
    kept = run.devices["bob"].working
    for slot in kept.model.layout.slots:
        expected = want.state_dict()[slot.name].numpy().ravel()
        np.testing.assert_allclose(kept.kept.models["global"][slot.span], expected, atol=1e-6, err_msg=slot.name)
    with torch.no_grad():
        expected = want(torch.tensor(x).double()).softmax(1).numpy()
    np.testing.assert_allclose(run.devices["bob"].predict(x, "global").probabilities, expected, atol=1e-5)
    assert net.training and float(net[1].running_mean.abs().max()) == 0  # the module itself is as it was


def test_it_trains_in_batches_of_which_a_single_sample_is_left_over():
    """70 samples in batches of 23 leave one, which has no variance; so do labels that devices give themselves."""
    play = {"rounds": 1, "hospitals": 1, "neighbours": 0, "plain": True, "settings": {"batch": 23}}
    run = auscult.simulate(auscult.Fleet.from_arrays(arrays(), validation=0.0), "fedavg", model=make_net(), **play)
    assert run.results[0]["curve"] is not None and np.isfinite(run.devices["ann"].working.kept.models["global"]).all()


def test_a_run_that_ends_with_negative_variances_says_so_first():
    """Two bits for each number round variances of a hundredth to below zero."""
    devices = {name: (x / 50, y, held / 50, own) for name, (x, y, held, own) in arrays().items()}
    play = {"rounds": 2, "hospitals": 1, "neighbours": 0, "plain": True, "uploads": {"bits": 2}}
    run = auscult.simulate(auscult.Fleet.from_arrays(devices, validation=0.0), "fedavg", model=make_net(), **play)
    assert run.verdict.startswith("The model's running variances of 1 are below zero in places")
    assert run.verdict in str(run)


def test_a_module_in_evaluation_mode_keeps_the_statistics_that_it_has():
    data, net = auscult.Fleet.from_arrays(arrays(), validation=0.0), make_net()
    trained = Model(bundle_of(net, data)).bundle
    frozen = Model(bundle_of(net.eval(), data)).bundle
    assert (trained.manifest["norm"], frozen.manifest["norm"]) == ("running", "frozen")


def test_sizes_that_a_module_leaves_to_its_first_batch_are_those_of_the_data():
    net = torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.LazyBatchNorm1d(), torch.nn.Linear(8, 3))
    model = Model(bundle_of(net, auscult.Fleet.from_arrays(arrays(), validation=0.0)))
    assert model.bundle.manifest["norm"] == "running" and model.layout.size == 6 * 8 + 4 * 8 + 9 * 3


def test_statistics_of_some_layers_cannot_be_frozen_alone():
    net = torch.nn.Sequential(
        torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Sequential(torch.nn.BatchNorm1d(4))
    )
    net[1].eval()
    with pytest.raises(auscult.UsageError, match=r"1 is in evaluation mode and 2\.0 in training mode"):
        bundle_of(net, auscult.Fleet.from_arrays(arrays(), validation=0.0))
