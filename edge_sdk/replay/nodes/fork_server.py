"""Server that forks the nodes of a replay: it loads their modules once, and each node begins as a copy of it.

Loading takes a device half a second of processor, and the same again for each of them; a copy takes milliseconds, and
shares memory with the others until it writes to it. The server has one thread, so that nothing holds a lock when it is
copied, and has opened nothing: onnxruntime, which starts a thread as it is loaded, each node loads for itself.
It runs in a process of its own, which `ForkServer` starts and asks over a socket, one JSON object a line:

    {"start": [ARGUMENT, ...], "log": FILE}     -> {"started": PID}
    {"signal": NUMBER, "pid": PID}              -> nothing
    a process has ended                         -> {"ended": PID, "code": CODE}, as subprocess counts: -9 for a kill

When the socket is closed, however that happens, the server ends what it has started, and itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from edge_sdk.atomic import PRIVATE
from edge_sdk.nodes.daemon.serve import WITH_PARENT

USED_BY_ALL = (
    "data.cutting",
    "delivery.session",
    "methods.integers.method",
    "methods.settling.self_training",
    "methods.standardising.method",
    "nodes.daemon.device_result",
    "nodes.device.machine_facts",
    "nodes.device.progress_log",
    "nodes.device.run_env",
    "nodes.kernels.plain",
    "nodes.models.last_line",
    "nodes.policy.epsilon_ledger",
    "nodes.policy.score_filter",
)
"""Modules that a node loads when a run asks for them, and that nearly all devices of a replay come to need."""

LINE = 1 << 16
"""Bytes that are read at once."""
SET_NAME, LONGEST_NAME = 15, 15
"""Option of prctl in Linux's prctl.h, and bytes that a process's name has at most."""


def serve(asked: socket.socket) -> list[str]:
    """Arguments of a node, in each process that was forked; in the server itself it never returns."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the replay says when to end
    running: set[int] = set()
    buffer = b""
    with selectors.DefaultSelector() as ready:
        ready.register(asked, selectors.EVENT_READ)
        ready.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is woken:
                    with contextlib.suppress(BlockingIOError):
                        os.read(woken, 4096)
                    continue
                some = asked.recv(LINE)
                if not some:
                    end_all(running)
                *lines, buffer = (buffer + some).split(b"\n")
                for line in lines:
                    found = obey(json.loads(line), asked, running)
                    if found is not None:
                        ready.close()
                        for each in (woken, wake):
                            os.close(each)
                        return found
            reap(asked, running)


def obey(request: dict[str, Any], asked: socket.socket, running: set[int]) -> list[str] | None:
    """Does what is asked for; in a process that was forked for it, the arguments of the node."""
    if "signal" in request:
        if request["pid"] in running:  # one that has not been waited for: its number is nobody else's
            os.kill(request["pid"], request["signal"])
        return None
    pid = os.fork()
    if pid:
        running.add(pid)
        answer(asked, {"started": pid})
        return None
    become_node(asked, request["log"])
    return [str(argument) for argument in request["start"]]


def become_node(asked: socket.socket, log: str) -> None:
    """Gives up what belongs to the server, and lets all that is written go to a file."""
    os.environ[WITH_PARENT] = str(os.getppid())
    ctypes.CDLL(None).prctl(SET_NAME, Path(log).stem.encode()[-LONGEST_NAME:])  # what `ps` and `top` show
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.default_int_handler)
    asked.close()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target)
    os.close(file)
    os.close(nothing)


def reap(asked: socket.socket, running: set[int]) -> None:
    """Tells of processes that have ended."""
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            running.discard(pid)
            answer(asked, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def answer(asked: socket.socket, what: dict[str, int]) -> None:
    with contextlib.suppress(OSError):  # whoever asked is gone: the next `recv` ends the server
        asked.sendall(json.dumps(what).encode() + b"\n")


def end_all(running: set[int]) -> NoReturn:
    """Asks all that still run to end, as they do themselves once their server is gone."""
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    os._exit(0)


def main() -> None:
    """Serves the socket whose number is the one argument; each copy goes on as `python -m edge_sdk.cli`."""
    for name in USED_BY_ALL:
        import_module(f"edge_sdk.{name}")
    gc.freeze()  # a collection would write to objects that all copies share
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("edge_sdk.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
