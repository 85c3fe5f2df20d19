"""Which recordings of a store are trained on and which it judges by: decided once for each, and for ever.

A keyed hash decides. But of few recordings it may leave one part without any, so the first one is trained on and the
second one is held out; what was decided for these is kept, also when their windows are erased.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from edge_sdk.data.store.index import SampleIndex

FACT = "first_parts"
"""Fact: a JSON object, keyed hash of a recording -> was it held out, until there is a recording in both parts."""


class HeldOut:
    """Decisions of one store.

    Args:
        share: of the recordings that are held out; 0: none is.
        draw: purpose and recording -> a number from 0 to below 2^63, the same for ever.
    """

    def __init__(self, index: SampleIndex, share: float, draw: Callable[[bytes, int], int]) -> None:
        self.index, self.share, self.draw = index, share, draw
        saved = index.find_fact(FACT)
        found = self.list_earlier() if saved is None else json.loads(saved)
        self.first = {str(key): bool(held) for key, held in found.items()}

    def list_earlier(self) -> dict[str, bool]:
        """Decisions that a store of an earlier version shows by its windows."""
        return {self.name(recording): held for recording, held in self.index.list_recordings()}

    def name(self, recording: int) -> str:
        return str(self.draw(b"part", recording))

    def decide(self, recording: int) -> bool:
        """Is a recording held out? Within a transaction: the first ones of a store are saved."""
        drawn = self.draw(b"held", recording) < self.share * 2**63
        if not self.share or (
            (name := self.name(recording)) not in self.first and {*self.first.values()} == {True, False}
        ):
            return drawn
        if name not in self.first:
            self.first[name] = False in self.first.values()
            self.index.set_fact(FACT, json.dumps(self.first).encode())
        return self.first[name]
