"""Settings that a running service takes from its file again, at SIGHUP; everything else needs a restart."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError


def find_changes(before: Any, after: Any, but: Collection[str], prefix: str = "") -> list[str]:
    """Keys of two tables of settings that differ, but for those that a running node can take up (`but`)."""
    names = [f.name for f in fields(before) if f.name not in but]
    return [prefix + name for name in names if getattr(before, name) != getattr(after, name)]


def check_changes(path: Path, changed: Collection[str], allowed: str) -> None:
    """Raises UsageError if a file was changed in a way that no running node can take up."""
    if changed:
        raise UsageError(f"{path}: {', '.join(changed)} changed; while a run goes on, {allowed} may be")


class FileWatch:
    """Notices that a settings file was written again. Make it before the file is read."""

    def __init__(self, path: Path):
        self.path = path
        self.seen = self.look()

    def look(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:  # it is being replaced, or somebody has moved it away
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def has_changed(self) -> bool:
        """Has it changed since the last call, or since this was made?"""
        now = self.look()
        changed = now is not None and now != self.seen
        self.seen = now or self.seen
        return changed
