"""The families that a method can name. One is loaded when a run's method first names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from edge_sdk.nodes.kernels.family import Family

PLACES = {
    "plain": "plain:PLAIN",
    "split": "split:SPLIT",
    "outputs": "outputs:OUTPUTS",
    "companions": "companions:COMPANIONS",
    "rollout": "rollout:VERSIONS",
}
"""Value of `Method.kernels` -> module below edge_sdk.nodes.kernels, and the constant in it."""


class Families(Mapping[str, Family]):
    """Families by the names that methods have for them."""

    def __getitem__(self, name: str) -> Family:
        module, _, constant = PLACES[name].partition(":")
        found: Family = getattr(import_module(f"edge_sdk.nodes.kernels.{module}"), constant)
        return found

    def __contains__(self, name: object) -> bool:
        return name in PLACES  # the inherited one would load it

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


FAMILIES = Families()
"""Value of `Method.kernels` -> what the nodes do for it."""
