"""A published method on nine nodes of one process, each on a thread and with a store of its own.

python -m tests.delivery.method_nodes METHOD DIRECTORY BROKER ROUNDS

plays until it is killed. The problems are the small ones of tests/methods, so that no bundle is needed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import Run
from edge_sdk.live.runtime import Assembly, Runtime
from edge_sdk.nodes.assembly import make_assembly, method_of, settings_of
from edge_sdk.wire.link import Backoff
from tests.methods.problems import TREE, envs_of

SMALL = {"eta_l": 0.05, "eta_x": 0.05, "eta": 0.05, "batch": 16, "local_epochs": 1, "local_steps": 2}
CLASSES = ("a", "b", "c")


def run_of(method: str, rounds: int) -> Run:
    known = {f.name for f in fields(method_of(Run(id="any", method=method)).settings)}
    settings = {name: value for name, value in SMALL.items() if name in known}
    return Run(
        id=method.replace("+", "-and-"),
        method=method,
        rounds=rounds,
        seed=7,
        settings=settings,
        classes=CLASSES,
        evaluate_every=5,
    )


def nodes_of(run: Run, base: Path, broker: str, told: Callable[[int, Any], None]) -> list[Runtime]:
    """All nodes of the tree; `told` hears what the aggregator tells its application."""
    envs = envs_of(method_of(run), settings_of(run), run.rounds, np.float32)
    parents = {d: h for h, devices in TREE.items() for d in devices} | dict.fromkeys(TREE, "agg")
    children = {"agg": tuple(TREE), **TREE}

    def node(name: str) -> Runtime:
        tier = "aggregator" if name == "agg" else "hospital" if name in TREE else "device"

        def assemble(offered: Run) -> Assembly:
            return make_assembly(offered, tier, envs["aggregator" if name == "agg" else name])

        options = {"run": run, "told": told} if name == "agg" else {}
        return Runtime(
            name,
            parent=parents.get(name),
            children=children.get(name, ()),
            directory=base / name,
            broker=broker,
            assemble=assemble,
            backoff=Backoff(0.02, 0.3),
            rto=0.5,
            settle=30.0,
            **options,  # type: ignore[arg-type]
        )

    return [node(name) for name in ("agg", *parents)]


def main(method: str, directory: str, broker: str, rounds: str) -> None:
    nodes = nodes_of(run_of(method, int(rounds)), Path(directory), broker, lambda number, m: print(m, flush=True))
    threads = [threading.Thread(target=node.run) for node in nodes]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
