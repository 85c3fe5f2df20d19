"""The command `auscult enrol`: its options, and what it prints."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORDS = "let this machine become a device or a hospital of a fleet: key, certificate, model and settings file"
WAIT = 3600.0  # seconds for a person to decide


def add_enrol(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("enrol", help=WORDS, description=WORDS, parents=parents)
    command.add_argument("name", help="of the device or hospital")
    command.add_argument("--token", help="from the console, or from `auscult fleet token`")
    command.add_argument("--at", metavar="URL", help="of the service; later: as at the enrolment, if left out")
    command.add_argument("--folder", type=Path, help="for all that it is given (default: the name)")
    command.add_argument("--trace", type=Path, help="of a device: CSV file of recordings to learn from")
    command.add_argument("--wait", type=float, default=WAIT, help="seconds for the approval (default: %(default)g)")
    command.add_argument("--renew", action="store_true", help="get a new certificate, in the name of the present one")
    command.add_argument("--before", type=float, default=60.0, metavar="DAYS", help="renew only if fewer are left")
    command.add_argument(
        "--mask-key",
        default="",
        metavar="BASE64",
        help="public key for secret sums, where it has one (auscult mask-key)",
    )
    command.add_argument("--at-ca", default="", metavar="FILE", help="authority of the service's https:// address")
    command.add_argument("--insecure", action="store_true", help="the token may leave this machine as plain text")
    command.set_defaults(do=do_enrol)


def do_enrol(options: argparse.Namespace) -> None:
    from edge_sdk.errors import UsageError
    from edge_sdk.tools.credentials.enrol import Applicant, Desk
    from edge_sdk.tools.credentials.enrolled_files import can_check_signatures

    applicant = Applicant(options.name, options.folder or Path(options.name))
    note = applicant.note
    at, ca = options.at or note.get("at"), options.at_ca or note.get("at_ca", "")
    if at is None:
        raise UsageError("--at is missing: the address of the service")
    desk = Desk(at.rstrip("/"), ca, options.insecure or note.get("insecure", False))
    if options.renew:
        days = applicant.renew(desk, options.before)
        print(
            f"{options.name}: {'good for longer' if days is None else f'a new certificate, good for {days:.0f} days'}"
        )
        return
    token = options.token or applicant.note.get("token")
    if token is None:
        raise UsageError("--token is missing: it comes from the console, or from `auscult fleet token`")
    if options.trace is not None and not options.trace.is_file():
        raise UsageError(f"--trace {options.trace}: there is no such file")
    asked = applicant.begin(desk, token, options.mask_key)
    if asked["state"] == "waiting":
        print(f"{options.name} has asked; it waits for approval in the console", flush=True)
    given = applicant.wait(desk, options.wait)
    path = applicant.take(desk, given, options.trace)
    print(f"{options.name} belongs to {given['hospital'] or given['aggregator']}; its settings are in {path}")
    if not can_check_signatures():
        print("what the operator has signed is not checked: pip install cryptography, then see trusted_key there")
    lacks = given["kind"] == "device" and "\n[data]" not in path.read_text()
    print(f"name its recordings there; then: auscult device {path}" if lacks else f"auscult {given['kind']} {path}")
