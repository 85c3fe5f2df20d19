"""Auscult in the cloud: the global steps of the methods, with torch.

`Aggregator` is loaded when it is first used, so that a command that only pretrains does not wait for a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggregator.server import Aggregator as Aggregator

__all__ = ["Aggregator"]


def __getattr__(name: str) -> Any:
    if name != "Aggregator":
        raise AttributeError(f"aggregator has no {name}; it has {', '.join(__all__)}")
    from aggregator.server import Aggregator

    return Aggregator
