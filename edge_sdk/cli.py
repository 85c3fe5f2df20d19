"""`auscult`: the command line.

Exit codes: 0 done; 1 a run, a check or a process has failed; 2 something named on the command line or in a settings
file cannot be used. With `--json` standard output is one object and nothing else; what is going on then goes to
standard error.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edge_sdk.arguments import Doors, Parser
from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.terminal_text import shown
from edge_sdk.tools.completion import add_completion
from edge_sdk.version import find_version

FAILED, MISUSED = 1, 2
INTERRUPTED, NO_READER = 130, 141
"""As shells have it: 128 and the number of the signal, SIGINT or SIGPIPE."""
WORDS = {
    "device": "run a device (several files: several devices in one process)",
    "hospital": "run a hospital node, next to its broker",
    "aggregator": "run the aggregator for one run, until it has ended",
    "replay": "replay recorded traces, or a data set, through real devices, hospitals, a broker and the aggregator",
    "simulate": "simulate a run of up to a million clients on this machine, or on several (torchrun, Ray)",
    "compare": "compare finished replays: metrics of each model, and paired differences to the first run",
    "tune": "choose settings of methods on validation samples, by runs in memory; each method gets as many trials",
    "traces": "import, check and make traces",
    "bundle": "compile a torch module for devices, or look at and check a compiled one",
    "pretrain": "train a model that an aggregator keeps to itself, on samples that no device is given",
    "serve": "run the aggregator as a service, with its console in the browser (--demo: with a fleet to look at)",
    "people": "say who may use the console of a service",
    "audit": "check the audit log of a service",
    "service": "back up a service while it runs, or put a backup back",
    "runs": "see, queue, pause, resume, stop and clone the runs of a service",
    "fleet": "see the hospitals and devices of a service",
    "models": "see and promote the models of a service",
    "schedules": "see, add and remove runs of a service that begin by themselves",
    "provision": "make certificates for the nodes of one broker, and the matching mosquitto configuration",
    "enrol": "let this machine become a device or a hospital of a fleet: key, certificate, model and settings file",
    "mask-key": "draw a key for secret sums on the device that is to have it, and print its public half",
    "doctor": "check a node's settings file and all that it names, or this machine, a bundle, a directory and a broker",
    "approve": "see which runs this node was offered, and approve or deny one of them by hand",
    "backup": "write a node's folder into one file, while the node runs or not",
    "restore": "put a backup into an empty folder, after everything in it was checked",
    "board": "show which board this is, how it fares, and what training a bundle on it costs",
    "record": "write what sensors give as traces that can be replayed",
    "plugins": "see which methods, networks, readers, sensors and tasks other packages bring, and whether they work",
    "completion": "print a script that completes commands and options in a shell",
}
"""All commands -> what they do."""
NODES = ("device", "hospital", "aggregator")
SERVICE, CLIENT = ("serve", "people", "audit", "service"), ("runs", "fleet", "models", "schedules")
"""Commands of the service, and commands that ask a service that runs."""
OWN_PARSERS = (("bundle", "compile"), ("pretrain",), *((name,) for name in (*SERVICE, *CLIENT)))
"""Commands that read their own arguments, in a module that a device does not have."""
WORKSTATION = {
    "replay": "edge_sdk.replay.commands",
    "simulate": "edge_sdk.simulation.runs.commands",
    "compare": "edge_sdk.replay.commands",
    "tune": "edge_sdk.replay.tuning.commands",
    "traces": "edge_sdk.replay.traces.commands",
}
"""Commands whose rooms are not in auscult-edge, what is installed on devices -> the module that adds each."""
TOOLS = {
    "provision": "provision_command",
    "enrol": "enrol_command",
    "mask-key": "mask_key_command",
    "doctor": "doctor_command",
    "approve": "approve",
    "backup": "backup_command",
    "restore": "backup_command",
    "board": "board",
    "record": "record",
    "plugins": "plugins",
}
"""Tools of an operator -> the module that adds each."""

DOORS = {
    "try": ("whole runs on this machine, of your data and methods", "replay simulate compare tune plugins"),
    "data, model": ("recordings, and networks that devices train", "traces record bundle pretrain"),
    "run": ("the nodes of a fleet", "device hospital aggregator"),
    "service": (
        "many runs, with a console in the browser",
        "serve runs fleet models schedules people audit service",
    ),
    "operate": (
        "keys, machines, backups",
        "doctor board provision enrol mask-key approve backup restore completion",
    ),
}
"""What somebody comes for -> what that is, and its commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    with redirect_stdout(shown(sys.stdout)), redirect_stderr(shown(sys.stderr)):
        return carry_out(arguments)


def carry_out(arguments: Sequence[str] | None) -> int:
    given, rest = split_arguments(list(sys.argv[1:] if arguments is None else arguments))
    options = make_parser(find_command(given)).parse_args(given)
    options.given, options.rest = given, rest
    level = options.log or ("info" if options.serves else "warning")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=level.upper())
    signal.signal(signal.SIGTERM, interrupt)
    try:
        code = options.do(options) or 0
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"auscult: {error}", file=sys.stderr)
        return MISUSED
    except BrokenPipeError:
        # The reader of our output has gone (`auscult doctor | head -1`). Without this, Python would try to flush the
        # rest at exit, and print a traceback about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except (AuscultError, OSError) as error:
        print(f"auscult: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("auscult: interrupted", file=sys.stderr)
        return INTERRUPTED


def interrupt(*_: Any) -> None:
    """Makes SIGTERM the same as Ctrl-C: what was started is stopped."""
    raise KeyboardInterrupt


def split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Splits off what follows a command that reads its own arguments, so that `--help` there is the command's own."""
    for at in range(min(3, len(arguments))):  # before the command there may be `--log LEVEL` or `--log=LEVEL`
        for words in (*OWN_PARSERS, *((name,) for name in find_missing())):
            end = at + len(words)
            if tuple(arguments[at:end]) == words and (at == 0 or arguments[0].startswith("--log")):
                return arguments[:end], arguments[end:]
    return arguments, []


def find_command(arguments: Sequence[str]) -> str | None:
    """The command that is given; "": the help or the version is asked for; None: that is not to be seen here."""
    at = 0
    while at < len(arguments) and arguments[at].partition("=")[0] == "--log":
        at += 1 if "=" in arguments[at] else 2
    word = arguments[at] if at < len(arguments) else ""
    return "" if word in ("", "-h", "--help", "--version") else word if word in WORDS else None


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of everything but `OWN_PARSERS`.

    Args:
        only: the command whose options are wanted, "" for none; the modules of the others are not loaded. None: all.
    """
    ending = "auscult --help says what each does, auscult COMMAND --help how; README.md which page tells more"
    about = "Personalised federated learning for wearables, hospitals and the cloud."
    top = Doors(prog="auscult", description=about, epilog=ending, doors=DOORS)
    add_log_option(top, None)
    top.add_argument("--version", action=VersionAction, nargs=0, help="show program's version number and exit")
    top.set_defaults(serves=False)
    commands = top.add_subparsers(metavar="command", required=True, parser_class=Parser)
    # The same option again for each command. SUPPRESS: where it is not given there, what stands before counts.
    after = argparse.ArgumentParser(add_help=False)
    add_log_option(after, argparse.SUPPRESS)
    missing = find_missing()
    for name, words in WORDS.items():
        if name in missing:
            commands.add_parser(name, help="(not in auscult-edge)").set_defaults(do=do_missing)
        elif only is None or name == only:
            add_command(name, commands, [after])
        else:
            commands.add_parser(name, help=words)
    return top


class VersionAction(argparse.Action):
    """Prints the version. It is looked up when it is asked for: that takes as long as all else that a command loads."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"auscult {find_version()}")
        parser.exit()


def add_command(name: str, commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Adds one command with its options."""
    if name in NODES:
        add_node(name, commands, parents)
    elif name == "bundle":
        add_bundle(commands, parents)
    elif name == "pretrain":
        commands.add_parser(name, help=WORDS[name]).set_defaults(do=do_pretrain)
    elif name in SERVICE or name in CLIENT:
        module = f"aggregator.service.{'server.command' if name in SERVICE else 'client.client'}"
        commands.add_parser(name, help=WORDS[name]).set_defaults(do=do_service, module=module)
    elif name == "completion":
        add_completion(commands, parents, make_parser)
    else:
        home = importlib.import_module(WORKSTATION.get(name) or f"edge_sdk.tools.{TOOLS[name]}")
        getattr(home, f"add_{name.replace('-', '_')}")(commands, parents)


def add_log_option(parser: argparse.ArgumentParser, default: Any) -> None:
    levels = ["debug", "info", "warning", "error"]
    words = "what is logged (default: info in a service, else warning)"
    parser.add_argument("--log", choices=levels, default=default, help=words)


def import_extra(module: str, extra: str = "aggregator") -> Any:
    """Imports a module that a device does not have: by name, so that this package imports nothing above it.

    Args:
        extra: what has to be installed for it.

    Raises:
        UsageError: it, or a library that it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if is_ours(error.name or ""):
            raise UsageError(NOT_HERE.format(what=module, extra=extra)) from error
        raise UsageError(f"{error.name} is missing here: pip install 'auscult[{extra}]'") from error


# A workstation's tools --------------------------------------------------------------------------------------------
NOT_HERE = (
    "{what} is not in auscult-edge, which is for devices and hospitals: it is in the whole of Auscult, "
    "auscult[{extra}], for a workstation or the aggregator's machine"
)


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("edge_sdk", "aggregator")


def find_missing() -> tuple[str, ...]:
    """Commands of a workstation that this installation has not."""
    return tuple(name for name, module in WORKSTATION.items() if find_spec(".".join(module.split(".")[:2])) is None)


def do_missing(options: argparse.Namespace) -> None:
    raise UsageError(NOT_HERE.format(what=options.given[-1], extra="replay"))


# Services -------------------------------------------------------------------------------------------------------
def add_node(name: str, commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    words = WORDS[name]
    ends = "end when the run has ended"
    once = f"{ends}, as it does in any case" if name == "aggregator" else f"{ends} (default: serve on)"
    command = commands.add_parser(name, help=words, description=words, parents=parents)
    command.add_argument("file", type=Path, nargs="+" if name == "device" else None, help="settings, TOML")
    command.add_argument("--once", action="store_true", help=once)
    does = {"device": do_device, "hospital": do_hospital, "aggregator": do_aggregator}
    command.set_defaults(do=does[name], serves=True)


def do_device(options: argparse.Namespace) -> None:
    from edge_sdk.nodes.daemon.serve import serve_devices

    serve_devices(options.file, options.once)


def do_hospital(options: argparse.Namespace) -> None:
    from edge_sdk.nodes.daemon.serve import serve_hospital

    serve_hospital(options.file, options.once)


def do_aggregator(options: argparse.Namespace) -> None:
    from edge_sdk.nodes.configuration.settings import read_toml
    from edge_sdk.nodes.daemon.settings_files import AggregatorFile

    if find_spec("aggregator") is not None:
        read_toml(options.file, AggregatorFile)  # what is wrong in it is said before torch loads
    logging.getLogger("auscult.serve").info("%s: torch is loading, which takes a few seconds", options.file)
    import_extra("aggregator.run_command").serve_aggregator(options.file)


# Bundles and private models ---------------------------------------------------------------------------------------
def add_bundle(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    from edge_sdk.tools.bundle_commands import add_parsers

    words = WORDS["bundle"]
    parts = commands.add_parser("bundle", help=words, description=words).add_subparsers(metavar="what", required=True)
    add_parsers(parts, parents)
    compile = parts.add_parser("compile", help="compile a torch module to a bundle that devices train")
    compile.set_defaults(do=do_compile)


def do_compile(options: argparse.Namespace) -> int:
    """Runs the compiler, which reads its own arguments, so that only it loads torch."""
    return int(import_extra("edge_sdk.models.cli").main(["compile", *options.rest], "auscult bundle"))


def do_pretrain(options: argparse.Namespace) -> int:
    """Runs the tool, which reads its own arguments, so that only it loads torch."""
    return int(import_extra("aggregator.private_model.pretrain").main(options.rest))


# The service ------------------------------------------------------------------------------------------------------
def do_service(options: argparse.Namespace) -> int:
    """Runs a command of the service, which reads its own arguments, so that only it loads the web."""
    log = [] if options.log is None else ["--log", options.log]
    return int(import_extra(options.module, "service").main([options.given[-1], *log, *options.rest]))


if __name__ == "__main__":
    sys.exit(main())
