"""Progress of a device's training on its disk, so that a call which is made again goes on where it was left.

A role's call is a function of its arguments: made again, it takes the same steps to the same bits. What is saved here
only spares the steps that were made already, so it may be lost at any time without harm. It counts only for the very
same call, on the same samples: `key` is a digest of all that decides what the call does.

    crc32 | msgpack [key, [[steps, losses, state of the generator, [[dtype, shape, bytes], ...]], ...]]

Each item of the inner list is a loop of training steps (`methods/shared/training/local.py: steps_left`), in the call's
order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from logging import Logger
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack  # type: ignore[import-untyped]
import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.atomic import write_bytes


@dataclass
class Loop:
    """One loop of training steps. `random`: state of its generator after the last step, as JSON; "": it has none."""

    steps: int
    losses: float
    random: str
    arrays: Sequence[Vector]


class CallProgress:
    """Progress of one call at a time. Not for several threads.

    Args:
        path: of the file.

    Attributes:
        saved: loops as they were saved, of the call that is being made.
        done: loops that are over.
        live: the loop that is running; its arrays are the loop's own.
        drawn: generator of that loop.
        changed: something is not on the disk.
    """

    def __init__(self, path: Path, log: Logger):
        self.path, self.log = path, log
        self.make_key: Callable[[], bytes] = bytes
        self.key = b""
        self.saved: list[Loop] = []
        self.done: list[Loop] = []
        self.live: Loop | None = None
        self.drawn: np.random.Generator | None = None
        self.changed = False

    def begin_call(self, make_key: Callable[[], bytes]) -> None:
        """A call begins. `make_key` is called only if there is something to compare with, or to save."""
        self.make_key, self.key, self.done, self.live, self.changed = make_key, b"", [], None, False
        self.saved = self.load() if self.path.exists() else []

    # -- for the loops: contract.method.StepKeeper

    def begin(self, arrays: Sequence[Vector], random: np.random.Generator | None) -> tuple[int, float]:
        found = self.saved[len(self.done)] if len(self.done) < len(self.saved) else None
        self.live, self.drawn = Loop(0, 0.0, write_state(random), arrays), random
        if found is None or not fits(found, self.live):
            self.saved = self.saved[: len(self.done)]
            return 0, 0.0
        for array, before in zip(arrays, found.arrays, strict=True):
            array[...] = before
        if random is not None:
            random.bit_generator.state = json.loads(found.random)
        self.live = Loop(found.steps, found.losses, found.random, arrays)
        return found.steps, found.losses

    def note(self, steps: int, losses: float) -> None:
        assert self.live is not None
        self.live.steps, self.live.losses, self.live.random = steps, losses, write_state(self.drawn)
        self.changed = True

    def end(self) -> None:
        assert self.live is not None
        live, self.live = self.live, None
        self.done.append(Loop(live.steps, live.losses, live.random, [array.copy() for array in live.arrays]))

    # -- the file

    @property
    def steps(self) -> int:
        """Steps that the call has made so far, of all its loops."""
        return sum(loop.steps for loop in self.done) + (0 if self.live is None else self.live.steps)

    def save(self) -> None:
        """Save what has changed. A disk that is full costs the progress, and never the training."""
        if not self.changed:
            return
        self.key = self.key or self.make_key()
        loops = [*self.done, *([] if self.live is None else [self.live])]
        data = msgpack.packb([self.key, [write_loop(loop) for loop in loops]])
        try:
            write_bytes(self.path, struct.pack("<I", crc32(data)) + data, lasting=True)
        except OSError as error:
            self.log.warning("%s: the progress of this training is not saved: %s", self.path, error)
        self.changed = False

    def load(self) -> list[Loop]:
        """The loops that were saved of this very call; none if they are another one's, or damaged."""
        try:
            data = self.path.read_bytes()
            if len(data) < 4 or struct.unpack("<I", data[:4])[0] != crc32(data[4:]):
                raise ValueError("it is not what was saved")
            key, loops = msgpack.unpackb(data[4:])
            self.key = self.make_key()
            return [read_loop(*loop) for loop in loops] if key == self.key else []
        except (OSError, ValueError, TypeError, msgpack.UnpackException) as error:
            self.log.warning("%s: cannot be used (%s); this training begins anew", self.path, error)
            return []

    def forget(self) -> None:
        """Delete the file: the run is over."""
        self.path.unlink(missing_ok=True)


def write_state(random: np.random.Generator | None) -> str:
    return "" if random is None else json.dumps(random.bit_generator.state)


def fits(found: Loop, live: Loop) -> bool:
    """Says of what was saved whether the loop can go on with it."""
    shapes = [(a.shape, a.dtype) for a in live.arrays]
    return shapes == [(a.shape, a.dtype) for a in found.arrays] and bool(found.random) == bool(live.random)


def write_loop(loop: Loop) -> list[Any]:
    arrays = [[a.dtype.str, list(a.shape), np.ascontiguousarray(a).tobytes()] for a in loop.arrays]
    return [loop.steps, loop.losses, loop.random, arrays]


def read_loop(steps: int, losses: float, random: str, arrays: Sequence[Any]) -> Loop:
    """A loop as `write_loop` has written it. Raises ValueError or TypeError for anything else."""
    found = [np.frombuffer(body, np.dtype(dtype)).reshape(shape) for dtype, shape, body in arrays]
    return Loop(int(steps), float(losses), str(random), found)
