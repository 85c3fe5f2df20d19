"""Clients in any number, each of which draws its samples from a data set by itself: a million need no more memory than
their names.

A client's label mix, its rows, and the shift of its features are functions of the seed and of its number. Samples are
drawn with replacement, those to learn from, to choose by and to be judged by from parts of the data set that have no
recording in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edge_sdk.data.patients import Patients
from edge_sdk.data.samples import label_samples
from edge_sdk.errors import UsageError
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.cohorts.datasets import Dealing, name_inputs, set_apart
from edge_sdk.replay.datasets import DATASETS, load
from edge_sdk.replay.datasets.partition import parse_number
from edge_sdk.replay.datasets.table import Floats, Labels, Rows, Table, hold_out, hold_out_of, standardise
from edge_sdk.simulation.clients.numbered import NumberedClients, Shape, Tree, number_of
from edge_sdk.simulation.clients.population import ClientData, Part

MIX, ROWS, SHIFT = 40, 41, 42
"""Purposes of random streams."""
USUAL = 50
"""Samples to learn from, where nothing is said."""


@dataclass(frozen=True)
class Pools:
    """A data set, and its rows by part and class.

    Attributes:
        table: standardised on the rows to learn from.
        held: input of a bundle -> what its holder knows of each sample.
        train, held_out, validation: class -> rows, of classes that have some.
        public: rows that nobody has, and all know the inputs of.
    """

    table: Table
    held: Mapping[str, Floats]
    train: Mapping[int, Rows]
    held_out: Mapping[int, Rows]
    validation: Mapping[int, Rows]
    public: Rows


def make_pools(spec: str, seed: int, how: Dealing, splits: bool) -> Pools:
    """Reads a data set and sets its parts apart, as a replay does.

    Raises:
        UsageError: it cannot be read, or a part would be empty.
    """
    table = load(spec)
    train, test = hold_out(table, how.held_out, seed)
    table = standardise(table, train, DATASETS[table.name].together)
    public, train = set_apart(train, how.public, seed)
    validation = train[:0]
    if how.validation > 0 and not splits:
        train, validation = hold_out_of(table, train, how.validation / (1 - how.held_out), seed)
    learned, judged, chosen = (by_class(table.y, rows) for rows in (train, test, validation))
    return Pools(table, name_inputs(table, splits), learned, judged, chosen, public)


def by_class(y: Labels, rows: Rows) -> dict[int, Rows]:
    return {int(c): rows[y[rows] == c] for c in np.unique(y[rows])}


@dataclass(frozen=True)
class ClientRows:
    """Rows of the table that a client has."""

    train: Rows
    held_out: Rows
    validation: Rows


class DrawnClients(NumberedClients):
    """A population of clients that draw their samples.

    Args:
        pools: where from.
        tree: hospital -> its clients.
        how: samples of each, label mix, and shares of the parts.
        shift: deviation of each client's own offset and (logarithmic) scale of its features; 0: there is none.
        seed: of all draws.
    """

    def __init__(self, pools: Pools, tree: Tree, how: Dealing, shift: float, seed: int) -> None:
        super().__init__(tree, seed)
        self.pools, self.how, self.shift = pools, how, shift
        self.samples = how.samples or USUAL
        check_mix(how.deal)

    @property
    def cohort(self) -> Cohort:
        return cohort_of(self.pools, self.tree, self.samples)

    def rows(self, client: str) -> ClientRows:
        """The rows that a client has drawn."""
        number, share = number_of(client), 1 - self.how.held_out - self.how.validation
        mix = self.mix(number)
        random = np.random.default_rng([self.seed, ROWS, number])
        judged = self.how.tests or max(1, round(self.samples * self.how.held_out / share))
        chosen = max(1, round(self.samples * self.how.validation / share)) if self.pools.validation else 0
        counts = self.samples, judged, chosen
        pools = self.pools.train, self.pools.held_out, self.pools.validation
        return ClientRows(*(take(random, mix, pool, count) for pool, count in zip(pools, counts, strict=True)))

    def mix(self, number: int) -> dict[int, float]:
        """Class -> its share of a client's samples."""
        rule, _, value = self.how.deal.partition("=")
        if rule == "iid":
            return self.usual_mix
        classes, random = sorted(self.pools.train), np.random.default_rng([self.seed, MIX, number])
        if rule == "classes":
            held = random.permutation(classes)[: int(parse_number(self.how.deal, value))]
            return dict.fromkeys(map(int, held), 1 / len(held))
        alpha = parse_number(self.how.deal, value)
        return dict(zip(classes, random.dirichlet(np.full(len(classes), alpha)).tolist(), strict=True))

    @cached_property
    def usual_mix(self) -> dict[int, float]:
        """Class -> its share of the data set."""
        sizes = {c: len(self.pools.train[c]) for c in sorted(self.pools.train)}
        return {c: size / sum(sizes.values()) for c, size in sizes.items()}

    def data(self, client: str) -> ClientData:
        rows, key = self.rows(client), "x.device" if "x.device" in self.pools.held else "x"
        x = self.pools.held[key]
        parts = [self.part(client, x, some, self.shapes[key]) for some in (rows.train, rows.held_out, rows.validation)]
        return ClientData(parts[0], parts[1], parts[2] if self.pools.validation else None)

    def part(self, client: str, x: Floats, rows: Rows, shape: Shape) -> Part:
        found = x[rows]
        if self.shift:
            random = np.random.default_rng([self.seed, SHIFT, number_of(client)])
            axes = (1, *x.shape[1:2], *(1,) * (x.ndim - 2))  # one of each feature or channel
            scale, offset = (self.shift * random.standard_normal(axes) for _ in range(2))
            found = (found * np.exp(scale) + offset).astype(np.float32)
        return found.reshape(len(rows), *shape), self.pools.table.y[rows]

    def patients(self, hospital: str) -> Patients | None:
        if "x.hospital" not in self.pools.held:
            return None
        table, shape = self.pools.table, self.shapes["x.hospital"]
        x = self.pools.held["x.hospital"]
        every = {client: self.rows(client) for client in self.tree[hospital]}
        train, judged = (np.concatenate([getattr(r, key) for r in every.values()]) for key in ("train", "held_out"))
        whose, others = (
            tuple(client for client, r in every.items() for _ in getattr(r, key)) for key in ("train", "held_out")
        )
        samples = label_samples(x[train].reshape(len(train), *shape), table.y[train], table.classes)
        return Patients(samples, whose, x[judged].reshape(len(judged), *shape), others)


def take(random: np.random.Generator, mix: Mapping[int, float], pool: Mapping[int, Rows], count: int) -> Rows:
    """So many rows of a pool with this mix of classes, with replacement; only classes that the pool has."""
    known = [c for c in mix if c in pool]
    if not known or not count:
        return np.zeros(0, np.int64)
    shares = np.maximum([mix[c] for c in known], np.finfo(float).tiny)
    counts = random.multinomial(count, shares / shares.sum())
    return np.concatenate([pool[c][random.integers(len(pool[c]), size=k)] for c, k in zip(known, counts, strict=True)])


MIXES = "iid, classes=K, dirichlet=A or mixes=A"


def check_mix(rule: str) -> None:
    """Raises UsageError for a rule by which a client cannot draw by itself."""
    name, _, value = rule.partition("=")
    if name not in ("iid", "classes", "dirichlet", "mixes"):
        raise UsageError(f"--deal {rule}: with --clients one of {MIXES}")
    if name != "iid":
        parse_number(rule, value)


def cohort_of(pools: Pools, tree: Tree, samples: int) -> Cohort:
    """The clients in the form in which a replay plans its run."""
    clients = sum(map(len, tree.values()))
    shapes = {key: x.shape[1:] for key, x in pools.held.items()}
    summary = f"{clients} clients in {len(tree)} hospitals, {samples} samples each, drawn from {len(pools.table)}"
    public = pools.table.x[pools.public] if len(pools.public) else None
    generated = pools.table.truth is not None
    return Cohort(summary, tree, pools.table.classes, shapes, True, generated, lambda *_: {}, public)
