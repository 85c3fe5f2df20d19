"""Memory that a new process can get before the kernel kills something: the machine's, and that of its control group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_sdk.hardware.boards.linux_files import read_number, read_text
from edge_sdk.hardware.boards.telemetry import read_telemetry

MB = 2**20


@dataclass(frozen=True)
class MemoryLimit:
    """Room for a new process.

    Attributes:
        free_mb: MiB; None where nothing tells.
        reason: what sets the limit, for people.
    """

    free_mb: float | None
    reason: str


def read_memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """Reads the smallest room of all that limit this process, below `root`."""
    free = read_telemetry(root).memory_free_mb
    limits = [MemoryLimit(free, "what /proc/meminfo calls available")] if free is not None else []
    limits += read_groups(root)
    known = [limit for limit in limits if limit.free_mb is not None]
    return min(known, key=lambda limit: limit.free_mb or 0) if known else MemoryLimit(None, "nothing tells how much")


def read_groups(root: Path) -> list[MemoryLimit]:
    """Reads the limits of this process's control groups, and of those around them."""
    found = []
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            found += read_group(root / "sys/fs/cgroup", path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            found += read_group(root / "sys/fs/cgroup/memory", path, *names)
    return found


def read_group(top: Path, path: str, limit: str, used: str) -> list[MemoryLimit]:
    """Reads one control group and those around it. One without a limit says "max", or a number beyond all memory."""
    found = []
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        folder = top.joinpath(*parts[:depth])
        most, now = read_number(folder / limit), read_number(folder / used)
        if most is not None and now is not None and most < 2**60:
            found.append(
                MemoryLimit(max(0.0, (most - now) / MB), f"the limit of control group /{'/'.join(parts[:depth])}")
            )
    return found


def read_resident_mb(process: int, root: Path = Path("/")) -> float | None:
    """Memory that a process has now, MiB; None once it is over."""
    for line in (read_text(root / f"proc/{process}/status") or "").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return None
