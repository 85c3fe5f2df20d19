"""Small split models in numpy, data on three tiers, and what a loopback's trace says of the intervals."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.environment.kernels import Split
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Env
from tests.methods import problems


@dataclass(frozen=True)
class Samples:
    """Of one holder, in matching rows: x1 (k, f1), x2 (k, f2), y (k,)."""

    x1: np.ndarray
    x2: np.ndarray
    y: np.ndarray

    def __len__(self):
        return len(self.y)

    def __getitem__(self, rows):
        return Samples(self.x1[rows], self.x2[rows], self.y[rows])


def joined(parts):
    return Samples(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Samples)))


class Toy:
    """The oracle's: yhat = theta_0 (theta_1 x1 + theta_2 x2), squared loss."""

    split = Split(1, 1, 1, 1, 1)

    def h1(self, a, x1):
        return a * x1

    def h2(self, b, x2):
        return b * x2

    def f(self, w, z1, z2, y):
        """Loss of one sample; differentiable in the complex plane."""
        return (w[0] * (z1[0] + z2[0]) - y) ** 2 / 2

    def hospital(self, w, a, z2, s):
        z = a * s.x1 + z2
        e = w * z[:, 0] - s.y
        return (e**2).mean() / 2, np.array([(e * z[:, 0]).mean()]), np.array([(e * w * s.x1[:, 0]).mean()])

    def device(self, w, z1, b, s):
        e = w * (z1 + b * s.x2)[:, 0] - s.y
        return (e**2).mean() / 2, np.array([(e * w * s.x2[:, 0]).mean()])


class Net:
    """tanh towers of 3 units on 4 and 3 features, linear head, cross entropy of 4 classes."""

    split = Split(24, 12, 10, 3, 3)

    def h1(self, a, x1):
        return np.tanh(x1 @ a.reshape(3, 4).T)

    def h2(self, b, x2):
        return np.tanh(x2 @ b[:9].reshape(3, 3).T + b[9])

    def f(self, w, z1, z2, y):
        logits = w.reshape(4, 6) @ np.concatenate([z1, z2])
        return np.log(np.exp(logits).sum()) - logits[int(y)]

    def head(self, w, z1, z2, y):
        """Mean loss, its gradient in theta_0, and each sample's in its embeddings."""
        z = np.concatenate([z1, z2], 1)
        logits = z @ w.reshape(4, 6).T
        logits = logits - logits.max(1, keepdims=True)
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        hot = np.eye(4)[y.astype(int)]
        e = ((p - hot) / len(y)).astype(w.dtype)
        return -np.log(p[hot > 0]).mean(), (e.T @ z).ravel(), e @ w.reshape(4, 6)

    def hospital(self, w, a, z2, s):
        z1 = self.h1(a, s.x1)
        loss, g_0, g_z = self.head(w, z1, z2, s.y)
        return loss, g_0, ((g_z[:, :3] * (1 - z1**2)).T @ s.x1).ravel()

    def device(self, w, z1, b, s):
        z2 = self.h2(b, s.x2)
        loss, _, g_z = self.head(w, z1, z2, s.y)
        back = g_z[:, 3:] * (1 - z2**2)
        return loss, np.concatenate([(back.T @ s.x2).ravel(), [back.sum()]]).astype(w.dtype)


START = (0.5, 1.0, -0.5)
TOY = {
    "h0": {"d0": Samples(np.array([[1.0]]), np.array([[2.0]]), np.array([1.0])),
           "d1": Samples(np.array([[2.0]]), np.array([[-1.0]]), np.array([0.5]))},
    "h1": {"d2": Samples(np.array([[-1.0]]), np.array([[1.0]]), np.array([2.0]))},
}  # fmt: skip


def drawn(seed, count, dtype=np.float64):
    rng = np.random.default_rng(seed)
    x1, x2 = rng.normal(size=(count, 4)), rng.normal(size=(count, 3))
    y = np.argmax(np.stack([x1[:, 0], x2[:, 0], x1[:, 1] * x2[:, 1], -x1[:, 0]]), 0)
    return Samples(x1.astype(dtype), x2.astype(dtype), y.astype(np.int64))


def groups(sizes, samples=lambda i: 1):
    """Group -> device -> samples; groups of these sizes."""
    names = iter(range(sum(sizes)))
    return {
        f"h{m}": {f"d{i}": drawn([m, i], samples(i)) for i in [next(names) for _ in range(k)]}
        for m, k in enumerate(sizes)
    }


BIG = groups((6, 4, 3))
SEVERAL = groups((4, 3, 2), lambda i: 2 + i % 3)
THETA0 = np.random.default_rng(3).normal(size=46) / 2


# Three tiers ----------------------------------------------------------------------------------------------------
def layout(split):
    parts = {"head": split.s0, "hospital": split.s1, "device": split.s2}
    return layout_of(*((name, (size,), "other") for name, size in parts.items() if size))


def device_kernels(model, samples):
    return dict(
        samples=len(samples),
        h2=lambda b, rows: model.h2(b, samples.x2[rows]),
        grad_device=lambda w, z1, b, rows: model.device(w, z1, b, samples[rows]),
    )


def hospital_kernels(model, devices):
    everything, ends = joined(devices.values()), np.cumsum([0, *map(len, devices.values())])
    return dict(
        rows={d: np.arange(a, b) for d, a, b in zip(devices, ends[:-1], ends[1:], strict=True)},
        h1=lambda a, rows: model.h1(a, everything.x1[rows]),
        grad_hospital=lambda w, a, z2, rows: model.hospital(w, a, z2, everything[rows]),
    )


def envs_of(data, model, theta0, settings, rounds):
    common = dict(
        seed=problems.SEED,
        rounds=rounds,
        theta0=theta0,
        settings=settings,
        split=model.split,
        layout=layout(model.split),
    )
    envs = {"aggregator": Env(**common, sizes={h: len(ds) for h, ds in data.items()})}
    for h, devices in data.items():
        envs[h] = Env(**common, sizes=dict.fromkeys(devices, 1), **hospital_kernels(model, devices))
        envs |= {d: Env(**common, **device_kernels(model, s)) for d, s in devices.items()}
    return envs


def play(data, settings, rounds, *, model=None, theta0=THETA0, faults=NetworkFaults(), policies=None, seed=0, **more):  # noqa: B008
    """(network, trace) of a run."""
    envs = envs_of(data, model or Net(), np.asarray(theta0), settings, rounds)
    net = Loopback(
        more.pop("method", HSGD),
        {h: tuple(ds) for h, ds in data.items()},
        envs,
        policies or problems.PATIENT,
        seed,
        faults,
        **more,
    )
    return net, net.run()


def theta(net):
    return net.nodes["aggregator"].record.state.theta


@dataclass(frozen=True)
class Intervals:
    """(group, round, interval) -> devices whose zeta_2 came, whose theta_2 came back; round -> groups averaged."""

    A: dict
    back: dict
    groups: list


def intervals(transcript):
    A, back = {}, {}
    for h, closes in transcript.closed.items():
        for now, after in zip(closes, [*closes[1:], None], strict=True):
            if h != "aggregator" and now.state.now.training:
                key = (h, now.state.round, now.state.interval)
                A[key] = sorted(now.state.now.zeta_2)
                back[key] = sorted(after.children) if after and after.above == now.above else []
    met = [
        sorted(h for h in c.children if any((h, r) == k[:2] for k in A))
        for r, c in enumerate(transcript.closed["aggregator"])
    ]
    return Intervals(A, back, met)


# For the contract, on the tree and layout of all methods ---------------------------------------------------------
def with_split(envs):
    """Envs of TREE and LAYOUT with kernels and data of a split model."""
    model = Net()
    for h, names in problems.TREE.items():
        devices = {d: drawn([5, problems.DEVICES.index(d)], 3 + problems.DEVICES.index(d), np.float32) for d in names}
        envs[h] = replace(envs[h], **hospital_kernels(model, devices))
        envs |= {d: replace(envs[d], **device_kernels(model, s)) for d, s in devices.items()}
    return {name: replace(env, split=model.split, bias=slice(0, 3)) for name, env in envs.items()}
