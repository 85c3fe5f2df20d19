"""Certificates of the service and of its broker that end soon. Nodes that have enrolled renew theirs themselves; nobody
renews these, and when they have ended the whole fleet stands still."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from aggregator.service.administration.settings_file import CONSOLE, FleetFile
from edge_sdk.errors import UsageError
from edge_sdk.tools.credentials.certificates import Certificate, load_certificate

SOON = 30.0
"""Days before its end from which on a certificate needs a person."""
BROKER = "broker"
"""Name of the broker's certificate for `auscult provision certs --renew`."""


def list_ending(file: FleetFile) -> list[tuple[str, str]]:
    """What is the matter with certificates, in words that stay the same from day to day, and what to do."""
    found = []
    for name, path in list_certificates(file).items():
        try:
            left = load_again(path, path.stat().st_mtime_ns).days_left()
        except (OSError, UsageError) as error:
            found.append((f"The certificate of {name} cannot be read", str(error)))
            continue
        remedy = (
            f"auscult provision DIRECTORY --renew {name}, then start {'it' if name == BROKER else 'the service'} again"
        )
        if left < 0:
            found.append((f"The certificate of {name} has ended", f"{-left:.0f} days ago: {remedy}"))
        elif left < SOON:
            found.append((f"The certificate of {name} ends soon", f"in {left:.0f} days: {remedy}"))
    return found


def list_certificates(file: FleetFile) -> dict[str, Path]:
    """Name, as `auscult provision` has it, and file of each certificate; the broker's, where its authority is here."""
    wires = {file.name: file.wire, f"{file.name}-{CONSOLE}": file.console_wire, **file.lanes}
    found = {
        name: wire.certificate for name, wire in wires.items() if wire is not None and wire.certificate is not None
    }
    if file.enrolment.site is not None:
        found[BROKER] = file.enrolment.site / "broker" / "broker.crt"
    return found


@lru_cache(maxsize=64)
def load_again(path: Path, changed: int) -> Certificate:
    """A certificate; read again when its file has changed."""
    return load_certificate(path)
