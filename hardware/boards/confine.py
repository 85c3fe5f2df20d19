"""Confines processes as a small board would: by a control group (version 2) where this user may make one, else memory
alone, by looking at it and ending the process as the kernel would.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from edge_sdk.hardware.boards.memory import read_resident_mb

PERIOD = 100_000  # microseconds, of cpu.max
LOOK = 0.1  # seconds between two looks at the memory
MIB = 2**20


@dataclass
class Confinement:
    """Confines the processes of one trial; a context manager.

    Args:
        root: where control groups are mounted.

    Attributes:
        group: of this trial; None: none may be made here.
        watched: process id -> its name and the most MiB that it may have.
        peaks: name -> the most MiB that were seen.
        ended: names of processes that had more, and were ended here; see `list_ended` for those that the kernel ended.
    """

    root: Path = Path("/sys/fs/cgroup")
    group: Path | None = None
    watched: dict[int, tuple[str, float]] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)

    def __enter__(self) -> Confinement:
        self.group = make_group(self.root, f"auscult-{os.getpid()}")
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="auscult-confine", daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        for group in [] if self.group is None else [*self.group.glob("*/"), self.group]:
            with suppress(OSError):  # a process that has not ended yet
                group.rmdir()

    @property
    def limits_cpu(self) -> bool:
        """The processor is limited by the kernel; else the process has to rest by itself."""
        return self.group is not None

    def confine(self, pid: int, name: str, memory_mb: float, share: float) -> None:
        """Confine a process that has just been started.

        Args:
            memory_mb: the most that it may have, MiB; inf: no limit is known.
            share: of one core.
        """
        if self.group is not None:
            group = self.group / name
            group.mkdir()
            (group / "memory.max").write_text("max" if memory_mb == inf else str(int(memory_mb * MIB)))
            with suppress(OSError):  # there is no swap to be limited
                (group / "memory.swap.max").write_text("0")
            (group / "cpu.max").write_text(f"{max(1000, int(share * PERIOD))} {PERIOD}")
            (group / "cgroup.procs").write_text(str(pid))
        self.watched[pid] = (name, memory_mb)

    def list_ended(self) -> list[str]:
        """Names of processes that had more memory than they may, and were ended for that, here or by the kernel."""
        return sorted({*self.ended, *(name for name, _ in self.watched.values() if self.is_killed_by_kernel(name))})

    def is_killed_by_kernel(self, name: str) -> bool:
        """The kernel has ended a process of this name, as its group had no memory left."""
        path = None if self.group is None else self.group / name / "memory.events"
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)

    def watch(self) -> None:
        while not self.over.wait(LOOK):
            for pid, (name, most) in list(self.watched.items()):
                self.look(pid, name, most)

    def look(self, pid: int, name: str, most: float) -> None:
        resident = read_resident_mb(pid)
        if resident is None:
            return
        self.peaks[name] = max(resident, self.peaks.get(name, 0.0))
        if resident > most and name not in self.ended:
            self.ended.append(name)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def make_group(root: Path, name: str) -> Path | None:
    """Make a control group whose children's processor and memory are limited; None where that is not allowed."""
    group = root / name
    try:
        if not {"cpu", "memory"} <= set((root / "cgroup.controllers").read_text().split()):
            return None
        (root / "cgroup.subtree_control").write_text("+cpu +memory")
        group.mkdir()
        (group / "cgroup.subtree_control").write_text("+cpu +memory")
    except OSError:
        with suppress(OSError):
            group.rmdir()
        return None
    return group
