"""The machine's processor and memory, and this process's share of them, from the standard library alone."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """A machine, as the doctor shows it.

    Attributes:
        model: board or processor.
        architecture: e.g. "aarch64".
        cores: usable ones.
        memory_mb: of the machine, MiB; 0 where unknown.
    """

    model: str
    architecture: str
    cores: int
    memory_mb: int


def read_machine() -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(read_board() or read_processor(), platform.machine(), cores, read_memory_mb())


def read_board() -> str:
    """Name of a single-board computer, from its device tree; "" on other machines."""
    try:
        with open("/proc/device-tree/model", encoding="utf-8", errors="replace") as file:
            return file.read().strip("\0\n ")
    except OSError:
        return ""


def read_processor() -> str:
    """Name of the processor as Linux knows it, else as Python does."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(names, platform.processor() or "unknown processor")
    except OSError:
        return platform.processor() or "unknown processor"


def read_memory_mb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        return 0


def peak_memory_mb() -> float:
    """The largest resident memory of this process so far, MiB."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", encoding="utf-8") as file:
        found = next((line.split()[1] for line in file if line.startswith("VmHWM:")), None)
        if found is not None:  # ru_maxrss also knows the peak of the process that started this one
            return int(found) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def cpu_seconds() -> float:
    """Processor time of this process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
