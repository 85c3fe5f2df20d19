"""What a membership is made of: what its node does in runs, and what all lanes of the node have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from logging import Logger
from typing import TYPE_CHECKING

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.habits import Habits
from edge_sdk.wire.link import Link

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly


@dataclass(frozen=True, kw_only=True)
class RunWork:
    """What a node does in a run, and which runs it takes.

    Attributes:
        assemble: run -> what to play in it. UsageError: the run cannot be used here.
        told_refusal: called with each new reason why this node cannot take part in the run that it is offered, and with
            how many samples are missing for that (`SamplesMissing`); 0: it is another reason.
        look_on: run that is refused for want of samples -> what to play until there are more; None: nothing.
        check_run: called with each run that the parent offers. UsageError: it is not to be trusted.
    """

    assemble: Callable[[Run], Assembly]
    told_refusal: Callable[[str, int], None] = lambda why, missing: None
    check_run: Callable[[Run], None] = lambda run: None
    look_on: Callable[[Run], Assembly | None] = lambda run: None


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What all lanes of a node have in common; see `TreePlace` and `Wire` for what the attributes mean.

    Attributes:
        below, above: links to the children's and the parent's broker, perhaps the same one.
        wake: called from another thread when the loop should look.
    """

    name: str
    parent: str | None
    children: tuple[str, ...]
    below: Link | None
    above: Link | None
    sizes: Mapping[str, int]
    flexible: bool
    habits: Habits
    durability: str
    largest_chunk: int
    counters: Counters
    wake: Callable[[], None]
    log: Logger
