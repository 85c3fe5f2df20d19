"""One node of the counting run in a process of its own: python -m tests.delivery.play '<settings as JSON>'."""

from __future__ import annotations

import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.live.loop.runtime import LaneWork
from edge_sdk.wire.link import Backoff
from tests.delivery import roles
from tests.delivery.nodes import make_runtime

ROLES = {"device": roles.DEVICE, "hospital": roles.HOSPITAL, "aggregator": roles.AGGREGATOR}


def main(settings: dict[str, Any]) -> None:
    """Settings: name, tier, parent, children, directory, broker, and of an aggregator: rounds, size, lane.

    With `beside` a node plays another counting run in the first lane beside its main one.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    directory = Path(settings["directory"])
    run = Run(id="count", method="count", rounds=settings["rounds"]) if settings["tier"] == "aggregator" else None
    role, sizes = ROLES[settings["tier"]], dict.fromkeys(settings.get("children", ()), 1)
    lane = settings.get("lane", 0)

    def assemble(run: Run) -> Assembly:
        return roles.assembly(role, run, size=settings.get("size", 4), sizes=sizes)

    node = make_runtime(
        settings["name"],
        parent=settings.get("parent"),
        children=settings.get("children", ()),
        directory=directory,
        broker=settings["broker"],
        upstream=settings.get("upstream"),
        run=run,
        assemble=assemble,
        told=lambda number, done: append(directory / "told", number, done),
        version=settings.get("version"),
        worker=settings.get("worker", True),
        durability=settings.get("durability", "normal"),
        wait_seconds=settings.get("wait_seconds", 2.0),
        keepalive=5,
        backoff=Backoff(0.02, 0.3),
        rto=0.5,
        largest_chunk=settings.get("largest_chunk", 2**20),
        lane=lane,
        client=f"{settings['name']}:{lane}" if lane else "",
        beside={1: LaneWork(directory=directory / "lane-1", assemble=assemble)}
        if settings.get("beside") and run is None
        else {},
    )
    signal.signal(signal.SIGTERM, lambda *_: node.stop())
    node.run()
    (directory / "counters").write_text(json.dumps(dict(node.counters)))


def append(path: Path, number: int, done: roles.Done) -> None:
    with path.open("a") as file:
        file.write(json.dumps([number, done.round, done.devices, done.total]) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
