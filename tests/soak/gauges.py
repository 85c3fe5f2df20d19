"""What must stay flat in a soak: memory, disk and log of each service, looked at again and again."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.services import Services

MB = 2**20
MEMORY, DISK, LOG = 12 * MB, 24 * MB, 2.5  # by how much a service may grow: bytes; bytes; times as many lines a minute


@dataclass
class Look:
    """One look at a service. Bytes; `files` that it keeps; `lines` of its log, without one for each round."""

    at: float
    memory: int
    disk: int
    files: int
    lines: int


@dataclass
class Gauges:
    """Looks at all services, by name."""

    services: Services
    looks: dict[str, list[Look]] = field(default_factory=lambda: defaultdict(list))

    def look(self) -> None:
        for name in self.services.names:
            folder = self.services.base / name
            sizes = [size_of(path) for path in folder.rglob("*") if path.name != "metrics.jsonl"]
            process = self.services.running.get(name)
            memory = 0 if process is None else memory_of(process.pid)
            lines = sum(1 for line in self.services.log(name).splitlines() if ": round " not in line)
            self.looks[name].append(Look(time.monotonic(), memory, sum(sizes), len(sizes), lines))

    def grown(self) -> list[str]:
        """What has grown between the second and the last fifth of the time."""
        found = []
        for name, looks in self.looks.items():
            fifth = max(1, len(looks) // 5)
            early, late = looks[fifth : 2 * fifth], looks[-fifth:]
            memory = middle([x.memory for x in late if x.memory]) - middle([x.memory for x in early if x.memory])
            disk = middle([x.disk for x in late]) - middle([x.disk for x in early])
            found += [f"{name}: memory grew by {memory / MB:.1f} MB"] if memory > MEMORY else []
            found += [f"{name}: disk grew by {disk / MB:.1f} MB"] if disk > DISK else []
            found += (
                [f"{name}: log grew to {lines_a_minute(late):.0f} lines a minute"] if is_louder(early, late) else []
            )
        return found

    def summary(self, name: str) -> str:
        """One line: a service at the end."""
        last = self.looks[name][-1]
        return (
            f"{name:10} memory {last.memory / MB:6.1f} MB, disk {last.disk / MB:6.2f} MB in {last.files:3} files, "
            f"log {lines_a_minute(self.looks[name]):5.0f} lines a minute"
        )


def is_louder(early: list[Look], late: list[Look]) -> bool:
    return lines_a_minute(late) > LOG * max(30.0, lines_a_minute(early))


def lines_a_minute(looks: list[Look]) -> float:
    seconds = looks[-1].at - looks[0].at
    return 0.0 if seconds <= 0 else 60 * (looks[-1].lines - looks[0].lines) / seconds


def middle(values: list[int]) -> float:
    return statistics.median(values) if values else 0.0


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


def memory_of(pid: int) -> int:
    """Anonymous memory of a process in bytes; 0: it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = [line.split() for line in text.splitlines() if line.startswith("RssAnon")]
    return int(found[0][1]) * 1024 if found else 0
