"""A board, emulated as far as one can: how fast its core is beside this machine's, how much memory a process may have.

The share of one core of this machine that one core of the board is worth follows from what High-Performance Linpack
reaches on both: the profile's figure, divided by its cores, and a product of matrices measured here. What it does not
say: caches, memory bandwidth and vector units differ, so a model of other shapes may run at another ratio.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.profile import BoardProfile, find_profile

SIZE, TIMES = 384, 12
MEASURE = f"""
import time, numpy
a = numpy.random.default_rng(0).normal(size=({SIZE}, {SIZE}))
def once():
    began = time.perf_counter(); a @ a; return time.perf_counter() - began
once()
print(2 * {SIZE}**3 / min(once() for _ in range({TIMES})) / 1e9)
"""


@dataclass(frozen=True)
class Emulation:
    """A board to be emulated.

    Attributes:
        share: of one core of this machine, above 0 and at most 1.
        source: what told that.
        memory_mb: that a process may have; None: as much as there is.
    """

    profile: BoardProfile
    share: float
    source: str
    memory_mb: float | None

    def busy_seconds(self, cpu_seconds: float) -> float:
        """Seconds for which the board's core works on what takes this machine's core so many."""
        return cpu_seconds / self.share

    def joules(self, seconds: float) -> float | None:
        """Energy of the whole board while one core works for so long; None: the profile has no figures of power."""
        watts = self.profile.estimate_watts(1)
        return None if watts is None else watts * seconds


def parse_boards(text: str, measure: Callable[[], float] | None = None) -> tuple[Emulation, ...]:
    """Boards from the command line: `KEY[=SHARE],...`.

    Args:
        measure: Gflop/s of one core of this machine; None: they are measured.

    Raises:
        UsageError: there is no such profile, or nothing tells how fast the board is.
    """
    return tuple(emulate(*word.partition("=")[::2], measure or measure_gflops) for word in text.split(",") if word)


def emulate(key: str, share: str, measure: Callable[[], float]) -> Emulation:
    """One board. `share`: as the user says it; "": from the profile's figure."""
    profile = find_profile(key)
    memory = profile.value_of("memory_mb")
    if share:
        return Emulation(profile, parse_share(key, share), "said on the command line", memory)
    gflops, cores = profile.value_of("gflops"), profile.value_of("cores")
    if gflops is None or not cores:
        raise UsageError(
            f"--board {key}: nobody has measured how fast it is ({profile.figures['gflops'].source}); say which share "
            f"of this machine's core one of its cores is worth, e.g. --board {key}=0.05"
        )
    own = measure()
    ratio = f"{gflops / cores:.2f} Gflop/s of a core there, {own:.1f} here"
    return Emulation(profile, min(1.0, gflops / cores / own), ratio, memory)


def parse_share(key: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"--board {key}={text}: a share of this machine's core, above 0 and at most 1")
    return share


@cache
def measure_gflops() -> float:
    """Double-precision Gflop/s of one core of this machine: the best of some products of matrices, in a process that
    has one thread."""
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", MEASURE], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)
