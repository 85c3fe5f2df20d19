"""The processes of a replay: real services with real settings files, started, watched and stopped together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.errors import AuscultError
from edge_sdk.nodes.serve import WITH_PARENT


class FleetError(AuscultError):
    """A process of the replay ended before its time."""


@dataclass
class Fleet:
    """Processes by name; the output of each goes to `logs/<name>.log`."""

    logs: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, arguments: Sequence[str | Path]) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        # One thread for each process: many share this machine, and sums must not depend on how a library splits them.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        environment[WITH_PARENT] = str(os.getpid())
        with (self.logs / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", "edge_sdk.cli", *map(str, arguments)]
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def check(self) -> None:
        """Raises FleetError if a process has failed, with the end of what it said."""
        for name, process in self.running.items():
            if process.poll() not in (None, 0):
                said = (self.logs / f"{name}.log").read_text(errors="replace").strip().splitlines()[-6:]
                raise FleetError(f"{name} ended with code {process.returncode}:\n  " + "\n  ".join(said))

    def warnings(self, name: str) -> list[str]:
        """What a process has warned of so far, without time and level."""
        said = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()
        return [line.split(" WARNING ", 1)[1] for line in said if " WARNING " in line]

    def unfinished(self) -> list[str]:
        """Names of the processes that still run."""
        return [name for name, process in self.running.items() if process.poll() is None]

    def stop(self) -> None:
        """Politely, then not."""
        for process in self.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 5
        for process in self.running.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def write_toml(path: Path, table: Mapping[str, Any]) -> Path:
    """A settings file, as one would write it by hand."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(toml_lines(table)) + "\n")
    return path


def toml_lines(table: Mapping[str, Any], prefix: str = "") -> list[str]:
    lines = [f"{k} = {toml_value(v)}" for k, v in table.items() if not isinstance(v, Mapping) and v is not None]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{prefix}{key}]", *toml_lines(value, f"{prefix}{key}.")]
    return lines


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
