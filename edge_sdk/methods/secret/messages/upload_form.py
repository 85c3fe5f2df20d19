"""An upload of integers as vectors in rings: its numbers, its size, and its label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.integers.vectors.labels import Paths, label_type
from edge_sdk.methods.integers.vectors.messages import VECTORS, Integers
from edge_sdk.methods.integers.vectors.rungs import RUNGS, rung_of, size_of
from edge_sdk.methods.secret.messages.forms import (
    PLAIN_NAMES,
    Flat,
    join_words,
    read_scores,
    split_words,
    to_words,
    written_scores,
)
from edge_sdk.methods.secret.messages.messages import SumForm
from edge_sdk.methods.shared.aggregation.gather import Nobody

LABEL = ("weight", "count", "scores")
"""Fields of an upload beside its vectors, of a kind that can be masked."""


@dataclass(frozen=True)
class UploadKind:
    """Uploads of one method: numbers, size (one of RUNGS is 1) and which scores are there as steps; weight and scores
    as words.

    Attributes:
        up: type of an upload -> paths of its vectors.
    """

    up: Mapping[type, Paths]
    message = Integers

    def __post_init__(self) -> None:
        for cls, paths in self.up.items():
            names = {f.name for f in fields(cls)} - set(paths)
            if names != set(LABEL):
                raise UsageError(f"{cls.__name__} has the fields {', '.join(sorted(names))}, expected {LABEL}")

    def upload(self, form: SumForm) -> tuple[type, Paths]:
        """Type of the upload, and the paths of its vectors. Raises PeerError where the method has no such upload."""
        for cls, paths in self.up.items():
            if cls.__name__ == form.kind and set(form.there) <= set(paths):
                return cls, paths
        raise PeerError(f"{form.kind} with {', '.join(form.there)} is no upload of this method")

    def form(self, env: NodeEnv, message: Integers) -> SumForm:
        return SumForm(type(message.label).origin.__name__, message.there, message.size, message.bits, message.half)

    def lengths(self, form: SumForm) -> tuple[int, int]:
        self.upload(form)
        if not 0 < len(form.there) <= VECTORS or form.size < 1 or form.size % len(form.there):
            raise PeerError(f"{form.size} numbers of {len(form.there)} vectors")
        return form.size + RUNGS + len(PLAIN_NAMES), 3 + 2 * len(PLAIN_NAMES)

    def width(self, form: SumForm, terms: int) -> int:
        return rounding.width(form.bits, terms)

    def flatten(self, form: SumForm, message: Integers) -> Flat:
        rungs = np.zeros(RUNGS, np.uint32)
        rungs[rung_of(message.spread)] = 1
        there, words = written_scores(PLAIN_NAMES, message.label.scores)
        steps = np.concatenate([message.steps, rungs, np.array(there, np.uint32)])
        return Flat(steps, to_words([1, *split_words(message.label.weight), *words]))

    def restore(self, form: SumForm, terms: int, flat: Flat, cohort: int) -> Integers:
        numbers, rungs, there = np.split(flat.steps, [form.size, form.size + RUNGS])
        if int(rungs.sum()) != terms:
            raise PeerError(f"the sizes of {int(rungs.sum())} uploads in a sum of {terms}")
        words = flat.words.tolist()
        scores = read_scores(PLAIN_NAMES, there.tolist(), words[3:], terms, cohort)
        weight = join_words(words[1], words[2], terms)
        label = label_type(*self.upload(form))(weight=weight, count=terms, scores=scores)
        if (numbers > 2 * rounding.largest(form.bits) * terms).any():
            raise PeerError(f"a sum beyond what {terms} uploads of {form.bits} bits add up to")
        packed = rounding.pack(numbers, rounding.width(form.bits, terms))
        spread = size_of(int(np.flatnonzero(rungs)[-1]))
        return Integers(label, form.there, form.size, form.bits, form.half, terms, spread, packed)

    def blank(self, form: SumForm) -> Integers:
        return blank_upload(*self.upload(form), form)

    def nothing(self, form: SumForm) -> Nobody:
        return Nobody()


@lru_cache(maxsize=8)
def blank_upload(cls: type, paths: Paths, form: SumForm) -> Integers:
    """An upload of zeros with weight 1. The same one for all devices of a round: it is measured once."""
    zeros = np.full(form.size, rounding.largest(form.bits), np.uint32)
    packed = rounding.pack(zeros, form.bits)
    one = label_type(cls, paths)(weight=1.0, count=1, scores={})
    return Integers(one, form.there, form.size, form.bits, form.half, 1, 0.0, packed)
