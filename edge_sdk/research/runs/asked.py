"""What a call of `simulate` asks for, as the command line that does the same."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from edge_sdk.errors import UsageError, nearest
from edge_sdk.simulation.runs.commands import add_simulate

OWN = ("data", "seed", "out", "resume", "ray", "json", "set", "sweep", "bundle", "help", "log")
"""Options of the command that have another form here, or none."""
SEVERAL = (list, tuple, set)


class Refusing(argparse.ArgumentParser):
    """A parser that raises an error where others end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def read_command(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line `simulate ...`.

    Raises:
        UsageError: the command does not know one of them, or its value.
    """
    options = make_parser().parse_args(list(arguments))
    options.given = list(arguments)
    return options


def make_parser() -> Refusing:
    """The parser of `auscult simulate`, as the command has it."""
    top = Refusing(prog="auscult")
    add_simulate(top.add_subparsers(parser_class=Refusing), [])
    return top


def known_options() -> dict[str, argparse.Action]:
    """Name in Python -> option of the command."""
    commands = next(a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    actions = commands.choices["simulate"]._actions
    found = {a.option_strings[-1][2:].replace("-", "_"): a for a in actions if a.option_strings}
    return {name: action for name, action in found.items() if name not in OWN}


def settings_arguments(settings: str | Path | Mapping[str, Any] | None) -> list[str]:
    """Arguments for the method's settings: single ones, or where all of them come from."""
    if settings is None:
        return []
    if isinstance(settings, Mapping):
        return [f"--set={key}={written(value)}" for key, value in settings.items()]
    return [f"--settings={settings}"]


def option_arguments(given: Mapping[str, Any], settings: Sequence[str] = ()) -> list[str]:
    """Arguments for further options: `settle={"trees": 0}` is `--settle trees=0`. `settings`: names of the method's.

    Raises:
        UsageError: there is no such option.
    """
    known, found = known_options(), list[str]()
    for name, value in given.items():
        if name not in known and name in settings:
            raise UsageError(f"simulate has no {name}: it is a setting of the method, settings={{{name!r}: ...}}")
        if name not in known:
            raise UsageError(f"simulate has no {name}{nearest(name, known)}; see help(edge_sdk.simulate)")
        found += one_option(name, value, known[name])
    return found


def one_option(name: str, value: Any, action: argparse.Action) -> list[str]:
    """The arguments of one option."""
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, Mapping):
        return [f"{option}={key}={written(one)}" for key, one in value.items()]
    if isinstance(value, SEVERAL):
        separate = isinstance(action, argparse._AppendAction)
        texts = [",".join(map(str, one)) if isinstance(one, SEVERAL) else str(one) for one in value]
        return [f"{option}={text}" for text in texts] if separate else [f"{option}={','.join(texts)}"]
    return [f"{option}={value}"]


def written(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, SEVERAL):
        return f"[{', '.join(map(written, value))}]"
    return json.dumps(value) if isinstance(value, str) else repr(float(value)) if is_float(value) else str(value)


def is_float(value: Any) -> bool:
    """Says if a number is one with a point, of Python or of numpy."""
    return hasattr(value, "__float__") and not hasattr(value, "__index__")
