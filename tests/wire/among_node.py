"""One node of a run whose devices open its sums among themselves, in a process that can be killed:
python -m tests.wire.among_node JSON.

Each device notes in NAME/masks for which answer it has drawn secrets, before any of it can leave, and which share of
which secrets it tells. Training is different in each process, as in secret_node.py. `forgetful` makes secrets that
follow from the number of the question, as if they had been kept on a disk that was put back.

A node that is started to fail at "given:1:POINT" dies at the first such point of failpoints.py after it has masked an
answer; without a worker that is one of the transaction in which the answer is saved.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.delivery.storage import failpoints
from edge_sdk.delivery.storage.store import Store
from edge_sdk.nodes.configuration.assembly import make_assembly, method_of, settings_of
from edge_sdk.nodes.secrets.secret_sharing import DeviceSecrets, Secrets, ToldMasks
from tests.methods.problems import PROBLEMS, envs_of
from tests.methods.secret.parties import KEYS, PUBLIC
from tests.wire.secret_node import SecretFleet, play

RUN = Run(
    id="among",
    method="fedavg",
    settings={"eta_l": 0.01, "participation": 1.0},
    rounds=10**6,
    classes=("a", "b"),
    uploads={"bits": 8, "secret": "among-devices", "cohort": 3},
)
PROBLEM_OF = {"a": "d0", "b": "d1", "c": "d2", "d": "d3"}
TREE = {"agg": ["h"], "h": list(PROBLEM_OF)}


@dataclass
class NotedSecrets(DeviceSecrets):
    """Secrets of one device, which notes on its disk what they hide, and what it tells of others'."""

    path: Path = Path()
    forgetful: bool = False

    def note(self, *what: str) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(what) + "\n")
            os.fsync(file.fileno())

    def begin(self, ticket: int, steps: Any, words: Any) -> bytes:
        public = super().begin(ticket, steps, words)
        if self.forgetful:
            keys = [sha256(f"{ticket} {i}".encode()).digest() for i in range(3)]
            made = [X25519PrivateKey.from_private_bytes(key) for key in keys[:2]]
            self.now = Secrets(ticket, steps, words, made[0], made[1], keys[2])
            public = self.now.public()
        value = sha256(np.asarray(steps).tobytes() + np.asarray(words).tobytes()).hexdigest()
        self.note("hides", f"{ticket}", public.hex(), value)
        return public

    def cover(self, ticket: int, *given: Any) -> Any:
        found = super().cover(ticket, *given)
        if found is not None:
            self.note("gives", f"{ticket}", found[0].tobytes().hex()[:64], "")
            if failpoints._point == "given":
                failpoints._point, failpoints._what = failpoints._what, ""
        return found

    def reveal(self, ticket: int, words: Mapping[str, bytes], enough: int) -> Mapping[str, bytes] | None:
        told = super().reveal(ticket, words, enough)
        for peer, share in (told or {}).items():
            assert self.now is not None
            which = 0 if peer == self.now.me else self.now.shares[peer].index(share)
            self.note("tells", f"{ticket}", self.now.roster[peer].hex(), str(which))
        return told


def assembly_of(run: Run, place: dict[str, Any]) -> Assembly:
    """The node's part in the run."""
    name, tier = place["name"], place["tier"]
    envs = envs_of(method_of(run), settings_of(run), run.rounds, np.float32)
    if tier == "aggregator":
        return make_assembly(run, tier, replace(envs["aggregator"], sizes={"h": len(PROBLEM_OF)}))
    if tier == "hospital":
        return make_assembly(run, tier, replace(envs["h0"], sizes=dict.fromkeys(PROBLEM_OF, 1), reader=ToldMasks()))
    problem, dice = PROBLEMS[PROBLEM_OF[name]], np.random.default_rng()

    def gradient(theta: Any, indices: Any = None) -> Any:
        loss, slope = problem(theta, indices)
        return loss, slope * np.float32(1 + 0.01 * dice.random())

    peers = {one: PUBLIC[other] for one, other in PROBLEM_OF.items()}
    path, forgetful = Path(place["directory"]) / "masks", bool(place.get("forgetful"))
    keeper = NotedSecrets(KEYS[PROBLEM_OF[name]], lambda: peers, run.id, path=path, forgetful=forgetful)
    return make_assembly(run, tier, replace(envs[PROBLEM_OF[name]], grad_fn=gradient, secrets=keeper))


class AmongFleet(SecretFleet):
    """Processes of a run with four devices at one hospital."""

    def __init__(self, base: Path, broker: str, **settings: Any):
        super().__init__(base, broker, TREE, **settings)

    def command(self, place: dict[str, Any]) -> list[str]:
        return [sys.executable, "-m", "tests.wire.among_node", json.dumps(place | self.settings)]

    def noting(self) -> tuple[str, ...]:
        return tuple(PROBLEM_OF)

    def uses(self) -> dict[tuple[str, str, str], set[str]]:
        """What was hidden, and what was told: (device, "hides" or "tells" and the exchange, keys) -> answers, or which
        shares of those keys."""
        found = defaultdict(set)
        for name in self.noting():
            path = self.base / name / "masks"
            for line in path.read_text().splitlines() if path.exists() else ():
                what, ticket, keys, value = json.loads(line)
                found[name, f"{what} {ticket}", keys].add(value)
        return found

    def gave(self, name: str) -> bool:
        """True if a device has masked an answer."""
        return any(of == name and context.startswith("gives") for of, context, _ in self.uses())

    def saved(self, name: str) -> tuple[Any, list[Any]]:
        """What a device's store has: its role's state, and the messages that it is still to send."""
        assembly = assembly_of(RUN, {"name": name, "tier": "device", "directory": str(self.base / name)})
        store = Store(self.base / name / f"{RUN.id}.db")
        try:
            saved = store.load_record()
            assert saved is not None
            bodies = [store.outbox.load_body(row.seq) for row in store.outbox.load_rows()]
            return assembly.records.decode(saved).state, [assembly.messages.decode(body) for body in bodies]
        finally:
            store.close()

    def check(self, worked_once: bool = True) -> None:
        """Every round counted three devices or more, or none; no secrets have hidden two answers, and no device has
        told both shares of another."""
        told = self.told()
        assert [row[1] for row in told] == [i + 1 for i in range(len(told))]
        assert {row[2] for row in told} <= {0, 3, 4} and told[-1][2] == 4, told
        assert any(context.startswith("tells") for _, context, _ in self.uses())
        assert not self.reused()


if __name__ == "__main__":
    play_node = json.loads(sys.argv[1])
    play(play_node, RUN, lambda run: assembly_of(run, play_node))
