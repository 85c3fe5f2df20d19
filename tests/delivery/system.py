"""What takes the place of the system around the nodes of `world.py`: its time, and how a process of it dies."""

from __future__ import annotations


class Killed(BaseException):
    """A process dies at one of the points of `failpoints.POINTS`."""


class Points:
    """Takes the place of the module `os` in failpoints.py: a process of this world dies, and not this one."""

    SIGKILL = 9

    def getpid(self) -> int:
        return 0

    def kill(self, process: int, number: int) -> None:
        raise Killed


class Clock:
    """Takes the place of the module `time` in the nodes' modules: they all see the same time, which can be put on.

    It stands still by itself, so that a life with the same events is the same life.
    """

    def __init__(self) -> None:
        self.offset = 1000.0

    def monotonic(self) -> float:
        return self.offset

    def time(self) -> float:
        return 1.7e9 + self.offset

    def sleep(self, seconds: float) -> None:
        self.offset += seconds
