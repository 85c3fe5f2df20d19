"""Work in a fork of this process: what crashes there does not end us, and no second interpreter is started.

A second interpreter could not be started everywhere: under emulation `sys.executable` is a file for another processor,
and in an application with Python inside it is the application.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

from edge_sdk.errors import AuscultError


class ForkError(AuscultError):
    """Work in a fork that did not come to its end, and why."""


def run_forked(work: Callable[..., Any], *arguments: Any, patience: float) -> Any:
    """Runs `work(*arguments)` in a fork, and returns what it has returned, which JSON must be able to hold.

    Args:
        work: what is done.
        patience: seconds that it may take.

    Raises:
        ForkError: it has raised an error, has ended the process, or was not done in time.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=work_and_tell, args=(theirs, work, arguments), daemon=True)
    child.start()
    theirs.close()  # the child has the only other end, so that reading ends when the child does
    try:
        if not ours.poll(patience):
            raise ForkError(f"not done after {patience:.0f} s")
        found, error = receive(ours)
    except EOFError:
        child.join()
        raise ForkError(name_end(child.exitcode or 0)) from None
    finally:
        child.kill()
        child.join()
        ours.close()
    if error:
        raise ForkError(error)
    return found


def work_and_tell(pipe: Pipe, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Does the work in the child, and sends [what it returned, ""] or [None, what went wrong]."""
    try:
        send(pipe, [work(*arguments), ""])
    except Exception as error:  # the parent tells it: a child's traceback would be nobody's
        send(pipe, [None, f"{type(error).__name__}: {error}"[:300]])


def send(pipe: Pipe, value: Any) -> None:
    """Sends a value as JSON: the pipe's own way would be pickle."""
    pipe.send_bytes(json.dumps(value).encode())


def receive(pipe: Pipe) -> Any:
    return json.loads(pipe.recv_bytes())


def name_end(code: int) -> str:
    """Names the end of a process: by the signal, or with its exit code."""
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
