"""What a service says of children that are suspended: among its gauges at any time, in its log when it is started again
and when a suspension is lifted. (When one begins, the role tells it:
`methods.shared.aggregation.suspension.Suspended`.)"""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger

from edge_sdk.contract.node import Node
from edge_sdk.methods.shared.aggregation.suspension import list_suspended

KEY = "suspended."


def count_suspensions(node: Node) -> dict[str, float]:
    """Gauges of a node: "suspended.CHILD" -> which of its suspensions is in force; of nobody else there is any."""
    guard = getattr(node.record.state, "guard", None)
    found = {} if guard is None else list_suspended(node.env, guard)
    return {KEY + child: float(times) for child, times in found.items()}


def tell_remedy(child: str, times: int) -> str:
    """What to do about a suspension, in words."""
    return (
        f"look at {child}, set limits.lift.{child} = {times} in this node's settings file, and let the process read it "
        "again (kill -HUP)"
    )


class SuspensionLog:
    """Says in the log who was suspended when the service came up, and whose suspension is lifted.

    Attributes:
        known: child -> number of its suspension, at the last look; None: there was none.
    """

    def __init__(self, name: str, log: Logger):
        self.name, self.log = name, log
        self.known: dict[str, int] | None = None

    def look(self, gauges: Mapping[str, float]) -> None:
        """Compare with the last look. `gauges`: of the node in its run."""
        found = {key.removeprefix(KEY): int(value) for key, value in gauges.items() if key.startswith(KEY)}
        for child, times in found.items() if self.known is None else ():
            self.log.warning("%s: %s is still suspended: %s", self.name, child, tell_remedy(child, times))
        for child in sorted((self.known or {}).keys() - found.keys()):
            self.log.warning("%s: the suspension of %s is lifted", self.name, child)
        self.known = found
