"""Devices of a replay as boards: settings, limits, rows of the report, and their link; whole runs in the long tests."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.emulation import parse_boards
from edge_sdk.replay.job import replay
from edge_sdk.replay.nodes.emulated import EmulatedFleet, read_link
from edge_sdk.replay.nodes.processes import NodeProcesses, ProcessError
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.reports.boards import board_lines, boards_section
from edge_sdk.replay.traces.synth import write_traces

BOARDS = parse_boards("raspberry-pi-zero-2w=0.1,generic-x86_64=1")
DEVICES = ("a", "b", "c")
WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"


def write_results(out: Path) -> None:
    for seconds, name in enumerate(DEVICES, 1):
        (out / "devices" / name).mkdir(parents=True)
        found = {
            "cpu_seconds": seconds,
            "seconds": 9.0,
            "peak_memory_mb": 90.0,
            "bytes": {"sent": 500, "received": 500},
        }
        (out / "devices" / name / "result.json").write_text(json.dumps(found))


def test_boards_are_dealt_out_and_reported(tmp_path: Path) -> None:
    write_results(tmp_path)
    with EmulatedFleet(BOARDS, DEVICES, {}, "mqtt://127.0.0.1:1") as fleet:
        assert [fleet.board_of(name) for name in DEVICES] == [BOARDS[0], BOARDS[1], BOARDS[0]]
        if not fleet.confinement.limits_cpu:
            assert fleet.table("a") == {"budget": {"cpu_share": 0.1, "calm": 0.0}}
        result = fleet.report(tmp_path)
        assert "10.0% of a core" in next(fleet.notes()) and "Not reproduced" in " ".join(fleet.notes())
    zero, generic = result["boards"]["rows"]
    assert (zero["devices"], zero["busy_seconds"], zero["bytes"]) == (2, 20.0, 1000)  # the mean of 1 and 3 s, tenfold
    assert zero["joules"] == pytest.approx(20 * (0.6 + (2.1 - 0.6) / 4)) and generic["joules"] is None
    lines = board_lines(result["boards"])
    assert "raspberry-pi-zero-2w" in lines and "unknown" in lines and "caches, memory bandwidth" in lines
    assert "<h2>On emulated boards" in boards_section(result) and boards_section({}) == ""


def test_without_boards_and_link_nothing_is_changed(tmp_path: Path) -> None:
    with EmulatedFleet((), DEVICES, {}, "mqtt://127.0.0.1:1") as fleet:
        assert (fleet.table("a"), fleet.report(tmp_path), list(fleet.notes())) == ({}, {}, [])
        fleet.check()


def test_a_device_with_too_much_memory_ends_the_replay(tmp_path: Path) -> None:
    nodes = NodeProcesses(tmp_path)
    with EmulatedFleet(BOARDS, DEVICES, {}, "mqtt://127.0.0.1:1") as fleet:
        fleet.confinement.peaks["a"] = 600.0
        fleet.confinement.ended.append("a")
        nodes.also = fleet.check
        with pytest.raises(ProcessError, match="a had 600 MB, a Raspberry Pi Zero 2 W has 512"):
            nodes.check()


def test_the_link_is_a_proxy_before_the_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        with EmulatedFleet((), DEVICES, {"latency": 0.01, "loss": 1.0}, url) as fleet:
            assert fleet.proxy is not None and fleet.table("a")["broker"] == f"mqtt://127.0.0.1:{fleet.proxy.port}"
            with socket.create_connection(("127.0.0.1", fleet.proxy.port)) as client, server.accept()[0] as broker:
                client.sendall(b"hello")
                broker.settimeout(60)
                assert broker.recv(9) == b"hello"
            assert fleet.proxy.passed.lost >= 1


@pytest.mark.parametrize("texts", [["latency=-1"], ["rate=fast"], ["loss=true"]])
def test_links_that_cannot_be(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="a number, 0 or more"):
        read_link(texts)


def test_a_link_needs_a_plain_address() -> None:
    with (
        pytest.raises(UsageError, match="is no plain mqtt:// address"),
        EmulatedFleet((), (), {"rate": 1.0}, "mqtts://a"),
    ):
        pass


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="Linux's files tell")
def test_a_whole_replay_on_boards(tmp_path: Path) -> None:
    write_traces(tmp_path / "traces", devices=2, seed=3, minutes=1)
    job = Replay(
        data=tmp_path / "traces",
        out=tmp_path / "out",
        hospitals=1,
        method="fedavg",
        rounds=2,
        seed=3,
        bundle=(WRIST,),
        local_only=False,
        boards=BOARDS,
        link={"rate": 300_000.0, "latency": 0.01, "loss": 0.01},
    )
    said: list[str] = []
    result: dict[str, Any] = replay(job, lambda line: None, said.append)
    assert [row["board"] for row in result["boards"]["rows"]] == ["raspberry-pi-zero-2w", "generic-x86_64"]
    slow, fast = result["boards"]["rows"]
    assert slow["busy_seconds"] > fast["busy_seconds"] and any("Not reproduced" in text for text in said)
