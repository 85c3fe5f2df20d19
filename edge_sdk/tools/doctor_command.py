"""`auscult doctor`: from a settings file, or from what the command line names."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError

FAILED = 1
WORDS = "check a node's settings file and all that it names, or this machine, a bundle, a directory and a broker"


def add_doctor(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("doctor", help=WORDS, description=WORDS, parents=parents)
    command.add_argument(
        "file", type=Path, nargs="?", help="settings of a device, a hospital, the aggregator or a service, TOML"
    )
    command.add_argument("--bundle", type=Path)
    command.add_argument("--broker", help="mqtt://host[:port] or mqtts://host[:port]")
    command.add_argument("--ca", type=Path, help="authorities that may sign for the broker")
    command.add_argument("--cert", type=Path, help="certificate to show to the broker")
    command.add_argument("--key", type=Path, help="its key")
    command.add_argument("--directory", type=Path, help="where the node will keep its state (default: here)")
    command.add_argument("--json", action="store_true")
    command.set_defaults(do=do_doctor)


def do_doctor(options: argparse.Namespace) -> int:
    from edge_sdk.tools.diagnostics.doctor import examine, examine_file
    from edge_sdk.tools.diagnostics.findings import print_findings
    from edge_sdk.wire.addresses import Tls

    check_options(options)
    if options.file is not None:
        findings = examine_file(options.file)
    else:
        tls = Tls(options.ca, options.cert, options.key)
        findings = examine(options.bundle, options.broker, options.directory or Path("."), tls)
    if options.json:
        print(json.dumps([asdict(f) for f in findings]))
    else:
        print_findings(findings)
    return FAILED if any(f.good is False for f in findings) else 0


def check_options(options: argparse.Namespace) -> None:
    given = [
        name for name in ("bundle", "broker", "ca", "cert", "key", "directory") if getattr(options, name) is not None
    ]
    if options.file is not None and given:
        raise UsageError(f"--{given[0]}: {options.file} says that; leave out one of the two")
    if (options.cert is None) != (options.key is None):
        raise UsageError("--cert and --key: a certificate needs its key, and a key its certificate")
