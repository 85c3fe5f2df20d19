"""A published method on nine nodes of one process, each on a thread and with a store of its own.

python -m tests.delivery.method_nodes METHOD DIRECTORY BROKER ROUNDS

plays until it is killed. The problems are the small ones of tests/methods, so that no bundle is needed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.nodes.configuration.around import is_secret
from edge_sdk.nodes.configuration.assembly import make_assembly, method_of, settings_of
from edge_sdk.wire.link import Backoff
from tests.delivery.nodes import make_runtime
from tests.methods.problems import TREE, envs_of

SMALL = {"eta_l": 0.05, "eta_x": 0.05, "eta": 0.05, "batch": 16, "local_epochs": 1, "local_steps": 2}
CLASSES = ("a", "b", "c")


def run_of(method: str, rounds: int) -> Run:
    """A small run of a method; of "fedslr:4" with integers of four bits, of "fedslr:4:secret" with secret sums."""
    method, _, rest = method.partition(":")
    bits, _, secret = rest.partition(":")
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
        uploads=({"bits": int(bits)} if bits else {}) | ({"secret": True, "cohort": 2} if secret else {}),
    )


PARENTS = {d: h for h, devices in TREE.items() for d in devices} | dict.fromkeys(TREE, "agg")
NAMES = ("agg", *PARENTS)


def tier_of(name: str) -> str:
    return "aggregator" if name == "agg" else "hospital" if name in TREE else "device"


def assembly_of(run: Run, name: str, **given: Any) -> Assembly:
    """One node's part in a run. `given`: fields of its env that differ."""
    problem = "aggregator" if name == "agg" else name
    env = envs_of(method_of(run), settings_of(run), run.rounds, np.float32)[problem]
    if is_secret(run) and tier_of(name) == "hospital":
        given = {"outputs": 2, **given}
    elif is_secret(run):
        from tests.methods.secret.parties import masks_of  # not at the top: it needs the extra `secure`

        given = {"masks": masks_of(problem), "outputs": 2, **given}
    return make_assembly(run, tier_of(name), replace(env, **given))


def nodes_of(run: Run, base: Path, broker: str, told: Callable[[int, Any], None]) -> list[Runtime]:
    """All nodes of the tree; `told` hears what the aggregator tells its application."""
    return [node_of(run, name, base, broker, told if name == "agg" else None) for name in NAMES]


def node_of(
    run: Run,
    name: str,
    base: Path,
    broker: str,
    told: Callable[[int, Any], None] | None = None,
    assemble: Callable[[Run], Assembly] | None = None,
) -> Runtime:
    """One of them, with a directory of its own below `base`."""
    return make_runtime(
        name,
        parent=PARENTS.get(name),
        children=({"agg": tuple(TREE)} | TREE).get(name, ()),
        directory=base / name,
        broker=broker,
        run=run if name == "agg" else None,
        told=told or (lambda number, message: None),
        assemble=assemble or (lambda offered: assembly_of(offered, name)),
        backoff=Backoff(0.02, 0.3),
        rto=0.5,
        wait_seconds=30.0,
    )


def main(method: str, directory: str, broker: str, rounds: str) -> None:
    nodes = nodes_of(run_of(method, int(rounds)), Path(directory), broker, lambda number, m: print(m, flush=True))
    threads = [threading.Thread(target=node.run) for node in nodes]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
