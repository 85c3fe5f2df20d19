"""Memory that a very large body costs the wire: a file goes to a child and back, and never lies in memory as a whole.

    python benchmarks/large.py [--megabytes 200] [--json]

Both nodes are threads of this process. What is measured is anonymous memory; pages of mapped files come and go as the
kernel likes. A role that looks at the body as an array of its own needs that array besides.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from edge_sdk.contract.method import DOWN, UP, NodeEnv, Role, Send, unchanged
from edge_sdk.contract.node import Record
from edge_sdk.contract.round import Policy
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.live.loop.runtime import LaneWork, Runtime, Transport, TreePlace
from edge_sdk.replay.nodes.broker import Mosquitto
from edge_sdk.wire.codec.codec import Codec

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Nothing:
    """State of both roles."""


@dataclass(frozen=True)
class LargeBody:
    view: memoryview


class Through:
    """A codec that passes the bytes on as they lie in their file."""

    def encode(self, message: LargeBody) -> Any:
        return message.view

    def decode(self, data: memoryview) -> LargeBody:
        return LargeBody(data)


def digest(view: memoryview) -> bytes:
    found = hashlib.sha256()
    for start in range(0, len(view), MEGABYTE):
        found.update(view[start : start + MEGABYTE])
    return found.digest()


def mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def anonymous() -> float:
    """Megabytes of this process that are no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as base, Mosquitto() as broker:
        result = transfer(Path(base), broker.url, args.megabytes)
    print(json.dumps(result) if args.json else "\n".join(f"{name:28} {value}" for name, value in result.items()))


def transfer(base: Path, url: str, megabytes: int) -> dict[str, Any]:
    source, came, back = base / "source", threading.Event(), list[bytes]()
    with source.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(MEGABYTE))

    def arrived(env: NodeEnv, state: Nothing, sender: str, message: LargeBody) -> Any:
        back.append(digest(message.view))
        came.set()
        return state, []

    parent = Role(lambda env: (Nothing(), [Send(DOWN, LargeBody(mapped(source)))]), arrived, unchanged, Nothing)
    child = Role(lambda env: (Nothing(), []), lambda e, s, sender, m: (s, [Send(UP, m)]), unchanged, Nothing)
    run, records = Run(id="large", method="none"), Codec((Record, Nothing))
    parts = {n: Assembly(r, NodeEnv(), Policy(), Through(), records) for n, r in (("parent", parent), ("child", child))}
    down = LaneWork(directory=base / "p", assemble=lambda r: parts["parent"], run=run)
    up = LaneWork(directory=base / "c", assemble=lambda r: parts["child"])
    transport = Transport(broker=url)
    nodes = [
        Runtime("parent", down, place=TreePlace(children=["child"]), transport=transport),
        Runtime("child", up, place=TreePlace(parent="parent"), transport=transport),
    ]
    threads = [threading.Thread(target=node.run) for node in nodes]
    before, peak, began = anonymous(), 0.0, time.monotonic()
    for thread in threads:
        thread.start()
    while not came.wait(0.02):
        peak = max(peak, anonymous())
    seconds = time.monotonic() - began
    for node, thread in zip(nodes, threads, strict=True):
        node.stop()
        thread.join()
    return {
        "megabytes_each_way": megabytes,
        "seconds": round(seconds, 1),
        "memory_before_mb": round(before, 1),
        "memory_peak_mb": round(peak, 1),
        "right": back == [digest(mapped(source))],
    }


if __name__ == "__main__":
    main()
