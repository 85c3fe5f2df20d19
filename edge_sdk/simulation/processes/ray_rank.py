"""One rank of a simulation in a process of Ray, and what it tells the command that has started it (on_ray.py)."""

from __future__ import annotations

import importlib
import io
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from queue import SimpleQueue
from typing import Any, NamedTuple

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.simulation.processes.links import RankGone


class Said(NamedTuple):
    """A word of a rank to the command that has started it.

    Attributes:
        kind: "out", "err": a line for that output; "misused", "failed", "gone" (another rank is): why it ends.
        text: the line with its end, or the reason.
    """

    kind: str
    text: str


class RayRank:
    """A process of Ray that is one rank."""

    def meet(self) -> tuple[str, int]:
        """Address and port of this machine at which the others find rank 0."""
        host = importlib.import_module("ray.util").get_node_ip_address()
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as free:
            free.bind((host, 0))
            return host, int(free.getsockname()[1])

    def play(
        self, play: Callable[[Any], object], options: Any, directory: str, environment: Mapping[str, str]
    ) -> Iterator[Said]:
        """Plays, and tells on the way what is printed, and in the end why it has failed if it has.

        Args:
            directory: in which the command was started; files are named from there.
            environment: variables of this rank.
        """
        os.environ.update(environment)
        said: SimpleQueue[Said | None] = SimpleQueue()
        working = threading.Thread(target=work, args=(play, options, directory, said), daemon=True)
        working.start()
        while (one := said.get()) is not None:
            yield one


def work(play: Callable[[Any], object], options: Any, directory: str, said: SimpleQueue[Said | None]) -> None:
    """Plays; all that it prints, and why it has failed, goes into a queue. None is its end."""
    try:
        with Lines("out", said) as out, Lines("err", said) as err, redirect_stdout(out), redirect_stderr(err):
            os.chdir(directory)
            play(options)
    except UsageError as error:
        said.put(Said("misused", str(error)))
    except RankGone as error:
        said.put(Said("gone", str(error)))
    except (AuscultError, OSError) as error:
        said.put(Said("failed", str(error)))
    except BaseException as error:
        said.put(Said("failed", f"{type(error).__name__}: {error}"))
        raise
    finally:
        said.put(None)


class Lines(io.TextIOBase):
    """A file that puts each line that is written into a queue, and what is left of one when it is closed."""

    def __init__(self, kind: str, said: SimpleQueue[Said | None]) -> None:
        self.kind, self.said, self.begun = kind, said, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self.begun = (self.begun + text).split("\n")
        for line in lines:
            self.said.put(Said(self.kind, f"{line}\n"))
        return len(text)

    def close(self) -> None:
        if not self.closed and self.begun:
            self.write("\n")
        super().close()
