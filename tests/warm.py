"""Programs in processes that have loaded their modules beforehand: copies of servers that a test process keeps.

Loading torch, scikit-learn and the aggregator takes a command three seconds of processor, and what tests ask of it
often less than one. A copy has its own process, files, environment and exit code, as `python -m edge_sdk.cli` has; the
nodes of its replay are copies, too. What a program loads by itself is for tests that start it as its user does.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from edge_sdk.delivery.storage import failpoints
from edge_sdk.nodes.daemon.serve import WITH_PARENT
from edge_sdk.replay.nodes import processes
from edge_sdk.replay.nodes.fork_server import serve
from edge_sdk.replay.nodes.forking import ForkedProcess, ForkServer
from edge_sdk.replay.planning import bundles
from edge_sdk.research.runs import processes as runs

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parent.parent
PATH = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
"""Where servers find modules: without folders that a test has added by then, which are for its own copies."""
LOADED = (
    "torch",
    "onnx",
    "aggregator.kernels",
    "aggregator.run_command",
    "aggregator.shared",
    "edge_sdk.methods",
    "edge_sdk.models.derive.epoch",
    "edge_sdk.replay.commands",
    "edge_sdk.replay.job",
    "edge_sdk.replay.nodes.processes",
    "edge_sdk.replay.reports.page",
    "edge_sdk.simulation.runs.commands",
    "edge_sdk.simulation.runs.job",
)
"""What the server loads; onnxruntime, which starts a thread, each copy loads for itself."""
LEARNED = ("sklearn.covariance", "sklearn.decomposition", "sklearn.ensemble", "sklearn.linear_model")
"""The same where neighbours are fitted."""
FORKED = ("device", "hospital", "aggregator")
"""Nodes that begin as copies."""
NODES = ("tests.delivery.play", "tests.wire.equality_node", "tests.wire.secret_node", "tests.wire.among_node")
"""What the server of nodes that are killed again and again loads: no torch."""
CLI = "edge_sdk.cli"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
STAT = slice(11, 15)
"""Of the fields behind the name in /proc/PID/stat: ticks of a process and of its children that it has waited for."""


class WarmServer(ForkServer):
    """A fork server whose copies have loaded what commands need, or the modules of `loaded`."""

    def __init__(self, loaded: Sequence[str] = ()) -> None:
        self.asked, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.warm", str(theirs.fileno()), *loaded]
            environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": PATH}
            self.process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        self.codes, self.started, self.buffer, self.has_started = {}, [], b"", False

    def begin(
        self,
        arguments: Sequence[str],
        where: Path,
        said: tuple[Path, Path],
        more: Mapping[str, str],
        module: str = CLI,
        given: Path | None = None,
    ) -> ForkedProcess:
        """A process that runs `python -m module` with these arguments.

        Args:
            where: its directory. said: files of what it says, and of its errors. more: its variables. given: the file
                that is its standard input.
        """
        out, err = map(str, said)
        asked = {"module": module, "where": str(where), "out": out, "err": err, "environment": dict(more)}
        return self.start([json.dumps({**asked, "given": given and str(given)}), *arguments], said[1])

    def seconds(self) -> float:
        """Of processor, of the server and of its copies that have ended; 0 once it has been waited for."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[STAT])) / os.sysconf("SC_CLK_TCK")


SERVERS: list[WarmServer] = []
"""Those of this process, for tests/costs.py and for the end of the session."""


@cache
def server() -> WarmServer:
    """The server of commands of this process, begun where the first test wants it."""
    SERVERS.append(one := WarmServer())
    return one


@cache
def node_server() -> WarmServer:
    """The same for NODES."""
    SERVERS.append(one := WarmServer(NODES))
    return one


def close_all() -> None:
    """Ends the servers, and waits for them."""
    while SERVERS:
        SERVERS.pop().close()
    server.cache_clear()
    node_server.cache_clear()


def auscult(
    *arguments: object, where: Path | None = None, environment: Mapping[str, str] = os.environ, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end: as `subprocess.run` of `python -m edge_sdk.cli` with its output as text."""
    said = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process: ForkedProcess = server().begin(said, where or Path.cwd(), (out, err), environment)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(said, code, out.read_text(), err.read_text())


class WarmNodes(ForkServer):
    """What starts the nodes of a replay that is played in a test process: `close` leaves the server to others."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.process = server().process

    def start(self, arguments: Sequence[str], log: Path) -> ForkedProcess:
        return server().begin(arguments, Path.cwd(), (log, log), self.environment)

    def close(self) -> None:
        """Nothing: whoever has started nodes has ended them."""


def use_warm_nodes(patch: pytest.MonkeyPatch) -> None:
    """Has replays of this process begin their nodes as copies of the server, the aggregator among them."""
    patch.setattr(processes, "ForkServer", WarmNodes)
    patch.setattr(processes, "FORKED", FORKED)


def begin_warm(run: runs.Running, environment: dict[str, str], method: bytes) -> None:
    """Begins a run as a copy, with the method that it is handed on standard input."""
    given = run.out.with_suffix(".method")
    given.write_bytes(method)
    begun = server().begin(run.arguments, Path.cwd(), (run.log, run.log), environment, runs.WORKER, given)
    run.process = begun  # type: ignore[assignment]


ONE_AT_A_TIME = threading.Lock()
"""Methods are searched in threads, and another thread watches each process: a server hears one."""


class WarmTrials:
    """What a search begins its trials with, in place of `subprocess.Popen`: a copy, spoken to over two pipes."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], **_: object) -> None:
        self.folder = tempfile.TemporaryDirectory()
        given, out, err = (Path(self.folder.name) / name for name in ("given", "out", "err"))
        for pipe in (given, out):
            os.mkfifo(pipe)
        _, _, module, *arguments = command
        with ONE_AT_A_TIME:
            self.process: ForkedProcess = server().begin(arguments, Path.cwd(), (out, err), env, module, given)
        self.stdout, self.stdin = out.open(), given.open("w")  # the copy opens them in this order, too

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        with ONE_AT_A_TIME:
            return self.process.poll()

    def kill(self) -> None:
        with ONE_AT_A_TIME:
            self.process.kill()

    def communicate(self) -> None:
        """Waits for its end."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        while self.poll() is None:
            time.sleep(0.005)
        self.stdout.close()
        self.folder.cleanup()


# In the server and in its copies --------------------------------------------------------------------------------
class Child:
    """A forked process, with the part of `subprocess.Popen` that a `ForkServer` needs."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def copy_nodes() -> None:
    """Has the nodes of this process's first replay begin as copies of it, the aggregator among them."""
    ours, theirs = socket.socketpair()
    if not (pid := os.fork()):
        ours.close()
        sys.argv[1:] = serve(theirs)
        run(CLI)
    theirs.close()
    ready = [(ours, Child(pid))]

    class CopyServer(ForkServer):
        """A server that is there already; one more is begun as any other."""

        def __init__(self, environment: Mapping[str, str]) -> None:
            super().__init__(environment) if not ready else None
            if ready:
                self.asked, self.process = ready.pop()  # type: ignore[assignment]
                self.codes, self.started, self.buffer, self.has_started = {}, [], b"", False

    processes.ForkServer = CopyServer  # type: ignore[misc]
    processes.FORKED = FORKED  # type: ignore[assignment]
    atexit.register(lambda: [(one.close(), child.wait()) for one, child in ready])


def become(asked: Mapping[str, Any]) -> None:
    """Takes the directory, the files and the variables that were asked for."""
    os.chdir(asked["where"])
    sys.path[:0] = [one for one in asked["environment"].get("PYTHONPATH", "").split(os.pathsep) if one not in sys.path]
    os.environ.clear()
    os.environ.update({**asked["environment"], **ONE_THREAD})
    importlib.reload(failpoints)  # which has read a variable
    if WITH_PARENT in os.environ:  # it ends with the server
        os.environ[WITH_PARENT] = str(os.getppid())
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(asked[name], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    if asked["given"]:
        file = os.open(asked["given"], os.O_RDONLY)
        os.unlink(asked["given"])
        os.dup2(file, 0)
        os.close(file)


def run(module: str) -> NoReturn:
    """Runs a program, and ends without taking apart all that was loaded: that would copy it."""
    sys.modules.pop(module, None)  # it is run anew, under another name
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # as of PYTHONUNBUFFERED
    code: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def main() -> None:
    """Serves the socket whose number is the first argument; each copy goes on as the program that is asked for."""
    gc.disable()  # while modules load, in which it finds next to nothing
    learned = LEARNED if importlib.util.find_spec("sklearn") else ()
    for name in sys.argv[2:] or LOADED + learned:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.enable()
    said, *sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[1])))
    asked = json.loads(said)
    become(asked)
    bundles.compile_apart = bundles.compile_here
    if sys.argv[1:2] == ["replay"]:
        copy_nodes()
    run(asked["module"])


if __name__ == "__main__":
    main()
