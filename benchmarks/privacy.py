"""A red team: what can be rebuilt from the messages of a run, with and without each protection.

    python benchmarks/privacy.py [--seed 0] [--devices 12] [--rounds 8]

Everything is rebuilt from messages that crossed in runs of the product's own roles, by somebody who reads them all,
knows the model, its settings and the seed, and has data of other people to compare with. Data are drawn: ten classes
that overlap much, 32 features, a linear model, four samples of four classes on each device, so that a gradient says as
much of a sample as it can. A minute on one core. The columns:

    plain            floats, each device's upload read by hospital and broker
    integers         4 bits, rotated, with error feedback
    secret sums      the same, but only the sum of a hospital's devices is seen (a cohort of all)
    noise            [run.privacy] with epsilon = 8 for that cohort; each upload read by hospital and broker
    noise in sums    the same, but only the sum is seen: what epsilon is promised for

    inversion        correlation between samples that are rebuilt from the first upload and the device's own, without
                     the mean of their class; 0: nothing, 1: the samples
    membership       area under the ROC curve of telling a device's training samples from others, from all uploads,
                     against shadow devices of the attacker's own (N. Carlini et al., "Membership Inference Attacks From
                     First Principles", 2022, with one statistic for each sample); 0.5: guessing
    label counts     share of devices of which the number of samples of every class is right, from the first upload
    held-out counts  the same of held-out samples, from scores whose histograms the holder lets out
    by default       the same from scores as they leave where the holder says nothing
    gamma_i          FedSLR: correlation between a device's gamma_i, which is in no message, and what its hospital
                     computes from the messages
    features         HSGD: relative error of a device's features, as its hospital computes them from embeddings and
                     theta_2; 0: the features, 1: nothing
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from benchmarks.protocol import markdown
from edge_sdk.algebra import lowrank
from edge_sdk.algebra.metrics import classification
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.hsgd import row_integers
from edge_sdk.methods.hsgd.messages import Embed, EmbedByIntegers, Embedding
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.messages import Changes, Integers
from edge_sdk.methods.integers.vectors.privacy import NOISY, Privacy
from edge_sdk.methods.integers.vectors.rounded import read_vector, upward
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.evaluation.evaluation import Scores, evaluated
from edge_sdk.nodes.policy.allow import CLASSES as BY_CLASS
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.score_filter import limited

OPEN = Allow(scores=BY_CLASS, scores_of=1)
CLASSES, FEATURES, SAMPLES, SHADOWS = 10, 32, 4, 24
LAYOUT = layout_of(("linear", (CLASSES, FEATURES), "linear"), ("bias", (CLASSES,), "bias"))
CALM = NetworkFaults(repeat=0.0)
PLAIN, INTEGERS, SECRET, NOISE, NOISY_SUMS = "plain", "integers", "secret sums", "noise", "noise in sums"
COLUMNS = (PLAIN, INTEGERS, SECRET, NOISE, NOISY_SUMS)
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"eta_l": 0.5, "batch": 0, "local_epochs": 1},
    "fedslr": {"eta_l": 0.1, "batch": 0, "local_epochs": 4, "eta_g": 5.0, "lam": 0.001},
}


# Data -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Person:
    """Samples of one device: x (k, features), y (k,)."""

    x: Any
    y: Any

    def gradient(self, theta: Any, rows: Any) -> tuple[float, Any]:
        x, y = (self.x, self.y) if rows is None else (self.x[rows], self.y[rows])
        p = classification.softmax(logits(theta, x))
        e = (p - np.eye(CLASSES)[y]) / len(y)
        return float(-np.log(p[np.arange(len(y)), y]).mean()), np.concatenate([(e.T @ x).ravel(), e.sum(0)])


def logits(theta: Any, x: Any) -> Any:
    w, b = theta[:-CLASSES].reshape(CLASSES, FEATURES), theta[-CLASSES:]
    return x @ w.T + b


def person(random: np.random.Generator, means: Any, count: int = SAMPLES, distinct: bool = True) -> Person:
    y = random.choice(CLASSES, count, replace=not distinct)
    return Person(means[y] + random.normal(size=(count, FEATURES)), y)


class SeededBytes:
    """Bytes for noise that are the same each time, so that the table is. Settings lead to no such source."""

    def __init__(self, seed: str) -> None:
        self.seed, self.drawn = seed, 0

    def __call__(self, count: int) -> bytes:
        self.drawn += 1
        return hashlib.shake_128(f"{self.seed}/{self.drawn}".encode()).digest(count)


# Runs -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Played:
    """A run: who has what, all that crossed, and the states that nobody is to know. `means`: of classes, well known."""

    means: Any
    people: Mapping[str, Person]
    held_out: Mapping[str, Person]
    crossed: Sequence[tuple[str, str, Any]]
    states: Mapping[str, Any]
    env: Any


def played(name: str, protection: str, devices: int, rounds: int, seed: int, allow: Allow = OPEN) -> Played:
    """Plays a method with the uploads of a column. Raises UsageError where it cannot.

    Args:
        allow: what holders let out, in [allow] of each node.
    """
    random = np.random.default_rng([seed, 1])
    means = 0.5 * random.normal(size=(CLASSES, FEATURES))
    names = tuple(f"d{i:02d}" for i in range(devices))
    people = {d: person(random, means) for d in names}
    held_out = {d: person(random, means, 12, distinct=False) for d in names}
    method = METHODS[name]
    settings = method.settings(**SETTINGS[name])
    method = limited_by(evaluated(protected(method, settings, protection, devices)), allow)
    size = LAYOUT.size
    common: dict[str, Any] = {"seed": seed, "rounds": rounds, "layout": LAYOUT, "settings": settings}
    common |= {"theta0": np.zeros(size)}
    envs = {ROOT: method.env(**common, sizes={"h": devices}), "h": method.env(**common, sizes=dict.fromkeys(names, 1))}
    for d in names:
        judge = held_out[d]
        score = lambda theta, judge=judge: classification.sums(judge.y, logits(theta, judge.x))  # noqa: E731
        own = {"entropy": SeededBytes(f"{seed}/{d}")}
        envs[d] = method.env(**common, **own, me=d, grad_fn=people[d].gradient, samples=SAMPLES, score=score)
    net = Loopback(method, {"h": names}, envs, seed=seed, faults=CALM)
    transcript = net.run()
    states = {d: net.nodes[d].record.state.inner for d in names}
    return Played(means, people, held_out, transcript.crossed, states, envs[ROOT])


def limited_by(method: Any, allow: Allow) -> Any:
    """The method with its nodes' limits on scores."""
    device, hospital = limited(method.device, lambda: allow), limited(method.hospital, lambda: allow, hospital=True)
    return replace(method, device=device, hospital=hospital)


def protected(method: Any, settings: Any, protection: str, devices: int) -> Any:
    if protection == PLAIN:
        return method
    if protection in (INTEGERS, SECRET):
        return rounded(method, settings, Uploads(bits=4))
    privacy = Privacy(clip=1.0, epsilon=8.0, cohort=devices)
    return rounded(method, settings, Uploads(**NOISY), privacy=privacy)


# What somebody sees ---------------------------------------------------------------------------------------------
def updates(run: Played, senders: Sequence[str]) -> dict[str, list[Any]]:
    """Sender -> the difference to the model that it says, round by round, per unit of weight."""
    found: dict[str, list[Any]] = {who: [] for who in senders}
    shown: dict[str, Any] = {}
    for sender, to, m in run.crossed:
        if isinstance(m, Changes) or (hasattr(m, "model") and hasattr(m, "pick")):
            shown[to] = m
        elif sender in found and isinstance(m, Integers):
            how = upward(run.env, Uploads(), shown[sender].version, m.bits)
            found[sender].append(read_vector(how, m.steps, m.half, m.terms, np.zeros(0)) / m.label.weight)
        elif sender in found and isinstance(m, Sum):
            found[sender].append(m.total / m.weight - lowrank.unpack(LAYOUT, shown[sender].model))
    return found


def seen(run: Played, protection: str) -> dict[str, list[Any]]:
    """Device -> what of its updates is seen: its own, or the mean of all."""
    if protection in (SECRET, NOISY_SUMS):
        total = updates(run, ["h"])["h"]
        return dict.fromkeys(run.people, total)
    return updates(run, list(run.people))


# Attacks --------------------------------------------------------------------------------------------------------
def invert(run: Played, looks: Mapping[str, Sequence[Any]]) -> float:
    """Row c of a linear layer's gradient, over that of its bias, is a mean of samples in which those of class c weigh
    most (L. Phong et al., 2017)."""
    found = []
    for d, own in run.people.items():
        w, b = looks[d][0][:-CLASSES].reshape(CLASSES, FEATURES), looks[d][0][-CLASSES:]
        for x, y in zip(own.x, own.y, strict=True):
            if b[y]:
                found.append(correlation(w[y] / b[y] - run.means[y], x - run.means[y]))
    return float(np.mean(found))


def tell_members(run: Played, looks: Mapping[str, Sequence[Any]], seed: int) -> float:
    """How far an upload moves along minus the gradient of a sample, against devices without it."""
    random = np.random.default_rng([seed, 2])
    shadows = [person(random, run.means) for _ in range(SHADOWS)]
    start, scored = np.zeros(LAYOUT.size), []
    for d, own in run.people.items():
        others = person(random, run.means)
        for is_member, some in ((True, own), (False, others)):
            for x, y in zip(some.x, some.y, strict=True):
                slope = Person(x[None], np.array([y])).gradient(start, None)[1]
                usual = [float(slope @ s.gradient(start, None)[1]) for s in shadows]
                moved = -float(np.mean([slope @ u for u in looks[d]]))
                scale = SETTINGS["fedavg"]["eta_l"]
                scored.append((is_member, (moved / scale - np.mean(usual)) / (np.std(usual) + 1e-12)))
    return area([s for yes, s in scored if yes], [s for yes, s in scored if not yes])


def area(members: Sequence[float], others: Sequence[float]) -> float:
    a, b = np.array(members)[:, None], np.array(others)[None]
    return float((a > b).mean() + 0.5 * (a == b).mean())


def count_labels(run: Played, looks: Mapping[str, Sequence[Any]]) -> float:
    """In the first round all classes are as likely: a bias moves by its class's share less the mean share."""
    scale, right = SETTINGS["fedavg"]["eta_l"], []
    for d, own in run.people.items():
        share = looks[d][0][-CLASSES:] / scale + 1 / CLASSES
        right.append(np.array_equal(np.rint(share * SAMPLES), np.bincount(own.y, minlength=CLASSES)))
    return float(np.mean(right))


def read_scores(run: Played, protection: str) -> float:
    """Histograms of scores have a name for each class; their sizes are numbers of samples, of a sum a device's mean."""
    told = {sender: m.sums for sender, _, m in run.crossed if isinstance(m, Scores)}
    right = []
    for d, own in run.held_out.items():
        sums = {"devices": 1.0} | dict(told["h" if protection in (SECRET, NOISY_SUMS) else d])
        counts = np.zeros(CLASSES)
        for name, value in sums.items():
            parts = name.split(":")
            if parts[0] == "global_auc" and parts[2] == "1":
                counts[int(parts[1])] += value / sums["devices"]
        right.append(np.array_equal(np.rint(counts), np.bincount(own.y, minlength=CLASSES)))
    return float(np.mean(right))


def rebuild_gamma(protection: str, devices: int, rounds: int, seed: int) -> float:
    """gamma_i begins at zero, and moves by (w_t - w_i) / eta_g whenever an upload counts."""
    run = played("fedslr", protection, devices, rounds, seed)
    looks, eta = seen(run, protection), SETTINGS["fedslr"]["eta_g"]
    found = []
    for d, state in run.states.items():
        truth = getattr(state, "inner", state).tried
        found.append(correlation(-sum(looks[d]) / eta, truth))
    return float(np.mean(found))


def correlation(a: Any, b: Any) -> float:
    return float(np.corrcoef(a, b)[0, 1])


# HSGD -----------------------------------------------------------------------------------------------------------
def rebuild_features(protection: str, devices: int, seed: int) -> float:
    """zeta_2 = tanh(theta_2 x + b): the edge knows theta_2 and the same samples' zeta_2 of several rounds."""
    from tests.methods.hsgd import split_problems as split

    data = {"h0": {f"d{i}": split.drawn([seed, i], 6) for i in range(3)}}
    method = METHODS["hsgd"]
    settings = method.settings(P=2, Q=1, eta=0.3, bits=4 if protection == INTEGERS else 0)  # it has integers of its own
    method = method if protection == INTEGERS else protected(method, settings, protection, devices)
    envs = split.envs_of(data, split.Net(), split.THETA0, settings, 4)
    transcript = Loopback(method, {h: tuple(some) for h, some in data.items()}, envs, seed=seed, faults=CALM).run()
    asked: dict[str, Embed | EmbedByIntegers] = {}
    errors: dict[str, list[float]] = {}
    for sender, to, m in transcript.crossed:
        if isinstance(m, Embed | EmbedByIntegers):
            asked[to] = m
        elif isinstance(m, Embedding) and asked[sender].device is not None:
            z = split_open(m)
            b = shown_tower(asked[sender])
            x = np.linalg.solve(b[:9].reshape(3, 3), (np.arctanh(np.clip(z, -1 + 1e-12, 1 - 1e-12)) - b[9]).T).T
            truth = data["h0"][sender].x2
            nearest = [np.linalg.norm(truth - row, axis=1).min() / np.linalg.norm(row) for row in x]
            errors.setdefault(sender, []).append(float(np.mean(nearest)))
    return float(np.mean([min(some) for some in errors.values()]))


def shown_tower(m: Embed | EmbedByIntegers) -> Any:
    """theta_2 as a device was shown it."""
    return row_integers.read_vector(m.device, 10, "theta_2") if isinstance(m, EmbedByIntegers) else m.device


def split_open(m: Embedding) -> Any:
    from edge_sdk.methods.hsgd import compression

    return compression.unpack(m.zeta_2)


# The table ------------------------------------------------------------------------------------------------------
def attack(protection: str, devices: int, rounds: int, seed: int) -> dict[str, str]:
    run = played("fedavg", protection, devices, rounds, seed)
    looks = seen(run, protection)
    found = {
        "inversion": f"{invert(run, looks):.2f}",
        "membership": f"{tell_members(run, looks, seed):.2f}",
        "label counts": f"{count_labels(run, looks):.0%}",
        "held-out counts": f"{read_scores(run, protection):.0%}",
        "by default": f"{read_scores(played('fedavg', protection, devices, rounds, seed, Allow()), protection):.0%}",
        "gamma_i": unless_refused(lambda: f"{rebuild_gamma(protection, devices, rounds, seed):.2f}"),
        "features": unless_refused(lambda: f"{rebuild_features(protection, devices, seed):.2g}"),
    }
    return found


def unless_refused(attempt: Callable[[], str]) -> str:
    """What an attack comes to, or that the method cannot be run with the protection."""
    try:
        return attempt()
    except UsageError:
        return "refused"


def table(devices: int, rounds: int, seed: int) -> dict[str, dict[str, str]]:
    """Attack -> column -> success."""
    columns = {protection: attack(protection, devices, rounds, seed) for protection in COLUMNS}
    return {name: {p: columns[p][name] for p in COLUMNS} for name in columns[PLAIN]}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--devices", type=int, default=12)
    options.add_argument("--rounds", type=int, default=8)
    given, began = options.parse_args(), time.monotonic()
    found = table(given.devices, given.rounds, given.seed)
    print(f"{given.devices} devices of one hospital, {SAMPLES} samples each, {given.rounds} rounds, seed {given.seed}")
    print(markdown(("", *COLUMNS), [[name, *row.values()] for name, row in found.items()]))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
