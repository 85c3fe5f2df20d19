"""Steps of optimisers by the library of auscult-native: each reads and writes its vectors once, with numpy's bits.

The library runs an elementwise program (`operator_probe.py`) over vectors of the caller's, in place. Its steps round
one by one, as numpy's do, so that whoever has it and whoever has not come to the same theta.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from edge_sdk.algebra import optim
from edge_sdk.algebra.vectors import Vector

log = logging.getLogger(__name__)

SGD = ("Inputs 4", "Mul 0 2", "Add 4 1", "Mul 5 3", "Sub 0 6", "Return 7")
"""theta, grad | decay, rate -> theta."""
MOMENTUM = (
    "Inputs 6", "Mul 0 3", "Add 6 1", "Mul 2 4", "Add 8 7", "Mul 9 5", "Sub 0 10", "Return 11 9",
)  # fmt: skip
"""theta, grad, velocity | decay, momentum, rate -> theta, velocity."""
ADAM = (
    "Inputs 12", "Mul 0 4", "Add 12 1", "Mul 2 5", "Mul 13 6", "Add 14 15", "Mul 13 13", "Mul 3 7", "Mul 17 8",
    "Add 18 19", "Sqrt 20", "Mul 21 9", "Add 22 10", "Div 16 23", "Mul 24 11", "Sub 0 25", "Return 26 16 20",
)  # fmt: skip
"""theta, grad, mean, square | decay, beta1, 1 - beta1, beta2, 1 - beta2, and the last three of `Adam.plan_step`
-> theta, mean, square."""
PROGRAMS: Mapping[str, Sequence[str]] = {"sgd": SGD, "momentum": MOMENTUM, "adam": ADAM}


class NativeSteps:
    """The steps of a library, as `optim.use_steps` takes them.

    Args:
        library: path of the shared library.

    Raises:
        OSError: it cannot be loaded.
        ValueError: it has no such entries, as an older version, or does not know the programs.
    """

    def __init__(self, library: str) -> None:
        entries = ctypes.CDLL(library)
        if not hasattr(entries, "auscult_native_apply"):
            raise ValueError("auscult-native here is an older version, which has no steps of optimisers")
        read, self._apply = entries.auscult_native_read, entries.auscult_native_apply
        read.restype, read.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
        self._apply.restype = ctypes.c_int
        self._apply.argtypes = (ctypes.c_void_p,) * 4 + (ctypes.c_int64,)
        self._programs = {name: read("\n".join(lines).encode()) for name, lines in PROGRAMS.items()}
        if not all(self._programs.values()):
            raise ValueError("auscult-native here does not know the programs of the optimisers")

    def __call__(self, name: str, vectors: Sequence[Vector], numbers: Sequence[float]) -> None:
        """One step, in place: all vectors but the second, the gradient, are written.

        Args:
            vectors: float32 (n,), contiguous; none overlaps another in part.

        Raises:
            ValueError: the program reads what it has written. MemoryError: none was left. Nothing was done.
        """
        single = np.asarray(numbers, np.float32)
        count, written = len(vectors) + len(single), [vectors[0], *vectors[2:]]
        addresses = [v.ctypes.data for v in vectors] + [single.ctypes.data + 4 * i for i in range(len(single))]
        inputs = (ctypes.c_void_p * count)(*addresses)
        outputs = (ctypes.c_void_p * len(written))(*(v.ctypes.data for v in written))
        singles = bytes([0] * len(vectors) + [1] * len(single))
        failed = self._apply(self._programs[name], inputs, singles, outputs, len(vectors[0]))
        if failed == 1:
            raise ValueError(f"the program of {name} reads a vector after it has written it")
        if failed:
            raise MemoryError("auscult-native has no memory left for a step of an optimiser")


def use_native_steps(library: str) -> None:
    """Let the optimisers of this process step by the library, if it computes what numpy does; else the log says why."""
    try:
        steps = open_steps(library)
    except (OSError, ValueError) as error:
        log.warning("optimisers step as before: %s", error)
    else:
        optim.use_steps(steps)


@cache
def open_steps(library: str) -> NativeSteps:
    """The steps of a library, which have been compared.

    Raises:
        OSError, ValueError: see `NativeSteps` and `compare`.
    """
    steps = NativeSteps(library)
    compare(steps)
    return steps


def compare(steps: NativeSteps) -> None:
    """Runs a step of each optimiser both ways.

    Raises:
        ValueError: the bits differ.
    """
    random = np.random.default_rng(0)
    for make in (optim.SGD, optim.Momentum, optim.Adam):
        plain, other = make(rate=0.1, decay=0.01), make(rate=0.1, decay=0.01)
        start, grad = random.standard_normal((2, optim.PIECE + 37)).astype(np.float32)
        want, got = start.copy(), start.copy()
        plan, same = plain.plan_step(want), other.plan_step(got)
        for one, two in zip(plan.memory, same.memory, strict=True):
            one[:] = two[:] = random.random(len(one), np.float32)
        plain.step_by_pieces(want, grad, plan)
        steps(same.name, (got, grad, *same.memory), same.numbers)
        pairs = zip((want, *plan.memory), (got, *same.memory), strict=True)
        if not all(np.array_equal(one, two) for one, two in pairs):
            raise ValueError(f"a step of {make.__name__} by auscult-native is not numpy's")
