"""Sums of hospitals added up to one, and what the method inside is given of it.

That is made for answers of single hospitals. It is given the mean answer of a device in each hospital's place, times
the number of its devices: the integers are dealt out so that they add up to the sum, to the bit. Scores and counts,
which are only added up, are given as one hospital's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.environment.masks import TAG
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.secret.messages.masking import cut
from edge_sdk.methods.secret.messages.messages import MaskedSum, SumForm
from edge_sdk.methods.secret.messages.plan import SecretPlan
from edge_sdk.methods.secret.messages.pool_messages import PoolState


def together(s: PoolState) -> tuple[str, ...]:
    """Hospitals whose sums are of one form: the most common one, so that one that lies is left out."""
    forms = [ready.form for _, ready in sorted(s.ready.items())]
    most = max(forms, key=forms.count)
    return tuple(h for h, ready in sorted(s.ready.items()) if ready.form == most)


def added(plan: SecretPlan, sums: Mapping[str, MaskedSum]) -> MaskedSum:
    """One sum of all hospitals, in which their masks are gone.

    Raises:
        PeerError: a device is in two of them.
    """
    first, tags = next(iter(sums.values())), dict[str, Any]()
    kind = plan.kind_of(first.form)
    assert kind is not None  # noted
    size = kind.lengths(first.form)[0]
    for h, m in sums.items():
        if twice := sorted({*m.names} & {*tags}):
            raise PeerError(f"{h} sent a sum with {twice[0]}, who is in that of another hospital")
        tags |= {name: m.tags[TAG * i : TAG * (i + 1)] for i, name in enumerate(m.names)}
    steps = sum((rounding.unpack(m.steps, size, m.width) for m in sums.values()), np.zeros(size, np.uint32))
    words = sum((m.words for m in sums.values()), np.zeros(first.words.size, np.uint64))
    names, packed = tuple(sorted(tags)), rounding.pack(cut(steps, first.width), first.width)
    return replace(first, names=names, tags=np.concatenate([tags[n] for n in names]), steps=packed, words=words)


def nothing_of(plan: SecretPlan, form: SumForm) -> Any:
    kind = plan.kind_of(form)
    assert kind is not None  # noted
    return kind.nothing(form)


def shares(plan: SecretPlan, form: SumForm, message: Any, counts: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    """What the method is given of a sum, for each hospital."""
    if not isinstance(message, Integers):
        yield from ((h, message if i == 0 else nothing_of(plan, form)) for i, h in enumerate(counts))
        return
    whole, rest = np.divmod(message.steps, np.uint32(message.terms))
    done, scores = 0, message.label.scores
    for h, count in counts.items():
        before, done = done, done + count
        mine = whole * np.uint32(count) + dealt(rest, done, message.terms) - dealt(rest, before, message.terms)
        label = replace(message.label, weight=message.label.weight * count / message.terms, count=count)
        label = replace(label, scores={name: value * count / message.terms for name, value in scores.items()})
        packed = rounding.pack(mine.astype(np.uint32), rounding.width(message.bits, count))
        yield h, replace(message, label=label, terms=count, packed=packed)


def dealt(rest: rounding.Steps, done: int, terms: int) -> rounding.Steps:
    """The part of what is left of each number that the first `done` of so many devices are given."""
    found: rounding.Steps = (rest.astype(np.uint64) * done // terms).astype(np.uint32)
    return found
