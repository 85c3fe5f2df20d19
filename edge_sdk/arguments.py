"""A command's arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


class Parser(argparse.ArgumentParser):
    """A parser that tells of an option that nobody knows with the usage of the command that it was given to.

    argparse hands what a command does not know back to the parser above it, whose usage names no option of the command.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """What argparse finds. Nothing is left over: the process ends with code 2 where an option is not known."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest
