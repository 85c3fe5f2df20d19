"""One node of a method's run, in a process that can be killed: python -m tests.wire.equality_node NAME METHOD ROUNDS
DIRECTORY BROKER.

It writes a line into NAME/told for each event: number, class, round and checksum. Training is slowed down a little, so
that whoever kills and bounces meets the run at every stage.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from tests.delivery.method_nodes import assembly_of, node_of, run_of

PAUSE = 0.01  # seconds for each answer of a device


def slowed(run: Run, name: str) -> Assembly:
    """The node's part in the run, with a pause in each call of its role."""
    assembly = assembly_of(run, name)

    def receive(*given: Any) -> Any:
        time.sleep(PAUSE)
        return assembly.role.receive(*given)

    return replace(assembly, role=replace(assembly.role, receive=receive))


def main(name: str, method: str, rounds: str, directory: str, broker: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    base, run = Path(directory), run_of(method, int(rounds))
    records = assembly_of(run, name).records

    def tell(number: int, message: Any) -> None:
        checksum = sha256(records.encode(message)).hexdigest()
        row = [
            number,
            type(message).__name__,
            getattr(message, "round", 0),
            checksum,
            getattr(message, "devices", None),
        ]
        with (base / name / "told").open("a") as file:
            file.write(json.dumps(row) + "\n")

    node = node_of(run, name, base, broker, tell, lambda offered: slowed(offered, name))
    signal.signal(signal.SIGTERM, lambda *_: node.stop())
    node.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
