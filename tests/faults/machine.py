"""A machine that fails, for one process: its disk fills up or loses its power, its clock is set, it may open no file.

The faults are made by a small library (shim.c), which is compiled once and loaded before the process. Without a C
compiler there are no such faults, and `missing()` says so.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import resource
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from random import Random

SOURCE = Path(__file__).with_name("shim.c")
PAGE = 4096
CONTROL = 24  # bytes, see shim.c
LASTING = ("told", "counters", "lock")  # files of the test's own application, which no power cut touches


def missing() -> str:
    """Why there are no faults here; "" where there are."""
    return "" if shutil.which("cc") else "there is no C compiler (cc)"


def library() -> Path:
    """The compiled shim, made at the first call on this machine."""
    content = SOURCE.read_bytes()
    path = Path(tempfile.gettempdir()) / f"auscult-faults-{os.getuid()}-{hashlib.sha256(content).hexdigest()[:16]}.so"
    if not path.exists():
        aside = path.with_name(f"{path.name}.{os.getpid()}")
        command = ["cc", "-O1", "-Wall", "-shared", "-fPIC", "-o", str(aside), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        aside.replace(path)
    return path


class Machine:
    """What one process believes to be its machine.

    Args:
        prefix: the folder on the disk that fails.
        base: where the controls are kept, and what was synced; outside `prefix`.
        power: the disk may lose its power, so what is synced is copied.
    """

    def __init__(self, prefix: Path, base: Path, power: bool = False):
        base.mkdir(parents=True, exist_ok=True)
        self.prefix, self.base, self.shadow = prefix.resolve(), base, base / "synced"
        self.power, self.boots = power, 0
        self.shadow.mkdir(exist_ok=True)
        (base / "boot").write_text("boot 0\n")
        (base / "control").write_bytes(bytes(CONTROL))
        self.control = map_control(base / "control")

    def environment(self) -> dict[str, str]:
        """For the process, besides its own."""
        found = {"LD_PRELOAD": str(library()), "FAULTS_CONTROL": str(self.base / "control")}
        found |= {"FAULTS_PREFIX": str(self.prefix), "FAULTS_BOOT": str(self.base / "boot")}
        return found | ({"FAULTS_SHADOW": str(self.shadow)} if self.power else {})

    def set_clock(self, seconds: int) -> None:
        """Put the wall clock so far ahead (or behind, if negative)."""
        struct.pack_into("<q", self.control, 0, seconds)

    def fill_disk(self, full: bool) -> None:
        """Fill the disk, or make room again."""
        struct.pack_into("<i", self.control, 8, full)

    def cut_power(self, dice: Random, reorder: bool = True) -> None:
        """Leave on the disk what a power cut might, and begin a new start of the machine. The process must be dead.

        Everything that was synced is there. Of what was written since then, all may be gone; or, with `reorder`, each
        page and each change of a name may have been written or not, in any order.
        """
        self.boots += 1
        (self.base / "boot").write_text(f"boot {self.boots}\n")
        paths = {p for p in self.prefix.rglob("*") if p.is_file() and p.name not in LASTING}
        synced = {p.name.replace("%", "/"): p for p in self.shadow.iterdir() if ".half" not in p.name}
        for name in sorted(synced.keys() | {str(p.relative_to(self.prefix)) for p in paths}):
            path, copy = self.prefix / name, synced.get(name)
            if path.name in LASTING:
                continue
            now = path.read_bytes() if path.exists() else None
            content = survivor(None if copy is None else copy.read_bytes(), now, dice if reorder else None)
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        self.note_all_synced()

    def note_all_synced(self) -> None:
        """What is on the disk after a power cut is really there."""
        for copy in self.shadow.iterdir():
            copy.unlink()
        for path in self.prefix.rglob("*"):
            if path.is_file() and path.name not in LASTING:
                shutil.copy(path, self.shadow / str(path.relative_to(self.prefix)).replace("/", "%"))


def map_control(path: Path) -> mmap.mmap:
    """The bytes that the faults of a process are read from all the time."""
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), CONTROL)


def cut_off_writes(control: mmap.mmap, killed: int, failing: int = 0) -> None:
    """Let half of a write be done, and the process be killed then, or be told that the disk is full; 0: in none.

    Writes at a place in a file are counted, as SQLite's are, from the first time on that there is a number.
    """
    struct.pack_into("<ii", control, 12, killed, failing)


def survivor(synced: bytes | None, now: bytes | None, dice: Random | None) -> bytes | None:
    """What a power cut leaves of a file.

    Args:
        synced: its content when it was last synced; None: it never was.
        now: its content as processes see it; None: it has been deleted.
        dice: decide what was written; None: nothing was.
    """
    if dice is None or now is None or synced == now:
        return synced if dice is None or now is not None or dice.random() < 0.5 else None
    if synced is None and dice.random() < 0.5:
        return None
    before, kind = synced or b"", dice.choice(("all", "none", "pages"))
    if kind != "pages":
        return now if kind == "all" else before
    found = bytearray(dice.choice((len(before), len(now))))
    for start in range(0, len(found), PAGE):
        source = dice.choice((before, now))[start : start + PAGE]
        source = source[: len(found) - start]
        found[start : start + len(source)] = source
    return bytes(found)


def limit_files(pid: int, more: int | None) -> None:
    """Let a process open so many files more than it has open; None: as many as it likes."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    soft = min(hard, 4096) if more is None else max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1 + more
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
