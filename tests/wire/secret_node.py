"""One node of a run with secret sums, in a process that can be killed: python -m tests.wire.secret_node JSON.

It notes each use of a mask in NAME/masks before the answer can leave: what the mask follows from, and a digest of
what it hides. Training is different in each process, as code is that never gives the same twice: so an answer that is
worked out again after a kill is another answer to the same question, under what would be the same mask if a mask
followed from the question alone. `forgetful` makes masks that do. With `noisy` devices add noise before they mask: who
was killed draws other noise, too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from edge_sdk.methods.shared.evaluation.spent import PrivateProgress
from edge_sdk.nodes.configuration.assembly import make_assembly, method_of, settings_of
from edge_sdk.nodes.secrets.masks import RunMasks
from edge_sdk.wire.link import Backoff
from tests.delivery.fleet import Fleet
from tests.delivery.nodes import make_runtime
from tests.methods.problems import PROBLEMS, envs_of
from tests.methods.secret.parties import masks_of, masks_of_hospital

RUN = Run(
    id="secret",
    method="fedavg",
    settings={"eta_l": 0.01, "participation": 1.0},
    rounds=10**6,
    classes=("a", "b"),
    uploads={"bits": 8, "secret": True, "cohort": 2},
)
NOISE = {"clip": 1.0, "noise": 1.0, "cohort": 2}
PROBLEM_OF = {"a": "d0", "b": "d1"}


@dataclass
class NotedMasks:
    """Keystreams of one device, which notes each use on its disk before it makes one."""

    inner: RunMasks
    path: Path
    forgetful: bool

    def knows(self, peer: str) -> bool:
        return self.inner.knows(peer)

    def tag(self, peer: str, context: bytes, value: bytes) -> bytes:
        tag = bytes(16) if self.forgetful else self.inner.tag(peer, context, value)
        with self.path.open("a") as file:
            file.write(json.dumps([context.decode(), tag.hex(), sha256(value).hexdigest()]) + "\n")
            os.fsync(file.fileno())
        return tag

    def stream(self, *given: Any) -> Any:
        return self.inner.stream(*given)

    def draw(self, ticket: int) -> bytes:
        return self.inner.draw(ticket)

    def spend(self, ticket: int, nonce: bytes, on: bytes) -> bool:
        if not self.inner.spend(ticket, nonce, on):
            return False
        with self.path.open("a") as file:
            file.write(json.dumps([f"hospitals {ticket}", nonce.hex(), sha256(on).hexdigest()]) + "\n")
            os.fsync(file.fileno())
        return True


def run_of(place: dict[str, Any]) -> Run:
    """The run; `pools`: with sums over two hospitals, of one device each; `noisy`: with noise, too."""
    if place.get("noisy"):
        return replace(RUN, privacy=NOISE, uploads={**RUN.uploads, "feedback": False})
    return replace(RUN, uploads={**RUN.uploads, "hospitals": 2}) if place.get("pools") else RUN


def assembly_of(run: Run, place: dict[str, Any]) -> Assembly:
    """The node's part in the run."""
    name, tier = place["name"], place["tier"]
    envs = envs_of(method_of(run), settings_of(run), run.rounds, np.float32)
    if tier == "aggregator":
        keys = RunMasks(masks_of("aggregator").private, lambda: public_keys(), run.id)
        sizes = {"h": 1, "g": 1} if place.get("pools") else {"h": 2}
        return make_assembly(run, tier, replace(envs["aggregator"], sizes=sizes, masks=keys))
    if tier == "hospital":
        shared = NotedMasks(masks_of_hospital(name, ("g", "h")), Path(place["directory"]) / "masks", False)
        given = {"masks": shared} if place.get("pools") else {}
        return make_assembly(run, tier, replace(envs["h0"], sizes=dict.fromkeys(place["children"], 1), **given))
    problem, dice = PROBLEMS[PROBLEM_OF[name]], np.random.default_rng()

    def gradient(theta: Any, indices: Any = None) -> Any:
        loss, slope = problem(theta, indices)
        return loss, slope * np.float32(1 + 0.01 * dice.random())

    own = RunMasks(masks_of(PROBLEM_OF[name]).private, masks_of(PROBLEM_OF[name]).peers, run.id)
    noted = NotedMasks(own, Path(place["directory"]) / "masks", bool(place.get("forgetful")))
    return make_assembly(run, tier, replace(envs[PROBLEM_OF[name]], grad_fn=gradient, masks=noted, entropy=os.urandom))


def public_keys() -> dict[str, bytes]:
    return {name: masks_of(problem).public for name, problem in PROBLEM_OF.items()}


class SecretFleet(Fleet):
    """Processes of a run with secret sums, with the same names as the counting run's."""

    def command(self, place: dict[str, Any]) -> list[str]:
        return [sys.executable, "-m", "tests.wire.secret_node", json.dumps(place | self.settings)]

    def noting(self) -> tuple[str, ...]:
        """Nodes that note their masks."""
        return tuple(PROBLEM_OF)

    def uses(self) -> dict[tuple[str, str, str], set[str]]:
        """(device, context, tag) of each mask that was used -> digests of what it has hidden."""
        found = defaultdict(set)
        for name in self.noting():
            for line in (self.base / name / "masks").read_text().splitlines():
                context, tag, value = json.loads(line)
                found[name, context, tag].add(value)
        return found

    def reused(self) -> list[tuple[str, str, str]]:
        """Masks that have hidden two different answers."""
        return [use for use, values in self.uses().items() if len(values) > 1]

    def tried_twice(self) -> int:
        """Questions to which a device has worked out two different answers."""
        answers = defaultdict(set)
        for (name, context, _), values in self.uses().items():
            answers[name, context] |= values
        return sum(len(values) > 1 for values in answers.values())

    def check(self, worked_once: bool = True) -> None:
        """Every round counted both devices, and no mask has hidden two answers."""
        told = self.told()
        assert [(row[0], row[1]) for row in told] == [(i + 1, i + 1) for i in range(len(told))]
        assert all(row[2] == 2 for row in told), told
        assert not self.reused()


class PoolFleet(SecretFleet):
    """Processes of a run with sums over hospitals, one device at each."""

    def __init__(self, base: Path, broker: str, **settings: Any):
        super().__init__(base, broker, {"agg": ["h", "g"], "h": ["a"], "g": ["b"]}, pools=True, **settings)

    def noting(self) -> tuple[str, ...]:
        return ("a", "b", "g", "h")

    def check(self, worked_once: bool = True) -> None:
        """Every round counted both devices or none, and no mask, of a device or between hospitals, has hidden two."""
        told = self.told()
        assert [row[1] for row in told] == [i + 1 for i in range(len(told))]  # of a lost round more is told
        assert {row[2] for row in told} <= {0, 2} and told[-1][2] == 2, told
        assert not self.reused()


def play(place: dict[str, Any], run: Run, assemble: Callable[[Run], Assembly]) -> None:
    """Play a node until it is told to stop."""
    directory, name = Path(place["directory"]), place["name"]

    def tell(number: int, message: Any) -> None:
        if isinstance(message, Progress):
            epsilon = message.spent.epsilon if isinstance(message, PrivateProgress) else 0.0
            with (directory / "told").open("a") as file:
                file.write(json.dumps([number, message.round, message.devices, epsilon]) + "\n")

    node = make_runtime(
        name,
        parent=place["parent"],
        children=tuple(place["children"]),
        directory=directory,
        broker=place["broker"],
        run=run if name == "agg" else None,
        told=tell,
        assemble=assemble,
        backoff=Backoff(0.02, 0.3),
        rto=0.3,
        wait_seconds=30.0,
        durability=place.get("durability", "normal"),
        worker=place.get("worker", True),
    )
    signal.signal(signal.SIGTERM, lambda *_: node.stop())
    node.run()


def main(text: str) -> None:
    place = json.loads(text)
    play(place, run_of(place), lambda run: assembly_of(run, place))


if __name__ == "__main__":
    main(sys.argv[1])
