"""Modules with several inputs (ids, mask, token types, numbers): compiled, checked by the gate, trained on a device."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.data.samples import Samples, store_samples
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.cli import main
from edge_sdk.models.ir.errors import CompileError, ParityError
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.rules import RULES
from edge_sdk.nodes.device.device import Device
from tests.simulation.jobs import job_of, play

TEXT = """
import torch
from torch import nn


class Reader(nn.Module):
    'Word pieces with a mask and types, and numbers beside them; arguments lie between that are not given.'

    def __init__(self):
        super().__init__()
        self.words, self.types = nn.Embedding(20, 8, padding_idx=0), nn.Embedding(2, 8)
        self.q, self.drop, self.head = nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(11, 3)

    def forward(self, ids, past=None, mask=None, types=None, age=None):
        h = self.words(ids) + self.types(types)
        scores = self.q(h) @ h.transpose(1, 2) + (1 - mask.to(h.dtype)).unsqueeze(1) * -1e4
        pooled = (scores.softmax(-1) @ h).mean(1)
        return self.head(torch.cat([self.drop(pooled), age], 1))
"""
INPUTS = {"types": (6,), "ids": (6,), "mask": (6,), "age": (3,)}
BELOW = {"types": 2, "ids": 20, "mask": 2}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")
    (folder / "reader_of_test.py").write_text(TEXT)
    return folder


@pytest.fixture(scope="module")
def bundle(here):
    words = [f"{k}={','.join(map(str, v))}" for k, v in INPUTS.items()]
    below = [f"{k}={v}" for k, v in BELOW.items()]
    given = ["--input", *words, "--below", *below, f"{here / 'reader_of_test.py'}:Reader", "--dropout", "keep"]
    assert main(["compile", *given, "-o", str(here / "reader.bundle")]) == 0
    return here / "reader.bundle"


def draw(count=7):
    rng = np.random.default_rng(1)
    x = {k: rng.integers(0, BELOW[k], (count, *s)) for k, s in INPUTS.items() if k in BELOW}
    return x | {"age": rng.standard_normal((count, 3)).astype(np.float32)}, np.arange(count) % 3


def test_a_device_trains_it(bundle):
    model = Model(bundle)
    x, y = draw()
    assert model.predict(model.theta0, x).shape == (7, 3)
    gradient = model.grad_fn(x, y)
    loss, grad = gradient(model.theta0)
    theta = model.theta0 - 0.1 * grad
    assert gradient(theta)[0] < loss
    assert model.score(x, y)(theta)["samples"] == 7
    whole, part = model.loss_grad(theta, x, y)[1], gradient(theta, np.arange(7))[1]
    assert np.allclose(whole, part, rtol=1e-4, atol=1e-7)
    assert gradient(theta, [2, 4], np.random.default_rng(0))[1].shape == grad.shape


def test_samples_come_as_a_dictionary_a_tuple_or_joined(bundle):
    model = Model(bundle)
    x, _ = draw()
    want = model.predict(model.theta0, x)
    assert np.array_equal(model.predict(model.theta0, tuple(x[k] for k in INPUTS)), want)
    joined = model.samples(x)
    assert np.array_equal(model.predict(model.theta0, joined[2:5]), want[2:5])


WRONG = {
    "expected types, ids, mask, age": lambda x: x["ids"],
    "got ids, mask, types": lambda x: {k: x[k] for k in ("ids", "mask", "types")},
    "got 2 arrays": lambda x: (x["ids"], x["mask"]),
    "mask: 2 is out of range": lambda x: x | {"mask": x["mask"] + 1},
    r"\[7, 6, 7, 7\] samples": lambda x: x | {"ids": x["ids"][:6]},
    r"age: expected float \(B, 3\)": lambda x: x | {"age": x["ids"]},
}


@pytest.mark.parametrize("words", WRONG)
def test_samples_that_are_not_right(bundle, words):
    model = Model(bundle, check=False)
    with pytest.raises(UsageError, match=words):
        model.predict(model.theta0, WRONG[words](draw()[0]))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, left, right):
        return self.head(torch.tanh(self.a(left)) * right)


def test_inputs_are_given_by_name_whatever_their_order():
    """`right` is named first; the gate would refuse a bundle that gave it in the place of `left`."""
    torch.manual_seed(0)
    net = Pair().eval()
    model = Model(parse(compile_module(net, Spec("m", {"right": (4,), "left": (4,)})).data))
    rng = np.random.default_rng(0)
    x = {k: rng.standard_normal((5, 4)).astype(np.float32) for k in ("left", "right")}
    with torch.no_grad():
        want = net(*(torch.from_numpy(x[k]) for k in ("left", "right"))).numpy()
    assert np.allclose(model.predict(model.theta0, x), want, atol=1e-6)


def test_the_gate_sees_every_input(monkeypatch):
    original = RULES["Mul"]

    def swapped(g, n, outs, want):
        return original(g, n, outs, want)[::-1] if all(want) else [outs[0] if w else None for w in want]

    monkeypatch.setitem(RULES, "Mul", swapped)
    with pytest.raises(ParityError, match="float64"):
        compile_module(Pair().eval(), Spec("m", {"left": (4,), "right": (4,)}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input": {"theta": (4,)}}, "'theta': this name has another meaning"),
        ({"input": {"left": ()}}, "the shape of one sample"),
        ({"below": {"leaf": 3}}, "give NAME=N for one of left, right"),
        ({"below": 3}, "give NAME=N for one of left, right"),
        ({"input": (4,), "below": {"left": 3}}, "there is one input"),
    ],
)
def test_specs_that_make_no_sense(change, words):
    with pytest.raises(CompileError, match=words):
        Spec(**{"name": "m", "input": {"left": (4,), "right": (4,)}, **change})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--input", "4", "4"], "several inputs have names"),
        (["--input", "left=4", "right"], "expected NAME=VALUE"),
        (["--input", "left=4", "--below", "left=x"], "--below x: expected a number above 0"),
    ],
)
def test_options_that_make_no_sense(here, capsys, options, words):
    assert main(["compile", f"{here / 'reader_of_test.py'}:Reader", *options]) == 2
    assert words in capsys.readouterr().err


def device_of(bundle, directory):
    return Device("d1", hospital="h", broker="mqtt://127.0.0.1:1", bundle=bundle, directory=directory)


def test_an_application_trains_and_predicts_with_it(bundle, tmp_path):
    device, model = device_of(bundle, tmp_path), Model(bundle)
    x, y = draw()
    samples = Samples.of_inputs(dict(reversed(x.items())), [str(c) for c in y])
    device.train_on(samples, held_out=samples)
    assert device.part.train.x.dtype.names == tuple(INPUTS), "in the order of the bundle"
    loss, grad = model.grad_fn(device.part.train.x, y)(model.theta0)
    same = model.grad_fn(x, y)(model.theta0)
    assert loss == same[0] and np.array_equal(grad, same[1])
    for whole in (x, samples.x, tuple(x[k] for k in INPUTS)):
        assert len(device.predict(whole).labels) == 7
    assert device.predict({k: v[2] for k, v in x.items()}).labels == device.predict(x).labels[2:3]
    assert device.predict(samples.x[2]).labels == device.predict(x).labels[2:3]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ids": np.full((7, 6), 20)}, "device d1: ids: 20 is out of range"),
        ({"age": None}, "expected types, ids, mask, age.* got types, ids, mask"),
        ({"mask": np.ones((7, 5), np.int64)}, "mask: expected integers"),
    ],
)
def test_samples_that_do_not_fit_it_are_refused(bundle, tmp_path, change, said):
    x, y = draw()
    x = {k: v for k, v in {**x, **change}.items() if v is not None}
    with pytest.raises(UsageError, match=said):
        device_of(bundle, tmp_path).train_on(Samples.of_inputs(x, [str(c) for c in y]))


def folder_of(path):
    """Two devices whose samples are ready."""
    for name in ("ann", "bob"):
        x, y = draw(12)
        part = Samples.of_inputs(x, [str(c) for c in y])
        store_samples(path / f"{name}.npz", part, part, part)
    return path


def test_a_folder_of_its_samples_is_simulated(bundle, tmp_path):
    folder = folder_of(tmp_path / "notes")
    settings = {"eta_l": 0.1, "batch": 5, "momentum": 0.9}
    job = job_of(
        tmp_path / "run", data=folder, bundle=(bundle,), method="fedavg", settings=settings, options={}, rounds=8
    )
    found = play(job)
    assert [d["device"] for d in found["devices"]] == ["ann", "bob"]
    model, (x, y) = Model(bundle), draw(12)
    with np.load(tmp_path / "run" / "model.npz") as file:
        theta = np.concatenate([file[one.name].ravel() for one in model.layout.slots])
    at_first, at_last = (model.score(x, y)(t)["loss"] for t in (model.theta0, theta))
    assert at_last < at_first


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"bundle": ()}, "one sample is age 3, ids 6, mask 6, types 6: compile a model for it"),
        ({"method": "fedal"}, "public.npz: 1 public inputs are needed"),
        ({"augment": {"noise": 0.1}}, "--augment: a sample has age, ids, mask, types"),
        ({"options": {"window": 5}}, "--window is for traces or a data set"),
        ({"method": "hsgd"}, "a device has whole samples here"),
    ],
)
def test_what_such_a_folder_cannot_do_is_said(bundle, tmp_path, more, said):
    folder = folder_of(tmp_path / "notes")
    given = {"bundle": (bundle,), "method": "fedavg", "options": {}, **more}
    with pytest.raises(UsageError, match=said):
        play(job_of(tmp_path / "run", data=folder, **given))
