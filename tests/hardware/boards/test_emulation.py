"""Boards that are emulated: how fast, within which memory, in which control group; and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.confine import PERIOD, Confinement
from edge_sdk.hardware.boards.emulation import measure_gflops, parse_boards
from tests.delivery.fleet import eventually


def test_a_share_from_the_profile_or_from_the_user() -> None:
    pi5, zero = parse_boards("raspberry-pi-5,raspberry-pi-zero-2w=0.05", lambda: 20.0)
    assert pi5.share == pytest.approx(30.249 / 4 / 20) and "20.0 here" in pi5.source and pi5.memory_mb == 1024
    assert (zero.share, zero.memory_mb) == (0.05, 512)
    assert zero.busy_seconds(2.0) == 40.0
    assert zero.joules(10.0) == pytest.approx(10 * (0.6 + (2.1 - 0.6) / 4))
    assert parse_boards("raspberry-pi-5", lambda: 1.0)[0].share == 1.0  # no board is faster than this machine
    assert parse_boards("") == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("raspberry-pi-zero-2w", "nobody has measured how fast it is .*0.370 Gflops"),
        ("raspberry-pi-5=0", "a share of this machine's core"),
        ("raspberry-pi-5=fast", "a share of this machine's core"),
        ("raspberry-pi-6", "there are profiles of"),
    ],
)
def test_boards_that_cannot_be_emulated(text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        parse_boards(text, lambda: 20.0)


def test_this_machine_is_measured() -> None:
    assert 0.05 < measure_gflops() < 1000


GREEDY = "import time; kept = bytearray(150 * 2**20); time.sleep(60)"


def test_a_process_with_more_memory_than_its_board_is_ended(tmp_path: Path) -> None:
    with Confinement(tmp_path) as confinement:  # no control groups there
        assert not confinement.limits_cpu
        small = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        large = subprocess.Popen([sys.executable, "-c", GREEDY])
        confinement.confine(small.pid, "small", 100, 0.1)
        confinement.confine(large.pid, "large", 100, 0.1)
        try:
            eventually(lambda: large.poll() == -9, 60)
            assert confinement.ended == ["large"] and confinement.peaks["large"] > 100 and small.poll() is None
        finally:
            for process in (small, large):
                process.kill()
                process.wait()


def test_limits_of_control_groups_are_written_as_the_kernel_wants_them(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    with Confinement(tmp_path) as confinement:
        assert confinement.limits_cpu and confinement.group is not None
        confinement.confine(4_000_000, "watch-1", 512, 0.25)
        group = confinement.group / "watch-1"
        found = {
            name: (group / name).read_text() for name in ("memory.max", "memory.swap.max", "cpu.max", "cgroup.procs")
        }
        assert found == {
            "memory.max": str(512 * 2**20),
            "memory.swap.max": "0",
            "cpu.max": "25000 100000",
            "cgroup.procs": "4000000",
        }
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory"
        confinement.confine(4_000_001, "watch-2", float("inf"), 1.0)  # a board whose memory nobody has found
        assert (confinement.group / "watch-2" / "memory.max").read_text() == "max"
        (group / "memory.events").write_text("oom 1\noom_kill 1\n")
        (confinement.group / "watch-2" / "memory.events").write_text("oom 0\noom_kill 0\n")
        assert confinement.list_ended() == ["watch-1"]


SPIN = "while True: pass"
GREEDY_WHEN_TOLD = "import sys, time; sys.stdin.readline(); kept = bytearray(150 * 2**20); time.sleep(60)"


def read_counts(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def test_the_kernel_keeps_processes_to_the_limits_of_their_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_sdk.hardware.boards.confine.LOOK", 3600.0)  # nobody else ends a process
    with Confinement() as confinement:
        group = confinement.group
        if group is None:
            pytest.skip("nobody may make control groups (version 2) with cpu and memory here")
        spinning = subprocess.Popen([sys.executable, "-c", SPIN])
        greedy = subprocess.Popen([sys.executable, "-c", GREEDY_WHEN_TOLD], stdin=subprocess.PIPE)
        try:
            confinement.confine(spinning.pid, "spinning", 200, 0.1)
            confinement.confine(greedy.pid, "greedy", 60, 0.5)
            eventually(lambda: read_counts(group / "spinning" / "cpu.stat")["nr_throttled"] >= 10)
            used = read_counts(group / "spinning" / "cpu.stat")
            assert used["usage_usec"] < 2 * 0.1 * PERIOD * used["nr_periods"]
            assert spinning.poll() is None and greedy.poll() is None
            greedy.communicate(b"now\n", timeout=60)
            assert greedy.returncode == -9
            assert confinement.list_ended() == ["greedy"]
            assert read_counts(group / "greedy" / "memory.events")["oom_kill"] == 1
        finally:
            for process in (spinning, greedy):
                process.kill()
                process.wait()
    assert not group.exists()


@pytest.mark.parametrize("controllers", ["", "cpu pids"])
def test_without_both_controllers_there_is_no_group(tmp_path: Path, controllers: str) -> None:
    (tmp_path / "cgroup.controllers").write_text(controllers)
    with Confinement(tmp_path) as confinement:
        assert not confinement.limits_cpu
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.controllers"]
