"""What is fuzzed: everything that reads bytes from elsewhere. Each may say no in this project's own errors only.

A target is a function of bytes and the inputs to begin with, all of which it accepts. It raises what the product
raises, so anything but an AuscultError is a fault, and so is a broken promise about what was accepted (an assertion).
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.data.npz import read_npz
from edge_sdk.data.samples import read_samples
from edge_sdk.data.traces.read import read_trace
from edge_sdk.data.traces.windows import cut_windows
from edge_sdk.errors import AuscultError
from edge_sdk.live.membership.roster import Roster
from edge_sdk.model import bundle
from edge_sdk.nodes.configuration.presets import SettingsFile
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.daemon.settings_files import AggregatorFile, HospitalFile
from edge_sdk.wire import frames
from edge_sdk.wire.fields import SMALLEST_CHUNK
from tests.wire.test_codec_fuzz import CODEC, WRITTEN

WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"


@dataclass(frozen=True)
class Target:
    """One reader. `seeds`: inputs that it accepts."""

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


# The wire --------------------------------------------------------------------------------------------------------
def check_frame(data: bytes) -> None:
    """A payload is refused, or says the same when it is packed and read again."""
    frame = frames.unpack_frame(data)
    again = frames.unpack_frame(frames.pack_frame(frame))
    header = frames.HEADERS[type(frame)]
    assert header(again) == header(frame) and bytes(again.body) == bytes(frame.body)


def frame_seeds() -> list[bytes]:
    acks, digest = (("h", 3, 9),), b"\1" * 16
    head = ("run-1", "d1", 3, 12, 7, acks, 5, True)
    whole = (
        frames.Message(*head, body=b"12345678"),
        frames.Chunk(*head, 40_000, SMALLEST_CHUNK, digest, 1, 77, True, body=b"chunk"),
        frames.Offer(*head, 40_000, SMALLEST_CHUNK, digest, 99),
        frames.ChunkReports("run-1", "h", (frames.ChunkReport("d1", 3, 12, b"\3", 99),)),
        frames.Acks("run-1", "d1", acks),
        frames.Acks("run-1", "h1", acks, 7, 9),
        frames.Birth("d1", 3, 4, "run-1", True, count=2, nonce=8),
        frames.Birth("d1", 3, 4, "run-1", True, count=2, nonce=8, asked=2**33 + 7),
        frames.Hello("h", 5, 6, "run-1", True, 4, 2, 9, True, 3, body=b"run"),
        frames.Hello("h", 5, 6, "run-1", True, 4, 2, 9, True, 3, "", 7, 8, body=b"run"),
    )
    return [frames.pack_frame(frame) for frame in whole]


def check_message(data: bytes) -> None:
    """A message is refused, or written again it is read as the same bytes."""
    value = CODEC.decode(data)
    written = CODEC.encode(value)
    assert CODEC.encode(CODEC.decode(written)) == written


# Files -----------------------------------------------------------------------------------------------------------
def check_file(read: Callable[[Path], Any], name: str) -> Callable[[bytes], None]:
    """A reader of a file of that name."""

    def check(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (path := Path(folder) / name).write_bytes(data)
            read(path)

    return check


def read_windows(path: Path) -> None:
    """A trace is refused, or can be cut into windows of finite numbers."""
    windows = cut_windows(read_trace(path), 8, 4)
    assert np.isfinite(windows.x).all()


def trace_seeds() -> list[bytes]:
    rows = [f"{k / 32:.3f},{0.1 * k:.2f},-1.5,{'walk' if k < 20 else 'run'}" for k in range(40)]
    return ["\n".join(["time,x,y,activity", *rows]).encode()]


def npz_seeds() -> list[bytes]:
    found = []
    for save in (np.savez, np.savez_compressed):
        save(file := io.BytesIO(), x=np.zeros((4, 3), np.float32), labels=np.array(["a", "b", "a", "b"]))
        found.append(file.getvalue())
    return found


def read_arrays(path: Path) -> None:
    read_npz(path)
    read_samples(path)


def check_bundle(data: bytes) -> None:
    """A manifest, put into the shipped bundle with the hash that it ought to have: what is behind it is read."""
    header = bundle.HEADER.pack(bundle.MAGIC, bundle.VERSION, len(data), hashlib.sha256(data).digest())
    bundle.parse(header + data + parts())


@cache
def parts() -> bytes:
    _, start = bundle.parse_manifest(whole := WRIST.read_bytes())
    return whole[start:]


def bundle_seeds() -> list[bytes]:
    return [WRIST.read_bytes()[bundle.HEADER.size : -len(parts())]]


def check_graph(data: bytes) -> None:
    """The bytes of a graph, which are scanned before onnxruntime sees them."""
    bundle.check_graph("train", memoryview(data))


def graph_seeds() -> list[bytes]:
    found = bundle.parse(WRIST.read_bytes())
    return [bytes(part) for name, part in found.parts.items() if name.endswith(".onnx")][:1]


# Rosters ---------------------------------------------------------------------------------------------------------
def check_roster(data: bytes) -> None:
    """A roster is refused, or says the same when a hospital reads what it has kept of it."""
    with tempfile.TemporaryDirectory() as folder:
        roster = Roster("north", Path(folder))
        roster.take(data)
        kept = Roster("north", Path(folder))
        assert (kept.number, kept.devices) == (roster.number, roster.devices) and roster.number > 0


def roster_seeds() -> list[bytes]:
    about = {"version": 1, "hospital": "north", "number": 3}
    return [json.dumps(about | {"devices": names}).encode() for names in ([], ["watch-7", "bed.1", "a"])]


# Settings --------------------------------------------------------------------------------------------------------
SETTINGS = (DeviceFile, HospitalFile, AggregatorFile, SettingsFile)


def check_settings(data: bytes) -> None:
    """One text as the settings file of each tier: somebody reads it, or all refuse it in sentences."""
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "node.toml").write_bytes(data)
        refusals = []
        for kind in SETTINGS:
            try:
                read_toml(path, kind)
            except AuscultError as error:
                refusals.append(error)
    if len(refusals) == len(SETTINGS):
        raise refusals[0]


def settings_seeds() -> list[bytes]:
    return [
        b'[run]\nmethod = "fedslr"\nrounds = 20\n[run.settings]\neta_l = 0.03\n[run.settle]\noptimiser = "adam"\n',
        b'name = "d1"\nhospital = "north"\nbroker = "mqtt://127.0.0.1"\ndirectory = "state"\n'
        + f'bundle = "{WRIST}"\n[data]\ntrace = "{WRIST}"\nheld_out = 0.2\n'.encode(),
    ]


def service_targets() -> dict[str, Target]:
    """Targets of the service, where what it needs is installed."""
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "sqlalchemy", "jinja2", "argon2")):
        return {}
    from tests.fuzz import service_targets as service

    return {
        "requests": Target(service.check_request, service.request_seeds),
        "reports": Target(service.check_report, service.report_seeds),
    }


TARGETS: Mapping[str, Target] = {
    "frames": Target(check_frame, frame_seeds),
    "messages": Target(check_message, lambda: list(WRITTEN)),
    "traces": Target(check_file(read_windows, "t.csv"), trace_seeds),
    "npz": Target(check_file(read_arrays, "a.npz"), npz_seeds),
    "bundle": Target(check_bundle, bundle_seeds),
    "graph": Target(check_graph, graph_seeds),
    "settings": Target(check_settings, settings_seeds),
    "rosters": Target(check_roster, roster_seeds),
    **service_targets(),
}
