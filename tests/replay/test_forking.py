"""Nodes that are forked from one process: they end, fail and are killed as processes of their own do."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.replay.nodes.forking import ForkServer, can_fork
from edge_sdk.replay.nodes.processes import NodeProcesses, ProcessError, environment

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes are not forked on this system")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(environment())
    yield server
    server.close()


def test_a_forked_process_is_the_command_line_with_its_own_log_and_exit_code(server, tmp_path):
    good = server.start(["--version"], tmp_path / "good.log")
    bad = server.start(["device", str(tmp_path / "none.toml")], tmp_path / "bad.log")
    assert good.wait(60) == 0 and bad.wait(60) == 2
    assert (tmp_path / "good.log").read_text().startswith("auscult ")
    assert "none.toml" in (tmp_path / "bad.log").read_text()
    assert (tmp_path / "bad.log").stat().st_mode & 0o777 == 0o600
    assert good.pid != bad.pid != server.process.pid


def test_the_server_has_one_thread_so_that_a_copy_has_no_lock_that_nobody_opens(server, tmp_path):
    server.start(["--version"], tmp_path / "a.log").wait(60)
    assert len(list(Path(f"/proc/{server.process.pid}/task").iterdir())) == 1


def test_a_kill_is_told_as_a_kill_and_a_number_that_is_free_again_gets_no_signal(server, tmp_path):
    waiting = server.start(["device", str(fifo(tmp_path))], tmp_path / "a.log")
    assert waiting.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.01)
    waiting.kill()
    assert waiting.wait(60) == waiting.poll() == waiting.returncode == -signal.SIGKILL
    waiting.send_signal(signal.SIGKILL)
    server.ask({"signal": signal.SIGKILL, "pid": os.getpid()})  # the server has started no such process
    assert server.start(["--version"], tmp_path / "b.log").wait(60) == 0


def test_what_was_forked_ends_with_the_replay_even_if_it_does_not_listen(tmp_path):
    nodes = NodeProcesses(tmp_path / "logs", forks=True)
    with nodes:
        nodes.start("device-a", ["device", fifo(tmp_path)])
        pid = nodes.running["device-a"].pid
        nodes.check()
        assert nodes.unfinished() == ["device-a"]
        assert Path(f"/proc/{pid}/comm").read_text() != ""
        os.kill(pid, signal.SIGKILL)
        nodes.running["device-a"].wait(60)
        with pytest.raises(ProcessError, match="device-a ended with code -9"):
            nodes.check()
        nodes.start("device-b", ["device", fifo(tmp_path)])
        other = nodes.running["device-b"].pid
    assert not Path(f"/proc/{other}").exists() and nodes.server is None


def test_a_server_that_is_killed_is_told_as_the_end_of_its_processes(tmp_path):
    nodes = NodeProcesses(tmp_path / "logs", forks=True)
    with nodes:
        nodes.start("device-a", ["device", fifo(tmp_path)])
        assert nodes.server is not None
        nodes.server.process.kill()
        assert nodes.running["device-a"].wait(60) == -signal.SIGKILL
        with pytest.raises(ChildProcessError, match="has ended, with code -9"):
            nodes.start("device-b", ["device", fifo(tmp_path)])
        os.kill(nodes.running["device-a"].pid, signal.SIGKILL)  # it waits for its settings, and so looks for no parent


def fifo(folder: Path) -> Path:
    """A settings file that nobody writes: whoever reads it waits."""
    path = folder / "waits.toml"
    if not path.exists():
        os.mkfifo(path)
    return path
