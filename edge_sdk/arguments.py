"""A command's arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from edge_sdk.errors import nearest

WRONG_CHOICE = re.compile(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)$")
WORD = re.compile(r"[\w+-]+")
MANY = 12
"""Words that are listed where one is wrong, at most."""


class Parser(argparse.ArgumentParser):
    """A parser that tells of an option that nobody knows with the usage of the command that it was given to, and of the
    nearest word that there is.

    argparse hands what a command does not know back to the parser above it, whose usage names no option of the command.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """What argparse finds. Nothing is left over: the process ends with code 2 where an option is not known."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            near = next((near for one in rest if (near := self.nearest_option(one))), "")
            self.error(f"unrecognized arguments: {' '.join(rest)}{near}")
        return found, rest

    def nearest_option(self, text: str) -> str:
        """The option that was perhaps meant, as the end of a sentence."""
        return nearest(text.partition("=")[0], self._option_string_actions) if text.startswith("--") else ""

    def error(self, message: str) -> NoReturn:
        """Ends the process, with the nearest word where one of a few was expected."""
        if found := WRONG_CHOICE.search(message):
            words = WORD.findall(found[2])
            listed = f"; there are {', '.join(words)}" if len(words) <= MANY else ""
            known = nearest(found[1], words) or listed or f"; see {self.prog} --help"
            message = f"{message[: found.start()]}there is no {found[1]}{known}"
        super().error(message)


class Doors(Parser):
    """A parser of many commands, which are shown behind a few doors.

    Args:
        doors: what somebody comes for -> what that is, and its commands with blanks between them.
    """

    def __init__(self, *args: Any, doors: Mapping[str, tuple[str, str]], **given: Any) -> None:
        super().__init__(*args, **given)
        self.doors = doors

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """What argparse finds; without any argument the doors are shown, and the process ends with code 0."""
        if args is not None and not args:
            print(f"{self.description}\n\n{self.list_doors()}\n\n{self.epilog}")
            self.exit()
        return super().parse_known_args(args, namespace)

    def list_doors(self) -> str:
        """A paragraph for each door: what it is, and the names of its commands."""
        return "\n".join(f"  {door:12} {about}\n  {'':12} {names}" for door, (about, names) in self.doors.items())

    def format_help(self) -> str:
        """The doors, and behind each its commands with what they do."""
        commands = next(action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for door, (about, names) in self.doors.items():
            formatter.start_section(f"{door} ({about})")
            formatter.add_arguments([a for name in names.split() for a in commands._choices_actions if a.dest == name])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([action for action in self._actions if action is not commands])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()
