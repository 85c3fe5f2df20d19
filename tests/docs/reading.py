"""Whether a program would take a command, without running it: its own parser reads the options."""

from __future__ import annotations

import argparse
import io
import re
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any
from unittest import mock

from edge_sdk.cli import main, split_arguments
from edge_sdk.methods import METHODS
from edge_sdk.nodes.configuration.settings import assigned, from_mapping
from tests.docs.pages import ROOT


class Parsed(Exception):
    """The options of a program were read; it goes no further."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options


@contextmanager
def only_parsing(program: str, arguments: Sequence[str]) -> Iterator[None]:
    """The last parser stops the program once it has read its options: some commands of auscult have two."""
    parse = argparse.ArgumentParser.parse_args
    left = 2 if program == "auscult" and split_arguments(list(arguments))[1] else 1

    def stop(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> argparse.Namespace:
        nonlocal left
        options, left = parse(self, args, namespace), left - 1
        if left:
            return options
        raise Parsed(options)

    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", stop),
        mock.patch.object(sys, "argv", [program, *arguments]),
        mock.patch.object(sys, "path", [str(ROOT), *sys.path]),
        redirect_stdout(io.StringIO()),
    ):
        yield


def read(words: Sequence[str]) -> None:
    """Raises AssertionError if the program would not take the command."""
    program, *arguments = words
    if program == "make":
        text = (ROOT / "Makefile").read_text()
        targets = re.findall(r"^([\w-]+):", text, re.MULTILINE)
        variables = [f"{name}=" for name in re.findall(r"^(\w+) \?=", text, re.MULTILINE)]
        named = {a[: a.index("=") + 1] if "=" in a else a for a in arguments}
        assert named <= {*targets, *variables}, f"{' '.join(words)}: the Makefile has {targets} and {variables}"
    elif program in ("auscult", "python"):
        check_method(options_of(program, arguments))


def options_of(program: str, arguments: Sequence[str]) -> argparse.Namespace:
    try:
        with only_parsing(program, arguments):
            start(program, list(arguments))
    except Parsed as parsed:
        return parsed.options
    except SystemExit as error:
        assert error.code in (0, None), f"{program} {' '.join(arguments)}: its parser refuses this"
    return argparse.Namespace()


def start(program: str, arguments: list[str]) -> None:
    if program == "auscult":
        main(arguments)
    elif arguments[0] == "-m":
        sys.argv[:] = arguments[1:]
        with mock.patch.dict(sys.modules):
            for name in (arguments[1], f"{arguments[1]}.__main__"):
                sys.modules.pop(name, None)  # another test may have imported it
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif "argparse" in (ROOT / arguments[0]).read_text():  # without a parser it would begin to work
        sys.argv[:] = arguments
        sys.path.insert(0, str((ROOT / arguments[0]).parent))
        runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")


def check_method(options: argparse.Namespace) -> None:
    """The methods of a replay or of tuning, and their settings."""
    named = getattr(options, "method", None)
    for method in [named] if isinstance(named, str) else named or []:
        if not method.isupper():  # NAME stands for one
            assert method in METHODS
            from_mapping(METHODS[method].settings, assigned(getattr(options, "set", [])), method)


def is_bare(words: Sequence[str]) -> bool:
    """Whether a command is only named, without what it needs: `auscult provision`."""
    plain = all(re.fullmatch(r"[a-z]+", word) for word in words[1:])
    return plain if words[0] == "auscult" else words[:2] == ["python", "-m"] and len(words) == 3
