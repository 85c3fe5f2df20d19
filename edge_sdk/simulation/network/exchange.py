"""The work of one batch of questions, shared out among ranks, and the answers that these exchange.

A client that remembers something is worked on by the rank that has its state; any other by the rank that has least to
do. All ranks come to the same division by themselves. They also compare a checksum of what is asked: if their
processors round differently, so that one goes on from another model, that is an error and no silent difference.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from edge_sdk.contract import node as nodes
from edge_sdk.contract.method import Method
from edge_sdk.contract.records import record
from edge_sdk.errors import AuscultError
from edge_sdk.simulation.clients.clients import Clients, Worked
from edge_sdk.simulation.processes.ranks import Ranks
from edge_sdk.simulation.sums.light_uploads import LightUploads, gather_lights, is_light, ready_to_add, stand_ins
from edge_sdk.wire.codec.codec import Codec


@record
class ClientOutcome:
    """What a question to a client has come to, as all ranks know it.

    Attributes:
        at: place of the question in the batch.
        kept: the client has something to remember.
        answers: messages for its hospital, perhaps without their vectors.
    """

    at: int
    kept: bool
    answers: tuple[Any, ...] = ()


@dataclass(frozen=True)
class RankOutcomes:
    """What one rank tells the others of a batch.

    Attributes:
        outcomes: of its clients, but for those of which `lights` has all.
        lights: uploads without their vectors.
        asked: checksum of the questions.
        save: rank 0: a checkpoint is due.
    """

    outcomes: tuple[ClientOutcome, ...]
    lights: tuple[LightUploads, ...]
    asked: int
    save: bool = False


class Exchange:
    """The division of work among ranks.

    Args:
        method: of the run; says whether vectors must be exchanged.
        ranks: all of them.
        codec: of the method's messages and `RankOutcomes`.

    Attributes:
        owners: client -> the rank that has its state, of those that have one.
        wants_save: rank 0: a checkpoint is due; told to the others with the next batch.
        saves: all ranks: it has been agreed on.
        workings: called with each client's name, its hospital's, and what its work on this rank has come to.
    """

    def __init__(self, method: Method, ranks: Ranks, codec: Codec, owners: Mapping[str, int] | None = None) -> None:
        self.method, self.ranks, self.codec = method, ranks, codec
        self.owners = dict(owners or {})
        self.wants_save, self.saves = False, False
        self.workings: Callable[[str, str, Worked], None] = lambda name, hospital, worked: None

    def work(self, batch: Sequence[nodes.Envelope], clients: Clients, now: float) -> list[ClientOutcome]:
        """The outcomes of all questions, in their order. All ranks must call it with the same batch."""
        mine = self.divide(batch)
        found, own = {}, [at for at, rank in enumerate(mine) if rank == self.ranks.number]
        for at, worked in zip(own, clients.work_all([batch[at] for at in own], now), strict=True):
            self.workings(batch[at].to, batch[at].sender, worked)
            found[at] = self.outcome(at, worked)
        outcomes = self.swap(batch, found) if self.ranks.count > 1 else found
        self.saves |= self.wants_save if self.ranks.count == 1 else False
        for at, outcome in outcomes.items():
            self.note_owner(batch[at].to, mine[at], outcome.kept)
        return [outcomes[at] for at in range(len(batch))]

    def divide(self, batch: Sequence[nodes.Envelope]) -> list[int]:
        """The rank that works on each question: it has the client's state, else is its usual one, which may have its
        data, else has least to do."""
        count = self.ranks.count
        if count == 1:
            return [0] * len(batch)
        found = [self.owners.get(e.to, -1) for e in batch]
        loads, most = [found.count(rank) for rank in range(count)], -(-len(batch) // count)
        for at, rank in enumerate(found):
            usual = zlib.crc32(batch[at].to.encode()) % count if rank < 0 else rank
            if rank < 0 and loads[usual] < most:
                found[at] = usual
                loads[usual] += 1
        for at, rank in enumerate(found):
            if rank < 0:
                found[at] = loads.index(min(loads))
                loads[found[at]] += 1
        return found

    def note_owner(self, name: str, rank: int, kept: bool) -> None:
        if self.ranks.count == 1:
            return
        if kept:
            self.owners[name] = rank
        else:
            self.owners.pop(name, None)

    def outcome(self, at: int, worked: Worked) -> ClientOutcome:
        answers = tuple(map(ready_to_add, worked.answers)) if self.method.adds_up else worked.answers
        return ClientOutcome(at, worked.kept, answers)

    def swap(self, batch: Sequence[nodes.Envelope], mine: Mapping[int, ClientOutcome]) -> dict[int, ClientOutcome]:
        """The outcomes of all ranks. The own ones keep their vectors."""
        added = [o for o in mine.values() if is_light(o.answers)]
        lights = gather_lights([(o.at, o.kept, o.answers[0]) for o in added])
        rest = tuple(o for o in mine.values() if not is_light(o.answers))
        own = RankOutcomes(rest, lights, checksum([e.message for e in batch]), self.wants_save)
        told = enumerate(self.ranks.gather(self.codec.encode(own)))
        number = self.ranks.number
        every = [own if rank == number else self.codec.decode(data, RankOutcomes) for rank, data in told]
        for rank, other in enumerate(every):
            if other.asked != own.asked:
                raise AuscultError(
                    f"rank {rank} asks its clients something else than rank {self.ranks.number}: their processors "
                    "round differently, so they cannot play one run together"
                )
        self.saves |= every[0].save
        found = {o.at: o for other in every for o in other.outcomes}
        for other in every[: self.ranks.number] + every[self.ranks.number + 1 :]:
            for some in other.lights:
                found |= {at: ClientOutcome(at, kept, (upload,)) for at, kept, upload in stand_ins(some)}
        return {**found, **mine}


def checksum(messages: Sequence[Any]) -> int:
    """A number for the arrays of some messages; each array counts once, however often it is sent."""
    found, seen = 0, set[int]()
    for message in {id(m): m for m in messages}.values():  # a question goes to many
        for array in arrays_of(message):
            if id(array) not in seen:
                seen.add(id(array))
                found = zlib.crc32(np.ascontiguousarray(array).tobytes(), found)
    return found


def arrays_of(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """All arrays in plain data."""
    if isinstance(value, np.ndarray):
        yield value
    elif is_dataclass(value):
        for f in fields(value):
            yield from arrays_of(getattr(value, f.name))
    elif isinstance(value, Mapping):
        for key in value:
            yield from arrays_of(value[key])
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from arrays_of(item)
