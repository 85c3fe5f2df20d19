"""The page of all commands, made of their parsers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from aggregator.private_model import pretrain
from aggregator.service.client import client
from aggregator.service.server import command
from edge_sdk.cli import CLIENT, DOORS, SERVICE, make_parser
from edge_sdk.models import cli as compiler

HEAD = """# Commands

For whoever looks up an option. Each command and what it takes, as `auscult COMMAND --help` says it. `auscult` without
arguments shows the five doors; exit codes are 0 done, 1 a run, a check or a process has failed, 2 something that was
named cannot be used. Every command takes `--log debug|info|warning|error`.
"""
PLAIN = ("positional arguments", "options")


def commands_page() -> str:
    """A heading for each door, and in it its commands."""
    os.environ["COLUMNS"] = "100"
    found, parts = dict(all_parsers()), [HEAD]
    for door, (about, names) in DOORS.items():
        parts.append(f"## {door[0].upper()}{door[1:]}\n\n{about[0].upper()}{about[1:]}.\n")
        for name in names.split():
            parts += [section(each, found[each]) for each in found if each.split()[0] == name]
    return "\n".join(parts)


def all_parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Words of a command without `auscult` -> its parser; those that read their own arguments have it elsewhere."""
    own = {**commands_of(command.make_parser()), **commands_of(client.make_parser())}
    own |= {
        "pretrain": pretrain.parser(),
        "bundle compile": commands_of(compiler.make_parser("auscult bundle"))["compile"],
    }
    for name, parser in commands_of(make_parser()).items():
        if name not in (*SERVICE, *CLIENT, *own):
            yield name, parser
    yield from own.items()


def commands_of(parser: argparse.ArgumentParser, words: str = "") -> dict[str, argparse.ArgumentParser]:
    """Words -> parser of each command that has no further ones below it."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        return {words: parser}
    return {
        name: found
        for word, each in below[0].choices.items()
        for name, found in commands_of(each, f"{words} {word}".strip()).items()
    }


def section(name: str, parser: argparse.ArgumentParser) -> str:
    """Heading, description, usage, and a table for each group of arguments."""
    parts = [f"### auscult {name}\n"]
    if parser.description:
        parts.append(f"{parser.description[0].upper()}{parser.description[1:].rstrip('.')}.\n")
    parts.append(f"```text\n{parser.format_usage().removeprefix('usage: ').rstrip()}\n```\n")
    groups: dict[str, list[str]] = {}
    for group in parser._action_groups:
        title = "" if group.title in PLAIN else f"{str(group.title)[0].upper()}{str(group.title)[1:]}:\n"
        shown = [one for one in group._group_actions if one.dest not in ("help", "log")]
        groups.setdefault(title, []).extend(f"| {invocation(parser, one)} | {words_of(parser, one)} |" for one in shown)
    for title, rows in groups.items():
        if rows:
            parts += [title, "\n".join(["| argument | what it is |", "|---|---|", *rows]), ""]
    return "\n".join(parts)


def invocation(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._format_action_invocation(action)
    return f"`{text}`".replace("|", "\\|")


def words_of(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
