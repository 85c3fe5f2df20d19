"""Checkpoints of a simulation: everything on the disk from which each rank goes on after a kill.

Each rank writes a file of its own; when all have, rank 0 notes the number of the checkpoint in a file that changes in
one piece. What was drawn, asked and answered since is done again, with the same result: roles are pure, and records of
clients are never written over (clients/states.py).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import ANY, Tensor
from edge_sdk.atomic import sync_to_disk, write_bytes, write_text
from edge_sdk.contract import node as nodes
from edge_sdk.contract.records import changed
from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.simulation.clients.states import Place
from edge_sdk.simulation.network.build import BATCH, NetworkPlan
from edge_sdk.simulation.network.network import Happening, SimulatedNetwork
from edge_sdk.simulation.sums.light_uploads import Light, as_light, as_sent, ready_to_add, stand_in
from edge_sdk.simulation.sums.tallies import written_out
from edge_sdk.wire.codec.codec import Codec

FORMAT = 1
"""Number of the form of these files; it changes whenever an older one could no longer be read."""
LATEST = "checkpoint.json"

Octets = Annotated[npt.NDArray[np.uint8], Tensor((ANY,), "uint8")]
Wholes = Annotated[npt.NDArray[np.int64], Tensor((ANY,), "int64")]


@dataclass(frozen=True)
class SavedHappening:
    """Something in the queue, as it is written.

    Attributes:
        time, ticket, name: as `Happening` has them.
        mail: its envelope, encoded; empty: there is none.
    """

    time: float
    ticket: int
    name: str
    mail: Octets


@dataclass(frozen=True)
class SavedRun:
    """What one rank writes.

    Attributes:
        format: FORMAT.
        ranks: how many there are.
        now, ticket, worked: of the network.
        lines: lines of metrics that are written.
        records: aggregator and hospitals: their `node.Record`s, encoded.
        happenings: the queue.
        bytes: hop -> bytes so far.
        clients: names of the clients of which this rank has records, in one text with a line for each.
        places: (3 k,), where these are: segment, offset, size.
        owners: names and ranks of the clients that have a record anywhere, alike; empty where there is one rank.
        owning: (k,), their ranks.
        extra: of the application, as JSON.
        sizes: of messages, as `Traffic.written_sizes` has them.
    """

    format: int
    ranks: int
    now: float
    ticket: int
    worked: int
    lines: int
    records: Mapping[str, Octets]
    happenings: tuple[SavedHappening, ...]
    bytes: Mapping[str, int]
    clients: Octets
    places: Wholes
    owners: Octets
    owning: Wholes
    extra: Octets = field(default_factory=lambda: np.zeros(0, np.uint8))
    sizes: Octets = field(default_factory=lambda: np.zeros(0, np.uint8))


CODEC = Codec([SavedRun], limit=BATCH)


class Checkpoints:
    """The checkpoints in a directory, as one rank sees them.

    Args:
        directory: of the whole simulation; all ranks of this machine share it.
        plan: what the network is made of.
    """

    def __init__(self, directory: Path, plan: NetworkPlan) -> None:
        self.directory, self.plan, self.ranks = directory, plan, plan.ranks
        self.codecs = {tier: plan.records(tier) for tier in ("aggregator", "hospital")}
        roots = dict.fromkeys([nodes.Envelope, *plan.method.messages, Light])
        self.mails = Codec(roots, layout=plan.layout, dtype=plan.dtype, finite=False)
        self.number = 0

    def path(self, number: int) -> Path:
        return self.directory / f"checkpoint-{number}-{self.ranks.number}.bin"

    def tier_of(self, name: str) -> str:
        return "aggregator" if name == self.plan.root else "hospital"

    # Writing ------------------------------------------------------------------------------------------------------
    def save(self, network: SimulatedNetwork, lines: int, extra: Any = None) -> None:
        """Writes a checkpoint. All ranks must call it at the same place of the run, with no client waiting."""
        network.clients.states.flush()
        data = CODEC.encode(self.collect(network, lines, extra))
        path = self.path(self.number + 1)
        write_bytes(path, data + zlib.crc32(data).to_bytes(4, "little"))
        sync_to_disk(path)
        self.ranks.gather(b"")  # all have written theirs
        if self.ranks.number == 0:
            write_text(self.directory / LATEST, json.dumps({"number": self.number + 1, "ranks": self.ranks.count}))
            sync_to_disk(self.directory / LATEST, self.directory)
        self.ranks.gather(b"")
        self.path(self.number).unlink(missing_ok=True)
        self.number += 1
        network.clients.states.settle()

    def collect(self, network: SimulatedNetwork, lines: int, extra: Any) -> SavedRun:
        states, owners = network.clients.states, network.exchange.owners
        return SavedRun(
            format=FORMAT,
            ranks=self.ranks.count,
            now=network.now,
            ticket=network.ticket,
            worked=network.worked,
            lines=lines,
            records={name: octets(self.encode(node)) for name, node in network.nodes.items()},
            happenings=tuple(self.write_happening(h) for h in sorted(network.queue)),
            bytes=dict(network.traffic.bytes),
            clients=octets("\n".join(states.places).encode()),
            places=np.array([number for place in states.places.values() for number in place], np.int64),
            owners=octets("\n".join(owners).encode()),
            owning=np.array(list(owners.values()), np.int64),
            extra=octets(json.dumps(extra).encode()),
            sizes=octets(network.traffic.written_sizes().encode()),
        )

    def encode(self, node: nodes.Node) -> bytes:
        record = changed(node.record, state=written_out(node.record.state))
        return self.codecs[self.tier_of(node.name)].encode(record)

    def write_happening(self, what: Happening) -> SavedHappening:
        mail = b""
        if what.mail is not None:
            mail = self.mails.encode(changed(what.mail, message=as_light(as_sent(what.mail.message))))
        return SavedHappening(what.time, what.ticket, what.name, octets(mail))

    # Reading ------------------------------------------------------------------------------------------------------
    def load(self, resume: bool) -> SavedRun | None:
        """The latest checkpoint; None: there is none yet, or none is to be gone on from. All ranks must call it.

        Args:
            resume: rank 0 knows, for all.

        Raises:
            UsageError: it is of another version, or of another number of ranks. AuscultError: it is damaged.
        """
        latest = self.directory / LATEST
        text = latest.read_bytes() if resume and self.ranks.number == 0 and latest.is_file() else b""
        if not (text := self.ranks.gather(text)[0]):
            return None
        noted = json.loads(text)
        if noted["ranks"] != self.ranks.count:
            raise UsageError(
                f"{self.directory}: was begun with {noted['ranks']} ranks, and there are {self.ranks.count}"
            )
        self.number = int(noted["number"])
        content = self.read_own()
        data, crc = content[:-4], int.from_bytes(content[-4:], "little")
        if zlib.crc32(data) != crc:
            raise AuscultError(f"{self.path(self.number)}: damaged, its checksum is not that of what was written")
        found: SavedRun = CODEC.decode(data, SavedRun)
        if found.format != FORMAT:
            raise UsageError(f"{self.path(self.number)}: of format {found.format}, this version reads {FORMAT}")
        return found

    def read_own(self) -> bytes:
        """This rank's file of the latest checkpoint."""
        try:
            return self.path(self.number).read_bytes()
        except FileNotFoundError as error:
            wanted = f"rank {self.ranks.number} must be on the machine on which it was before"
            raise UsageError(f"{self.path(self.number)}: is not here; {wanted}") from error

    def restore(self, network: SimulatedNetwork, saved: SavedRun) -> None:
        """Puts a network that was made like the one of before where that was."""
        network.now, network.ticket, network.worked = saved.now, saved.ticket, saved.worked
        network.traffic.bytes = dict(saved.bytes)
        network.traffic.read_sizes(saved.sizes.tobytes().decode())
        for name, data in saved.records.items():
            record = self.codecs[self.tier_of(name)].decode(data.tobytes(), nodes.Record)
            network.nodes[name] = changed(network.nodes[name], record=record)
        network.queue = [self.read_happening(h) for h in saved.happenings]
        network.exchange.owners = dict(zip(names_in(saved.owners), saved.owning.tolist(), strict=True))

    def read_happening(self, what: SavedHappening) -> Happening:
        if not len(what.mail):
            return Happening(what.time, what.ticket, None, what.name)
        mail = self.mails.decode(what.mail.tobytes(), nodes.Envelope)
        message = stand_in(mail.message)
        if self.plan.method.adds_up and mail.to in self.plan.crowd.tree and mail.sender != self.plan.root:
            message = ready_to_add(message)
        return Happening(what.time, what.ticket, changed(mail, message=message), what.name)


def places_of(saved: SavedRun) -> dict[str, Place]:
    """Where the records of clients are."""
    rows = saved.places.reshape(-1, 3).tolist()
    return {name: Place(*row) for name, row in zip(names_in(saved.clients), rows, strict=True)}


def octets(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def names_in(data: npt.NDArray[np.uint8]) -> list[str]:
    """Names that were written one a line."""
    return data.tobytes().decode().split("\n") if len(data) else []
