"""Devices with a support and a query loss of their own, for AugFL's tests; and Algorithm 1 as printed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.loopback import Loopback
from edge_sdk.methods.augfl.method import AUGFL
from edge_sdk.methods.augfl.settings import Pull, Settings
from edge_sdk.methods.shared.training import meta
from tests.methods.problems import DEVICES, PATIENT, SEED, TREE, USUAL

N = 6
LAYOUT = layout_of(("w", (2, 2), "linear"), ("b", (2,), "bias"))
THETA0 = np.random.default_rng(1).normal(size=N)
BASIC = Settings(alpha=0.3)
THETA_P = np.random.default_rng(2).normal(size=N)


@dataclass
class Quadratic:
    """1/2 (x - c)' A (x - c)."""

    a: np.ndarray
    c: np.ndarray

    def __call__(self, x):
        return float((x - self.c) @ self.a @ (x - self.c)) / 2

    def gradient(self, x):
        return self.a @ (x - self.c)

    def hessian(self, x):
        return self.a


@dataclass
class LogCosh:
    """sum log cosh(U x - b): smooth, convex, not quadratic."""

    u: np.ndarray
    b: np.ndarray

    def __call__(self, x):
        return float(np.log(np.cosh(self.u @ x - self.b)).sum())

    def gradient(self, x):
        return self.u.T @ np.tanh(self.u @ x - self.b)

    def hessian(self, x):
        return (self.u.T / np.cosh(self.u @ x - self.b) ** 2) @ self.u

    @property
    def zeta(self):
        """A Lipschitz constant of the Hessian: |d/dz sech^2 z| <= 4 / (3 sqrt 3)."""
        return float((np.linalg.norm(self.u, axis=1) ** 3).sum()) * 4 / (3 * np.sqrt(3))


def quadratic(rng, low=0.1, high=1.0, basis=None):
    q = np.linalg.qr(rng.normal(size=(N, N)))[0] if basis is None else basis
    return Quadratic(q @ np.diag(rng.uniform(low, high, N)) @ q.T, rng.normal(size=N))


def log_cosh(rng):
    return LogCosh(rng.normal(size=(8, N)) / 3, rng.normal(size=8))


@dataclass
class Client:
    """A device: F(x) = query(x - alpha grad support(x)). `samples` only weighs it; half of them are its support set."""

    support: object
    query: object
    samples: int = 4
    rho: float = 0.7
    calls: list = field(default_factory=list)

    def grad_fn(self, rows):
        support, _ = rows

        def f(theta, indices):
            mine = self.support if np.array_equal(indices, support) else self.query
            self.calls.append("support" if mine is self.support else "query")
            return mine(theta), mine.gradient(theta).astype(theta.dtype)

        return f

    def meta_gradient(self, x, alpha, delta, hvp="central"):
        r = self.query.gradient(x - alpha * self.support.gradient(x))
        if hvp == "exact":
            return r - alpha * self.support.hessian(x) @ r
        g = (self.support.gradient(x + delta * r) - self.support.gradient(x - delta * r)) / (2 * delta)
        return r - alpha * g * (hvp == "central")

    def value(self, x, alpha):
        return self.query(x - alpha * self.support.gradient(x))


def clients_of(make, seed=0, names=DEVICES):
    rng = np.random.default_rng(seed)
    sizes = {d: 4 + 2 * i for i, d in enumerate(names)}
    return {d: Client(make(rng), make(rng), sizes[d], rng.uniform(0.5, 1.5)) for d in names}


SMOOTH = clients_of(log_cosh)
QUADRATIC = clients_of(quadratic)


def weights_of(clients):
    total = sum(c.samples for c in clients.values())
    return {d: c.samples / total for d, c in clients.items()}


@dataclass
class L2:
    """lambda ||theta - theta_p||^2, counting its calls."""

    lam: float
    theta_p: np.ndarray = field(default_factory=lambda: THETA_P)
    calls: int = 0

    def gradient(self, theta):
        return 2 * self.lam * (theta - self.theta_p)

    def __call__(self, theta, round, memory):
        self.calls += 1
        return Pull(self.gradient(theta), float(self.lam * (theta - self.theta_p) @ (theta - self.theta_p)), memory)


def envs_of(clients, settings, rounds, tree=TREE, pull=None, y0=None, theta0=THETA0, method=AUGFL):
    settings = replace(settings, **rhos_of(clients)) if isinstance(settings, Settings) else settings
    common = dict(seed=SEED, rounds=rounds, layout=LAYOUT, theta0=theta0, settings=settings)
    top = {"regulariser": pull} if pull is not None else {}
    envs = {"aggregator": method.env(**common, sizes={h: len(d) for h, d in tree.items()}, **top)}
    envs |= {h: method.env(**common, sizes=dict.fromkeys(d, 1)) for h, d in tree.items()}
    for name, c in clients.items():
        env = method.env(**common, me=name, samples=c.samples, hessian=lambda x, r, c=c: c.support.hessian(x) @ r)
        env = replace(env, grad_fn=c.grad_fn(meta.support_and_query(env, settings.support)))
        envs[name] = replace(env, y_init=y0[name]) if y0 else env
    return envs


def rhos_of(clients):
    return {"rhos": {d: c.rho for d, c in clients.items()}}


def play(clients, settings, rounds, *, tree=TREE, faults=USUAL, policies=PATIENT, seed=0, through=None, **more):
    """(network, trace, [theta^0, theta^1, ...])."""
    method = more.get("method", AUGFL)
    extra = {"through": through} if through else {}
    net = Loopback(method, tree, envs_of(clients, settings, rounds, tree, **more), policies, seed, faults, **extra)
    transcript = net.run()
    return net, transcript, path_of(transcript, more.get("theta0", THETA0))


def path_of(transcript, theta0=THETA0):
    """theta after each round; the close of the census is none."""
    states = [getattr(c.state, "inner", c.state) for c in transcript.closed["aggregator"]]
    models = {s.round: lowrank.unpack(LAYOUT, s.model) for s in states}
    return [theta0] + [models[t] for t in sorted(models) if t]


# Algorithm 1 ----------------------------------------------------------------------------------------------------
def algorithm_1(clients, s, rounds, *, theta=THETA0, gradient=None, y0=None, rho=None, counted=None, weights=None):
    """As printed: one loop, no roles.

    Args:
        s: settings (alpha, delta, hvp, y_init, dual). gradient: lambda grad R_h. rho, weights: of each client.
        counted: round -> the clients whose upload the server got; the others count with their latest. Default: all.

    Returns:
        A namespace for each round: theta, next, y_before, y, theta_i, G (name -> vector), gR, u.
    """
    rho = rho or {d: c.rho for d, c in clients.items()}
    w = weights or weights_of(clients)
    y = {d: np.zeros_like(theta) for d in clients} if y0 is None else dict(y0)
    u, history = {}, []
    for t in range(rounds):
        there = list(clients) if counted is None else counted[t]
        big_g = {d: clients[d].meta_gradient(theta, s.alpha, s.delta(t), s.hvp) for d in there}
        before = dict(y)
        if s.y_init == "plain":
            before |= {d: -w[d] * big_g[d] for d in there if d not in u}
        if not s.dual:
            before = {d: np.zeros_like(theta) for d in clients}
        theta_i = {d: theta - (before[d] + w[d] * big_g[d]) / rho[d] for d in there}
        if s.dual:
            y |= {d: before[d] + rho[d] * (theta_i[d] - theta) for d in there}
        u |= {d: y[d] + rho[d] * theta_i[d] for d in there}
        gr = gradient(theta) if gradient else np.zeros_like(theta)
        new = (sum(u.values()) - gr) / sum(rho[d] for d in u) if there else theta
        history.append(
            SimpleNamespace(theta=theta, next=new, y_before=before, y=dict(y), theta_i=theta_i, G=big_g, gR=gr)
        )
        theta = new
    return history


def lagrangian(clients, s, h, rho, w, regulariser):
    """Eq. (5) at ({theta_i^t, y_i^t}, theta^t)."""
    total = regulariser(h.theta)
    for d, c in clients.items():
        gap = h.theta_i[d] - h.theta
        total += w[d] * c.value(h.theta_i[d], s.alpha) + h.y[d] @ gap + rho[d] / 2 * gap @ gap
    return total


PULL = L2(0.4)
Y0 = {d: np.random.default_rng([5, i]).normal(size=N) for i, d in enumerate(DEVICES)}
FORMS = [(upload, start) for upload in ("theta_y", "u", "y") for start in ("zero", "plain")]


def error(path, history):
    """The largest difference of models to those of the printed algorithm."""
    assert len(path) == len(history) + 1
    return max(np.abs(a - h.next).max() for a, h in zip(path[1:], history, strict=True))


def counted_by_hospitals(transcript):
    """Aggregator round -> devices whose upload its hospital had, where the aggregator heard that hospital."""
    rounds = {}
    for h in TREE:
        for c in transcript.closed.get(h, []):
            if c.state.asked is not None:
                rounds.setdefault(c.state.asked.round, {})[h] = set(c.children)
    return rounds
