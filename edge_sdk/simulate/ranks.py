"""The processes of one simulation: each is a rank, and all play the same run, each with clients of its own.

`torchrun` starts the processes, on one machine or on several, and starts them again where one has died. What they
exchange goes through torch.distributed with gloo: bytes of messages, and sums of integers, which are the same in any
order. A simulation in one process needs neither.
"""

from __future__ import annotations

import importlib
import os
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Counts = npt.NDArray[np.int64]
LEAST_ROOM = 4096
"""Bytes that each rank can give at first."""
SIZE = 8
"""Bytes of a size."""


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
    """The processes that torchrun has started, as its environment variables name them.

    Args:
        patience: seconds that a rank waits for the others in one exchange; they may have much to do in between.

    Raises:
        UsageError: torch is not installed.
    """

    def __init__(self, patience: float = 1800.0) -> None:
        try:
            self.torch: Any = importlib.import_module("torch")
            self.distributed: Any = importlib.import_module("torch.distributed")
        except ModuleNotFoundError as error:
            raise UsageError(f"{error.name} is missing here: pip install 'auscult[aggregator]'") from error
        store, rank, count = next(self.distributed.rendezvous("env://"))
        store = self.distributed.PrefixStore(attempt(), store)
        wait = timedelta(seconds=patience)
        self.distributed.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=wait)
        self.number, self.count = int(self.distributed.get_rank()), int(self.distributed.get_world_size())
        self.room = LEAST_ROOM

    def gather(self, data: bytes) -> list[bytes]:
        """One exchange, in which each rank gives its size and as much as there was room for before; a second one, with
        more room, only where that was too little for one of them. All ranks see the same sizes, so they agree."""
        while True:
            own = np.zeros(SIZE + self.room, np.uint8)
            own[:SIZE] = np.frombuffer(len(data).to_bytes(SIZE, "little"), np.uint8)
            own[SIZE : SIZE + len(data)] = np.frombuffer(data[: self.room], np.uint8)
            found = [part.numpy() for part in self.exchange(self.torch.from_numpy(own))]
            sizes = [int.from_bytes(part[:SIZE].tobytes(), "little") for part in found]
            if max(sizes) <= self.room:
                return [part[SIZE : SIZE + size].tobytes() for part, size in zip(found, sizes, strict=True)]
            self.room = 1 << (max(sizes) - 1).bit_length()

    def tell(self, data: bytes) -> bytes:
        """What rank 0 gives, on all ranks."""
        size = self.torch.tensor([len(data)])
        self.distributed.broadcast(size, 0)
        found = np.zeros(int(size), np.uint8)
        if self.number == 0:
            found[:] = np.frombuffer(data, np.uint8)
        self.distributed.broadcast(self.torch.from_numpy(found), 0)
        return found.tobytes()

    def exchange(self, own: Any) -> list[Any]:
        """The tensors of all ranks, in their order; all are of one size and type. Each rank sends its own straight to
        each other: as many bytes as gloo's all_gather takes, in a fifth of its time where there are few."""
        found = [own if rank == self.number else self.torch.empty_like(own) for rank in range(self.count)]
        others = [rank for rank in range(self.count) if rank != self.number]
        works = [self.distributed.isend(own, rank) for rank in others]
        works += [self.distributed.irecv(found[rank], rank) for rank in others]
        for work in works:
            work.wait()
        return found

    def add(self, values: Counts) -> Counts:
        """The sum over all ranks. Two exchange their values, which is quicker than gloo's all_reduce and sends no more;
        of several, each would get more than it does from that."""
        own = self.torch.from_numpy(values)
        if self.count == 2:
            total = self.torch.add(*self.exchange(own))
        else:
            total = own.clone()
            self.distributed.all_reduce(total)
        found: Counts = total.numpy()
        return found

    def close(self) -> None:
        self.distributed.barrier()
        self.distributed.destroy_process_group()


def attempt() -> str:
    """A name for this start of the processes.

    After a restart torchrun's store still has the addresses of the processes of before, to which nobody can connect, so
    each start looks under a name of its own. Only the launcher of one machine counts all its restarts; of several
    machines each counts its own, and there the names stay as torch has them.
    """
    together = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    return f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0') if together else 'any'}"


def find_ranks(patience: float = 1800.0) -> Ranks:
    """The processes that torchrun has started, or this one alone. `patience`: as of `TorchRanks`."""
    return TorchRanks(patience) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else OneRank()
