"""Offers of a parent: runs that are looked at before they are taken up."""

from __future__ import annotations

from collections.abc import Callable
from logging import Logger
from typing import TYPE_CHECKING

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError

if TYPE_CHECKING:
    from edge_sdk.delivery.roles.engine import Assembly


def assemble_offered(
    run: Run, check: Callable[[Run], None], assemble: Callable[[Run], Assembly], name: str, log: Logger
) -> Assembly:
    """What to play in a run that has come from a peer: whatever is wrong with it must not end this node.

    Args:
        check: UsageError: the run is not to be trusted.
        name: of the node, for the log.

    Raises:
        UsageError: the run cannot be used here.
    """
    try:
        check(run)
        return assemble(run)
    except (UsageError, OSError):
        raise
    except Exception as e:
        log.exception("%s: run %s cannot be assembled", name, run.id)
        raise UsageError(f"it cannot be assembled here ({type(e).__name__}: {e})") from e
