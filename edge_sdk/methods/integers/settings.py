"""Settings of integers: the [run.uploads] table, and which methods it can stand around."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edge_sdk.algebra.rounding import FEWEST, MOST
from edge_sdk.contract.method import Method
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Uploads:
    """Settings of a run whose vectors travel as integers.

    Attributes:
        bits: of each number of an upload, 2 to 16.
        down_bits: of each number of a model's change on the way down, 2 to 16; 0: as `bits`.
        rotate: vectors are rotated at random before they are rounded.
        feedback: whoever rounds an upload adds what rounding took from it to the next one.
    """

    bits: int = 4
    down_bits: int = 0
    rotate: bool = True
    feedback: bool = True

    def __post_init__(self) -> None:
        for name, least in (("bits", FEWEST), ("down_bits", 0)):
            bits = getattr(self, name)
            if not least <= bits <= MOST or bits == 1:
                also = "" if least else ", or 0: as bits"
                raise UsageError(f"{name} = {bits}: a number travels with {FEWEST} to {MOST} bits{also}")

    @property
    def downward(self) -> int:
        """Bits of each number of a model's change."""
        return self.down_bits or self.bits


def traffic_of(method: Method, method_settings: Any) -> VectorTraffic:
    """The vectors of a method that travel as integers.

    Raises:
        UsageError: it has none; the sentence says why.
    """
    traffic = method.traffic(method_settings)
    if isinstance(traffic, str):
        raise UsageError(f"run.uploads with method {method.name}: {traffic}")
    return traffic
