"""`auscult`, of which one rank kills itself (SIGKILL) after some rounds of its first life: no test has to be in time.

python -m tests.simulation.dying RANK ROUNDS simulate ...     started by torchrun; or, with --ray, by itself
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import Any

from edge_sdk.cli import main
from edge_sdk.simulation.runs import commands
from edge_sdk.simulation.runs.commands import play_rank
from edge_sdk.simulation.runs.job import Course


def die_after(rounds: int) -> None:
    """Has this process kill itself as soon as its aggregator has told the end of so many rounds."""
    receive = Course.receive

    def receive_and_die(course: Course, name: str, message: object, now: float) -> None:
        receive(course, name, message, now)
        if sum(line["kind"] == "round" for line in course.lines) == rounds:
            os.kill(os.getpid(), signal.SIGKILL)

    Course.receive = receive_and_die  # type: ignore[method-assign]


def play_and_die(number: str, rounds: int, options: Any) -> None:
    """What a rank does, if it is not the one that dies."""
    if os.environ["RANK"] == number and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        die_after(rounds)
    play_rank(options)


if __name__ == "__main__":
    commands.play_rank = partial(play_and_die, sys.argv[1], int(sys.argv[2]))  # type: ignore[assignment]
    sys.exit(main(sys.argv[3:]))
