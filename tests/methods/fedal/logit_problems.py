"""Small classifiers of several architectures with gradients by hand, and what FedAL's nodes are given of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.environment.kernels import Inputs
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedal.settings import Env
from tests.methods import problems

FEATURES, CLASSES = 5, 3


@dataclass(frozen=True)
class Net:
    """tanh layers of these widths; theta may be longer than it needs."""

    hidden: tuple[int, ...] = ()

    @property
    def widths(self):
        return FEATURES, *self.hidden, CLASSES

    @property
    def size(self):
        return sum((a + 1) * b for a, b in pairwise(self.widths))

    def layers(self, theta):
        at = 0
        for a, b in pairwise(self.widths):
            yield theta[at : at + a * b].reshape(b, a), theta[at + a * b : at + (a + 1) * b]
            at += (a + 1) * b

    def activations(self, theta, x):
        found = [x]
        for i, (w, b) in enumerate(self.layers(theta)):
            z = found[-1] @ w.T + b
            found.append(np.tanh(z) if i < len(self.hidden) else z)
        return found

    def logits(self, theta, x):
        return self.activations(theta, x)[-1].astype(theta.dtype)

    def pull(self, theta, x, cotangent):
        """Gradient of sum(logits * cotangent)."""
        kept, back, parts = self.activations(theta, x), cotangent, []
        for i, (w, _) in reversed(list(enumerate(self.layers(theta)))):
            parts = [(back.T @ kept[i]).ravel(), back.sum(0), *parts]
            back = (back @ w) * (1 - kept[i] ** 2)
        rest = np.zeros(len(theta) - self.size)
        return np.concatenate([*parts, rest]).astype(theta.dtype)

    def features(self, theta, x):
        """What enters the last layer."""
        return self.activations(theta, x)[-2].astype(theta.dtype)

    def features_pull(self, theta, x, cotangent):
        """Gradient of sum(features * cotangent)."""
        below, last = Net(self.hidden[:-1]), (self.hidden[-1] + 1) * CLASSES
        inner = cotangent * (1 - self.features(theta, x) ** 2)
        kept, back, parts = self.activations(theta, x), inner, []
        for i, (w, _) in reversed(list(enumerate(self.layers(theta)))[: len(below.hidden) + 1]):
            parts = [(back.T @ kept[i]).ravel(), back.sum(0), *parts]
            back = (back @ w) * (1 - kept[i] ** 2)
        return np.concatenate([*parts, np.zeros(last)]).astype(theta.dtype)

    def inputs(self, x, features=False):
        if features:
            forward, pull = self.features, self.features_pull
            return Inputs(
                len(x), lambda theta, rows: forward(theta, x[rows]), lambda theta, rows, c: pull(theta, x[rows], c)
            )
        return self.logit_inputs(x)

    def logit_inputs(self, x):
        return Inputs(
            len(x), lambda theta, rows: self.logits(theta, x[rows]), lambda theta, rows, c: self.pull(theta, x[rows], c)
        )

    def grad_fn(self, x, y):
        def f(theta, indices=None):
            rows = np.arange(len(x)) if indices is None else indices
            z = self.logits(theta, x[rows]).astype(np.float64)
            p = np.exp(z - z.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            loss = -np.log(p[np.arange(len(rows)), y[rows]]).mean()
            p[np.arange(len(rows)), y[rows]] -= 1
            return float(loss), self.pull(theta, x[rows], p / len(rows))

        return f

    def score(self, x, y):
        def f(theta):
            right = self.logits(theta, x).argmax(1) == y
            return {"samples": len(y), "correct": int(right.sum()), "loss": len(y) * self.grad_fn(x, y)(theta)[0]}

        return f


@dataclass(frozen=True)
class Party:
    """What one device has."""

    net: Net
    x: np.ndarray
    y: np.ndarray
    theta0: np.ndarray


RNG = np.random.default_rng(11)
TEACHER = RNG.normal(size=(FEATURES, CLASSES))
PUBLIC = RNG.normal(size=(40, FEATURES))
NETS = (Net(), Net((4,)), Net((3, 4)))


def drawn(i, net, rows=None):
    """A device's samples, mostly of two classes."""
    rng = np.random.default_rng([3, i])
    x = rng.normal(size=(rows or 30 + 3 * i, FEATURES)) + 0.6 * TEACHER[:, i % CLASSES]
    return Party(net, x, (x @ TEACHER).argmax(1), rng.normal(size=net.size) / 2)


PARTIES = {f"d{i}": drawn(i, NETS[i % len(NETS)]) for i in range(6)}
TEST_X = RNG.normal(size=(50, FEATURES))
TEST_Y = (TEST_X @ TEACHER).argmax(1)


def given(party, dtype, public=PUBLIC, features=False):
    """Fields of a device's env."""
    net, x = party.net, party.x.astype(dtype)
    return dict(
        samples=len(x),
        grad_fn=net.grad_fn(x, party.y),
        private=net.inputs(x),
        labels=party.y,
        public=net.inputs(public.astype(dtype), features),
        score=net.score(TEST_X.astype(dtype), TEST_Y),
        architecture=str(net.hidden),
    )


def envs_of(settings, rounds, parties=PARTIES, dtype=np.float64, **more):
    common = dict(seed=problems.SEED, rounds=rounds, settings=settings, classes=CLASSES) | more
    envs = {"aggregator": Env(**common, sizes=problems.SIZES, theta0=np.zeros(1, dtype))}
    envs |= {h: Env(**common, sizes=dict.fromkeys(ds, 1), theta0=np.zeros(1, dtype)) for h, ds in problems.TREE.items()}
    for d, p in parties.items():
        layout = layout_of(("all", (len(p.theta0),), "other"))
        envs[d] = Env(
            **common, layout=layout, theta0=p.theta0.astype(dtype), **given(p, dtype, features=settings.features > 0)
        )
    return envs


def play(settings, rounds, *, faults=NetworkFaults(), policies=None, seed=0, **more):  # noqa: B008
    """(network, trace) of a run of devices with different architectures."""
    method, through = more.pop("method", FEDAL), more.pop("through", lambda m: m)
    net = Loopback(
        method, problems.TREE, envs_of(settings, rounds, **more), policies or problems.PATIENT, seed, faults, through
    )
    return net, net.run()


def with_logits(envs):
    """For the contract, on the layout of all methods: classifiers that use the first entries of theta."""
    for i, d in enumerate(problems.DEVICES):
        dtype = envs[d].theta0.dtype
        envs[d] = replace(envs[d], **given(drawn(i, Net((4,))), dtype))
    return {name: replace(env, classes=CLASSES) for name, env in envs.items()}


COMPANIONS = {"h0": ("d1",), "h1": ("d4",)}


def with_companions(envs):
    """d1 and d4 are classifiers, the others train the shared model, whose first entries are one too."""
    names = [d for devices in COMPANIONS.values() for d in devices]
    for i, d in enumerate(names):
        envs[d] = replace(envs[d], apart=True, **given(drawn(i, Net((4,))), envs[d].theta0.dtype))
    for h, devices in COMPANIONS.items():
        envs[h] = replace(envs[h], companions=devices)
    public = Net((2,)).inputs(PUBLIC.astype(envs["aggregator"].theta0.dtype))
    counts = {h: len(devices) for h, devices in COMPANIONS.items()}
    envs["aggregator"] = replace(envs["aggregator"], public=public, counts=counts)
    return {name: replace(env, classes=CLASSES) for name, env in envs.items()}
