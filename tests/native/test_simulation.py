"""A simulation with native products: the same choice as in a replay, and the same bits."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the model of these data is compiled with it")

import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.model.sessions.kernels import KernelChoice
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import tensors
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.replay.planning.bundles import compile_network, find_shipped_bundle
from tests.models.native_forms import bundle_of, with_tensors
from tests.simulation import test_epochs, test_job


@pytest.fixture(scope="module", params=["mlp", "wrist"])
def path(request):
    if request.param == "wrist":
        return find_shipped_bundle("wrist.bundle")
    return compile_network("mlp", ["--input", "30", "--classes", "2"], 3, print)


@pytest.mark.parametrize("batch", [5, 0, 1])
def test_an_epoch_in_one_call_is_its_steps_to_the_bit(best, path, batch):
    model = Model(path)
    assert model.kernels == "native"
    test_epochs.test_an_epoch_in_one_call_is_its_steps_to_the_bit(model, batch)


@pytest.mark.parametrize("batch", [5, 0, 1])
@pytest.mark.parametrize("make", [bundle_of, with_tensors])
def test_an_epoch_is_made_of_the_native_form_that_steps_run(best, make, batch):
    """Also of one that takes the tensors of theta, which an epoch cuts out of it once."""
    model = Model(make(native=True))
    assert model.choice == KernelChoice(best, native=True)
    test_epochs.test_an_epoch_in_one_call_is_its_steps_to_the_bit(model, batch)


class Scaled(nn.Module):
    """A network with a parameter of a name that a graph might have for itself."""

    def __init__(self):
        super().__init__()
        self.sizes, self.first, self.last = nn.Parameter(torch.ones(40)), nn.Linear(20, 40), nn.Linear(40, 3)

    def forward(self, x):
        return self.last(torch.nn.functional.gelu(self.first(x)) * self.sizes)


def test_parameters_may_have_any_name(best, monkeypatch):
    monkeypatch.setattr(tensors, "LEAST", 0)
    monkeypatch.setattr(tensors, "EACH", 0)
    torch.manual_seed(3)
    model = Model(parse(compile_module(Scaled().eval(), Spec("m", (20,), 3, native=True), search=0).data))
    assert model.choice == KernelChoice(best, native=True)
    test_epochs.test_an_epoch_in_one_call_is_its_steps_to_the_bit(model, 5)


def test_devices_of_a_replay_reach_what_they_reach_there(best, tmp_path, monkeypatch):
    """As with onnxruntime's products, and all sessions have native ones."""
    libraries, init = [], OnnxSession.__init__

    def init_and_note(session, graph, data, threads, planned=False, library="", products=True):
        libraries.append((library, products))
        init(session, graph, data, threads, planned, library, products)

    monkeypatch.setattr(OnnxSession, "__init__", init_and_note)
    test_job.test_devices_of_a_replay_reach_what_they_reach_there(tmp_path, "fedavg")
    assert {*libraries} == {(best, True)}
