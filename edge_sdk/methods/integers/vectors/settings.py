"""Settings of integers: the [run.uploads] table, and which methods it can stand around."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edge_sdk.algebra.secure_aggregation.rounding import FEWEST, MOST
from edge_sdk.contract.method import Method
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.errors import UsageError

AMONG = "among-devices"
LEAST_COHORT, MOST_COHORT = 2, 1000
"""Devices of which a secret sum is made: of one it would be that device's upload."""


@dataclass(frozen=True, kw_only=True)
class Uploads:
    """Settings of a run whose vectors travel as integers.

    Attributes:
        bits: of each number of an upload, 2 to 16.
        down_bits: of each number of a model's change on the way down, 2 to 16; 0: as `bits`.
        rotate: vectors are rotated at random before they are rounded.
        feedback: whoever rounds an upload adds what rounding took from it to the next one.
        unopened: hospitals open no upload, in the first round neither: its scale is a guess of the aggregator's.
        secret: hospitals could not open an upload if they wanted to: uploads, weights and scores are masked, and only
            the aggregator takes the masks off a sum (methods/secret); "among-devices": the devices of a hospital do,
            together. It implies `unopened`.
        cohort: devices of which a secret sum is made at least.
        hospitals: of which a secret sum is made at least, so that the aggregator reads no single one's; 0: it does.
    """

    bits: int = 4
    down_bits: int = 0
    rotate: bool = True
    feedback: bool = True
    unopened: bool = False
    secret: bool | str = False
    cohort: int = 3
    hospitals: int = 0

    def __post_init__(self) -> None:
        for name, least in (("bits", FEWEST), ("down_bits", 0)):
            bits = getattr(self, name)
            if not least <= bits <= MOST or bits == 1:
                also = "" if least else ", or 0: as bits"
                raise UsageError(f"{name} = {bits}: a number travels with {FEWEST} to {MOST} bits{also}")
        if not LEAST_COHORT <= self.cohort <= MOST_COHORT:
            raise UsageError(f"cohort = {self.cohort}: a sum of {LEAST_COHORT} to {MOST_COHORT} devices hides each")
        if self.secret not in (False, True, AMONG):
            raise UsageError(f"secret = {self.secret!r}: true, false or {AMONG!r}")
        if self.hospitals < 0 or self.hospitals == 1:
            raise UsageError(f"hospitals = {self.hospitals}: a sum of 2 or more hides each; 0: each one's is read")
        if self.hospitals and self.among_devices:
            raise UsageError(
                f"hospitals = {self.hospitals} with secret = {AMONG!r}: a hospital's sum is known when its devices "
                "have opened it"
            )
        if self.hospitals and not self.secret:
            raise UsageError(
                f"hospitals = {self.hospitals} without secret = true: hospitals' sums are read as they are"
            )

    @property
    def sums_only(self) -> bool:
        """Nobody looks at single uploads."""
        return self.unopened or bool(self.secret)

    @property
    def among_devices(self) -> bool:
        """A hospital's devices open its sums, and the aggregator has no key to them."""
        return self.secret == AMONG

    @property
    def downward(self) -> int:
        """Bits of each number of a model's change."""
        return self.down_bits or self.bits


def summing(method: Method, settings: Uploads) -> Method:
    """The method as it is in a run with these uploads."""
    return method.adding if settings.sums_only and method.adding is not None else method


def traffic_of(method: Method, method_settings: Any) -> VectorTraffic:
    """The vectors of a method that travel as integers.

    Raises:
        UsageError: it has none; the sentence says why.
    """
    traffic = method.traffic(method_settings)
    if isinstance(traffic, str):
        raise UsageError(f"run.uploads with method {method.name}: {traffic}")
    return traffic


def why_opened(method: Method, method_settings: Any, rule: str = "") -> str:
    """The reason why a method's hospitals must open uploads, as a sentence; "": they need not.

    Args:
        rule: in place of the hospitals' plain sums; "": there is none.
    """
    traffic = (method.adding or method).traffic(method_settings)
    if isinstance(traffic, str):
        return traffic
    if not traffic.adds:
        return "hospitals keep each device's latest upload and add it again, so that two sums would differ by one"
    return f"the robust rule {rule!r} looks at single uploads" if rule else ""


def check_unopened(method: Method, method_settings: Any, settings: Uploads, rule: str = "") -> None:
    """Raises UsageError for a run that asks its hospitals to open nothing, with a method that must."""
    why = why_opened(method, method_settings, rule) if settings.sums_only else ""
    if why:
        key = "secret" if settings.secret else "unopened"
        raise UsageError(f"run.uploads.{key} with method {method.name}: {why}")
