"""Bytes that a run's messages would take on the wire, counted without writing them all.

A message is written once for each form that it can have: two uploads whose arrays have the same shapes, and whose maps
have as many entries, are as long but for a few bytes of their numbers. What frames, acknowledgements and MQTT add is
not counted, nor are evaluations, which are the observer's.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.simulation.sums.light_uploads import KINDS, SumElsewhere, VectorElsewhere, as_sent
from edge_sdk.wire.codec.codec import Codec

HOPS = ("device_to_hospital", "hospital_to_device", "hospital_to_aggregator", "aggregator_to_hospital")


class Traffic:
    """Bytes on each hop so far.

    Args:
        codec: of the method's messages.
        bytes: hop -> bytes, to go on from.
    """

    def __init__(self, codec: Codec, bytes: Mapping[str, int] | None = None) -> None:
        self.codec = codec
        self.bytes = {hop: (bytes or {}).get(hop, 0) for hop in HOPS}
        self.sizes: dict[Any, int] = {}
        self.latest: tuple[Any, int] = (None, 0)

    @property
    def total(self) -> int:
        return sum(self.bytes.values())

    def count_client(self, down: int, up: int) -> None:
        """Counts the bytes of a question to a client, and those of its answer."""
        self.bytes["hospital_to_device"] += down
        self.bytes["device_to_hospital"] += up

    def count_hospital(self, message: Any, down: bool) -> None:
        """Counts a message between aggregator and hospital."""
        self.bytes["aggregator_to_hospital" if down else "hospital_to_aggregator"] += self.size(message)

    def written_sizes(self) -> str:
        """The forms of messages and their sizes, as JSON: a run that goes on counts as the one that was left."""
        return json.dumps([[repr(form), size] for form, size in self.sizes.items()])

    def read_sizes(self, text: str) -> None:
        """Takes what `written_sizes` has written; nothing of a checkpoint that has none."""
        self.sizes = {ast.literal_eval(form): int(size) for form, size in json.loads(text or "[]")}

    def size(self, message: Any) -> int:
        """Bytes of a message."""
        if self.latest[0] is not message:
            form = form_of(message)
            if form not in self.sizes:
                self.sizes[form] = len(self.codec.encode(filled(message)))
            if not isinstance(message, Sum):  # a question goes to many
                self.latest = (message, self.sizes[form])
            return self.sizes[form]
        return self.latest[1]


def form_of(value: Any) -> Any:
    """What the length of a message depends on."""
    if type(value) in KINDS:
        return (KINDS[type(value)], value.total.shape, len(value.scores))
    if isinstance(value, np.ndarray):
        return value.shape
    if is_dataclass(value):
        return (type(value).__name__, *(form_of(getattr(value, f.name)) for f in fields(value)))
    if isinstance(value, Mapping):
        return ("map", len(value), *(form_of(value[key]) for key in value if is_dataclass(value[key])))
    if isinstance(value, (tuple, list)):
        return ("list", len(value), *(form_of(item) for item in value if is_dataclass(item)))
    return type(value).__name__


def filled(message: Any) -> Any:
    """A message that can be written: a stand-in as the upload that it stands for, with any vector of its size."""
    if isinstance(message, SumElsewhere):
        return Sum(np.zeros(message.total.shape, np.float32), message.weight, message.count, message.scores)
    if isinstance(message, VectorElsewhere):
        return VectorSum(np.zeros(message.total.shape, np.float32), message.weight, message.count, message.scores)
    return as_sent(message)
