"""Vectors of phases with noise as vectors in rings: their integers, and nothing beside them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.noisy_phases.contents import PHASES
from edge_sdk.methods.noisy_phases.messages import NoisySums
from edge_sdk.methods.secret.messages.forms import Flat, to_words
from edge_sdk.methods.secret.messages.messages import SumForm

PREFIX = NoisySums.__name__ + ":"
"""Of a form's kind, before the name of the phase."""


class NoisySumsKind:
    """Vectors of one phase: a form says of which, and the scale, as that of an upload does."""

    message = NoisySums

    def form(self, env: NodeEnv, message: NoisySums) -> SumForm:
        return SumForm(PREFIX + message.phase, size=message.size, bits=message.bits, half=message.half)

    def lengths(self, form: SumForm) -> tuple[int, int]:
        return form.size, 1

    def width(self, form: SumForm, terms: int) -> int:
        return rounding.width(form.bits, terms)

    def flatten(self, form: SumForm, message: NoisySums) -> Flat:
        return Flat(message.steps, to_words([1]))

    def restore(self, form: SumForm, terms: int, flat: Flat, cohort: int) -> NoisySums:
        if terms < cohort:
            return self.nothing(form)
        if (flat.steps > 2 * rounding.largest(form.bits) * terms).any():
            raise PeerError(f"an integer that no {terms} vectors of {form.bits} bits add up to")
        packed = rounding.pack(flat.steps, rounding.width(form.bits, terms))
        return NoisySums(phase_in(form), form.size, form.bits, form.half, terms, packed)

    def blank(self, form: SumForm) -> NoisySums:
        packed = rounding.pack(np.zeros(form.size, np.uint32), form.bits)
        return NoisySums(phase_in(form), form.size, form.bits, form.half, 1, packed)

    def nothing(self, form: SumForm) -> NoisySums:
        return NoisySums(phase_in(form), 0, form.bits, form.half, 0, np.zeros(0, np.uint8))


def phase_in(form: SumForm) -> str:
    return form.kind.removeprefix(PREFIX)


NOISY_SUMS = NoisySumsKind()
NOISY_NAMES: Mapping[str, NoisySumsKind] = {PREFIX + phase: NOISY_SUMS for phase in PHASES}
"""Name of a form's kind -> how it is masked."""
