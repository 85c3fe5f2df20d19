"""Devices of a replay as the boards that they are said to be: slower, with less memory, behind a worse link.

What it does not reproduce is said wherever its figures are shown: see NOT_REPRODUCED.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.hardware.bad_link import Proxy
from edge_sdk.hardware.boards.confine import Confinement
from edge_sdk.hardware.boards.emulation import Emulation
from edge_sdk.hardware.boards.telemetry import read_telemetry
from edge_sdk.nodes.configuration.settings import assigned
from edge_sdk.replay.nodes.processes import NodeProcesses, ProcessError
from edge_sdk.wire.addresses import broker_at

NOT_REPRODUCED = (
    "Not reproduced: caches, memory bandwidth and vector units of the board (its speed is one ratio), throttling by "
    "heat, the wear and the slowness of its memory card, its radio's joules, and more than one busy core. Energy is "
    "modelled from the profile's watts; temperatures are this machine's."
)
DUTY = (
    "The processor's share is a measured duty cycle: training rests after each mini-batch; all else runs at full speed."
)
GROUPS = "The processor's share and the memory are limits of control groups."


@dataclass
class EmulatedFleet:
    """The boards and the link of a replay's devices; a context manager.

    Args:
        boards: dealt out to the devices in turns; none: every device is this machine.
        devices: all names, in order.
        link: faults of the devices' link; empty: none.
        url: of the broker.
        seed: of the link's faults.
    """

    boards: Sequence[Emulation]
    devices: Sequence[str]
    link: Mapping[str, float]
    url: str
    seed: int = 0

    def __enter__(self) -> EmulatedFleet:
        self.stack, self.confinement, self.proxy = ExitStack(), Confinement(), None
        if self.boards:
            self.stack.enter_context(self.confinement)
        if self.link:
            address = broker_at(self.url)
            if address.tls or address.path:
                raise UsageError(f"--link: {self.url} is no plain mqtt:// address, whose bytes could be delayed")
            faults: dict[str, Any] = {"seed": self.seed, **self.link}
            self.proxy = self.stack.enter_context(Proxy(address.host, address.port, **faults))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def board_of(self, device: str) -> Emulation | None:
        return self.boards[self.devices.index(device) % len(self.boards)] if self.boards else None

    def table(self, device: str) -> dict[str, Any]:
        """What a device's settings have beside the others."""
        board = self.board_of(device)
        found: dict[str, Any] = {} if self.proxy is None else {"broker": f"mqtt://127.0.0.1:{self.proxy.port}"}
        if board is not None and not self.confinement.limits_cpu:
            found["budget"] = {"cpu_share": board.share, "calm": 0.0}
        return found

    def confine(self, nodes: NodeProcesses, device: str) -> None:
        """Limits a device's process, which has just been started."""
        board = self.board_of(device)
        if board is not None:
            process = nodes.running[f"device-{device}"]
            self.confinement.confine(process.pid, device, board.memory_mb or float("inf"), board.share)

    def check(self) -> None:
        """Raises ProcessError if a device had more memory than its board has."""
        for device in self.confinement.list_ended() if self.boards else ():
            board = self.board_of(device)
            assert board is not None
            had = self.confinement.peaks.get(device, 0.0)
            raise ProcessError(f"{device} had {had:.0f} MB, a {board.profile.name} has {board.memory_mb:.0f}")

    def notes(self) -> Iterator[str]:
        """Sentences about what is emulated, and what is not."""
        for board in self.boards:
            memory = "" if board.memory_mb is None else f", {board.memory_mb:.0f} MB"
            yield f"{board.profile.name}: {board.share:.1%} of a core of this machine ({board.source}){memory}"
        if self.boards:
            yield GROUPS if self.confinement.limits_cpu else DUTY
            yield NOT_REPRODUCED
        if self.proxy is not None:
            yield f"devices reach the broker by a link with {', '.join(f'{k} {v:g}' for k, v in self.link.items())}"

    def report(self, out: Path) -> dict[str, Any]:
        """`boards` of the result: a row for each, in means over its devices."""
        if not self.boards:
            return {}
        hottest = read_telemetry().hottest
        boards = [board for i, board in enumerate(self.boards) if board not in self.boards[:i]]
        rows = [self.row(board, out) | {"this_machine_celsius": hottest} for board in boards]
        how = GROUPS if self.confinement.limits_cpu else DUTY
        return {"boards": {"rows": rows, "how": how, "not_reproduced": NOT_REPRODUCED}}

    def row(self, board: Emulation, out: Path) -> dict[str, Any]:
        names = [name for name in self.devices if self.board_of(name) == board]
        found = [json.loads((out / "devices" / name / "result.json").read_text()) for name in names]
        busy = sum(board.busy_seconds(one["cpu_seconds"]) for one in found) / max(1, len(found))
        joules = board.joules(busy)
        return {
            "board": board.profile.key,
            "devices": len(names),
            "share": board.share,
            "busy_seconds": round(busy, 1),
            "seconds": round(max((one["seconds"] for one in found), default=0.0), 1),
            "joules": None if joules is None else round(joules, 1),
            "peak_memory_mb": max((one["peak_memory_mb"] for one in found), default=0.0),
            "memory_mb": board.memory_mb,
            "bytes": sum(one["bytes"]["sent"] + one["bytes"]["received"] for one in found) // max(1, len(found)),
        }


def read_link(texts: Sequence[str]) -> dict[str, float]:
    """The faults that `--link KEY=VALUE ...` names."""
    found = assigned(texts)
    for key, value in found.items():
        if type(value) not in (int, float) or not value >= 0:
            raise UsageError(f"--link {key}={value!r}: a number, 0 or more")
    return found
