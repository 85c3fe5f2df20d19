"""Small problems with analytic gradients, three tiers around them, and readers of a loopback's trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.environment.samples import Labelled
from edge_sdk.contract.loopback import Loopback, NetworkFaults, Transcript
from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.contract.round import Policy
from edge_sdk.methods.shared.evaluation.evaluation import Watched
from tests.methods.fedal import logit_problems
from tests.methods.hsgd import split_problems

TREE = {"h0": ("d0", "d1", "d2"), "h1": ("d3", "d4"), "h2": ("d5",)}
DEVICES = tuple(d for devices in TREE.values() for d in devices)
SIZES = {h: len(devices) for h, devices in TREE.items()}
LAYOUT = layout_of(("conv", (2, 3, 2, 2), "conv"), ("bias", (2,), "bias"), ("linear", (5, 4), "linear"))
SEED = 7

PATIENT = {"aggregator": Policy(quorum=1)}
HASTY = {"aggregator": Policy(quorum=1, deadline=9.0), "hospital": Policy(deadline=4.0)}
USUAL = NetworkFaults()  # messages are reordered and repeated, none is lost
LOSSY = NetworkFaults(drop=0.15, slow={("d1", 4): 30.0, ("h1", 6): 40.0}, away={"d0": [(20, 90)], "h2": [(50, 70)]})


@dataclass(frozen=True)
class LeastSquares:
    """f(theta) = mean over samples of 1/2 (a_j . theta - b_j)^2, a_j (n,): the data of one device."""

    a: np.ndarray
    b: np.ndarray

    def __call__(self, theta, indices=None):
        a, b = (self.a, self.b) if indices is None else (self.a[indices], self.b[indices])
        residual = a @ theta - b
        return float(residual @ residual) / (2 * len(b)), (a.T @ residual / len(b)).astype(theta.dtype)

    def score(self, theta):
        """As if a residual below 1 were a correct answer."""
        correct = int((np.abs(self.a @ theta - self.b) < 1).sum())
        return {"samples": len(self.b), "correct": correct, "loss": self(theta)[0] * len(self.b)}

    def labelled(self, every):
        """Every so many of its rows with a sign to guess: class 1 where b is above zero."""
        a, b = self.a[::every], self.b[::every]
        return Labelled((b > 0).astype(np.int64), lambda theta: np.stack([np.zeros(len(b)), a @ theta], 1))


def least_squares(seed=0, n=LAYOUT.size, rows=60):
    """Device -> its problem; all of different sizes, none a multiple of a batch."""
    rng = np.random.default_rng(seed)
    sizes = {d: rows + 2 * i for i, d in enumerate(DEVICES)}
    return {d: LeastSquares(rng.normal(size=(k, n)), 2 * rng.normal(size=k)) for d, k in sizes.items()}


PROBLEMS = least_squares()
THETA0 = np.random.default_rng(1).normal(size=LAYOUT.size)


def envs_of(method: Method, settings, rounds: int, dtype=np.float64, **given) -> dict[str, NodeEnv]:
    """What every node of TREE is given. `given`: fields for all of them."""
    common = dict(seed=SEED, rounds=rounds, layout=LAYOUT, theta0=THETA0.astype(dtype), settings=settings) | given
    envs = {"aggregator": method.env(**common, sizes=SIZES)}
    envs |= {h: method.env(**common, sizes=dict.fromkeys(devices, 1)) for h, devices in TREE.items()}
    for d, problem in PROBLEMS.items():
        own = dict(validation=problem.labelled(3), held_out=problem.labelled(2), own_classes=(0, 1))
        envs[d] = method.env(**common, grad_fn=problem, samples=len(problem.b), score=problem.score, **own)
    if hasattr(method.env, "companions"):
        return logit_problems.with_companions(envs)
    if hasattr(method.env, "public"):
        return logit_problems.with_logits(envs)
    return split_problems.with_split(envs) if hasattr(method.env, "split") else envs


def play(method, settings, rounds, *, faults=USUAL, policies=PATIENT, seed=0, tree=TREE, envs=None, **more):
    """(network, trace) of a run."""
    envs = envs_of(method, settings, rounds) if envs is None else envs
    net = Loopback(method, tree, envs, policies, seed, faults, **more)
    return net, net.run()


def state(net: Loopback, name: str):
    """The method's own state of a node, with or without evaluation around it."""
    s = net.nodes[name].record.state
    return s.inner if isinstance(s, Watched) else s


def told(transcript: Transcript, kind: type, who="aggregator") -> list:
    return [m for name, m in transcript.told if isinstance(m, kind) and name == who]


# Readers of a trace, for methods in which a hospital closes once per question of the aggregator. Round r of the
# aggregator is its question r + 1.
def devices_counted(transcript: Transcript) -> list[list[str]]:
    """Aggregator round -> the devices in what it closed with."""
    part = {(h, c.above - 1): c.children for h in TREE for c in transcript.closed.get(h, [])}
    return [sorted(d for h in c.children for d in part[h, r]) for r, c in enumerate(transcript.closed["aggregator"])]


def devices_that_ran(transcript: Transcript) -> list[list[str]]:
    """Aggregator round -> the devices whose question arrived, whatever became of the answer."""
    rounds = [set() for _ in transcript.closed["aggregator"]]
    parent = {d: h for h, devices in TREE.items() for d in devices}
    for d in DEVICES:
        for number in transcript.ran.get(d, []):
            rounds[transcript.asked[parent[d]][number] - 1].add(d)
    return [sorted(s) for s in rounds]
