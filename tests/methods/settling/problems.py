"""A small network with an analytic gradient, and six devices that see some of its classes."""

from dataclasses import dataclass, replace

import numpy as np

from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.environment.samples import Labelled
from tests.methods.problems import DEVICES, SEED, SIZES, TREE

INPUTS, HIDDEN, CLASSES = 5, 4, 3
LAYOUT = layout_of(
    ("body.weight", (HIDDEN, INPUTS), "linear"),
    ("head.weight", (CLASSES, HIDDEN), "linear"),
    ("head.bias", (CLASSES,), "bias"),
)
HEAD = np.arange(LAYOUT.size) >= HIDDEN * INPUTS
THETA0 = np.random.default_rng(5).normal(0, 0.3, LAYOUT.size)


def parts(theta):
    return [LAYOUT.view(theta, slot) for slot in LAYOUT.slots]


def logits(theta, x):
    body, head, bias = parts(theta)
    return np.tanh(x @ body.T) @ head.T + bias


@dataclass(frozen=True)
class Network:
    """Mean cross entropy of x (N, INPUTS) with labels y."""

    x: np.ndarray
    y: np.ndarray

    def __call__(self, theta, indices=None):
        x, y = (self.x, self.y) if indices is None else (self.x[indices], self.y[indices])
        body, head, bias = parts(theta)
        hidden = np.tanh(x @ body.T)
        z = hidden @ head.T + bias
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        loss = -np.log(p[np.arange(len(y)), y]).mean()
        back = (p - np.eye(CLASSES)[y]) / len(y)
        inner = (back @ head) * (1 - hidden**2)
        slopes = [(inner.T @ x).ravel(), (back.T @ hidden).ravel(), back.sum(0)]
        return float(loss), np.concatenate(slopes).astype(theta.dtype)

    def labelled(self):
        return Labelled(self.y, lambda theta: logits(theta, self.x))

    def score(self, theta):
        right = (logits(theta, self.x).argmax(1) == self.y).sum()
        return {"samples": len(self.y), "correct": int(right), "loss": self(theta)[0] * len(self.y)}


def network(rng, classes, rows):
    """Rows of a device: a cloud for each class, somewhat different on each device."""
    y = rng.choice(classes, rows)
    centres = 2 * np.eye(CLASSES, INPUTS) + rng.normal(0, 0.5, (CLASSES, INPUTS))
    return Network(centres[y] + rng.normal(0, 0.8, (rows, INPUTS)), y)


def devices():
    """Device -> (training, validation, test); the last one knows one class only."""
    found = {}
    for i, d in enumerate(DEVICES):
        rng, known = np.random.default_rng([3, i]), [2] if d == DEVICES[-1] else [i % CLASSES, (i + 1) % CLASSES]
        whole = network(rng, known, 70)
        cuts = (slice(0, 30), slice(30, 45), slice(45, 70))
        found[d] = tuple(Network(whole.x[c], whole.y[c]) for c in cuts)
    return found


PARTS = devices()


def envs_of(method, settings, rounds, dtype=np.float32):
    """What every node of TREE is given."""
    common = dict(seed=SEED, rounds=rounds, layout=LAYOUT, theta0=THETA0.astype(dtype), settings=settings)
    envs = {"aggregator": method.env(**common, sizes=SIZES)}
    envs |= {h: method.env(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in TREE.items()}
    return envs | {d: method.env(**common, **given(*parts)) for d, parts in PARTS.items()}


def given(train, validation, test):
    """A device's own fields of its env."""
    return dict(
        grad_fn=train,
        samples=len(train.y),
        score=test.score,
        validation=validation.labelled(),
        held_out=test.labelled(),
        own_classes=tuple(int(c) for c in np.unique(np.concatenate([train.y, validation.y]))),
    )


def no_own_model(method):
    """The method, whose devices must not make a model of their own: FedAvg's takes passes over all samples."""

    def models(env, s, m):
        assert s is None, "a personal model that nobody needs"
        return method.models(env, s, m)

    return replace(method, models=models)
