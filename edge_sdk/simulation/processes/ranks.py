"""The processes of one simulation: each is a rank, and all play the same run, each with clients of its own.

`torchrun` starts the processes, on one machine or on several, and starts them again where one has died; or Ray does
(on_ray.py). torch's store lets them find each other. They exchange bytes of messages, and sums of integers, which are
the same in any order (links.py). A simulation in one process needs none of it.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError
from edge_sdk.simulation.processes.links import connect

Counts = npt.NDArray[np.int64]


class Ranks(Protocol):
    """The processes of a simulation, seen from one of them.

    Attributes:
        number: of this process, from 0 on.
        count: how many there are.
    """

    number: int
    count: int

    def gather(self, data: bytes) -> list[bytes]:
        """What each rank gives, in their order. All ranks must call it."""

    def tell(self, data: bytes) -> bytes:
        """What rank 0 gives. All ranks must call it."""

    def add(self, values: Counts) -> Counts:
        """The sum over all ranks of int64 arrays (k,) of one size. All ranks must call it."""

    def close(self) -> None:
        """Leaves the others in good order, when all are done."""


class OneRank:
    """A simulation in one process."""

    number, count = 0, 1

    def gather(self, data: bytes) -> list[bytes]:
        return [data]

    def add(self, values: Counts) -> Counts:
        return values

    def tell(self, data: bytes) -> bytes:
        return data

    def close(self) -> None:
        return


class TorchRanks:
    """The processes that torchrun or Ray has started, as the environment variables of torchrun name them.

    Args:
        patience: seconds that a rank waits for the others in one exchange; they may have much to do in between. None:
            as long as they live.

    Raises:
        UsageError: torch is not installed.
        AuscultError: of the others not all have come.
    """

    def __init__(self, patience: float | None = 1800.0) -> None:
        try:
            distributed: Any = importlib.import_module("torch.distributed")
        except ModuleNotFoundError as error:
            raise UsageError(f"{error.name} is missing here: pip install 'auscult[aggregator]'") from error
        self.store, self.number, self.count = next(distributed.rendezvous("env://"))  # as long as this one: it may be
        board = distributed.PrefixStore(attempt(), self.store)  # the one to which the others are connected
        self.links = connect(board, self.number, self.count, patience)

    def gather(self, data: bytes) -> list[bytes]:
        """What each rank gives, in their order."""
        return [bytes(found) for found in self.links.swap([data] * self.count)]

    def tell(self, data: bytes) -> bytes:
        """What rank 0 gives, on all ranks."""
        return self.gather(data if self.number == 0 else b"")[0]

    def add(self, values: Counts) -> Counts:
        """The sum over all ranks. Each adds up one part of it, which it is sent by all, and sends that to all."""
        parts = np.array_split(values, self.count)
        own = parts[self.number].copy()
        for rank, given in enumerate(self.links.swap([part.data.cast("B") for part in parts])):
            if rank != self.number:
                own += np.frombuffer(given, np.int64)
        sums = self.links.swap([own.data.cast("B")] * self.count)
        return np.concatenate([np.frombuffer(part, np.int64) for part in sums])

    def close(self) -> None:
        self.gather(b"")  # nobody leaves before all are done
        self.links.close()


def attempt() -> str:
    """A name for this start of the processes.

    After a restart torchrun's store still has the addresses of the processes of before, to which nobody can connect, so
    each start looks under a name of its own. Only the launcher of one machine counts all its restarts; of several
    machines each counts its own, and there the names stay as torch has them.
    """
    together = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    return f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0') if together else 'any'}"


def find_ranks(patience: float | None = 1800.0) -> Ranks:
    """The processes that torchrun or Ray has started, or this one alone. `patience`: as of `TorchRanks`."""
    return TorchRanks(patience) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else OneRank()
