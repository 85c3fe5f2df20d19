"""Is what a node proves itself with good, as far as can be seen here? And is this machine's clock?"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from edge_sdk.tools.credentials.certificates import load_certificate
from edge_sdk.tools.diagnostics.findings import Finding
from edge_sdk.tools.diagnostics.node_files import SERVICE, NodeFile
from edge_sdk.tools.diagnostics.reach import SOON
from edge_sdk.wire.addresses import Tls
from edge_sdk.wire.signatures import Signer, Verifier

SLACK = 300.0  # seconds by which a clock may be behind a file that was written elsewhere


def check_certificate(tls: Tls, name: str | None) -> Finding:
    """The node's certificate and its key. `name`: of the node; None: not known."""
    if tls.certificate is None or tls.key is None:
        return Finding("certificate", None, "none named; the broker will say whether it wants one")
    found = load_certificate(tls.certificate)
    left, renew = found.days_left(), f"auscult provision DIRECTORY --renew {found.name}, and copy what it makes here"
    if name is not None and found.name != name:
        detail = f"{tls.certificate} is of {found.name}, and this node is {name}: the broker would take it for that"
        return Finding("certificate", False, detail, f"use the certificate that was made for {name}")
    if found.purposes and "client" not in found.purposes:
        return Finding("certificate", False, f"{tls.certificate} is good for a broker only", "use the node's own")
    if left < 0:
        detail = f"{tls.certificate} has ended on {found.ends:%Y-%m-%d} (now it is {datetime.now(UTC):%Y-%m-%d})"
        return Finding("certificate", False, detail, renew)
    if open_to_others := tls.key.stat().st_mode & 0o077:
        detail = f"{tls.key} can be used by other users of this machine (mode {open_to_others:02o} for them)"
        return Finding("certificate", False, detail, f"chmod 600 {tls.key}")
    tls.context()  # UsageError: key and certificate are not of each other
    if left < SOON:
        return Finding("certificate", False, f"{tls.certificate} ends in {left:.0f} days", renew)
    return Finding("certificate", True, f"of {found.name}, by {found.issuer}, good for {left:.0f} days")


def check_signatures(file: NodeFile) -> Finding:
    """Does the node know its operator's runs from those of others, or the aggregator sign them?"""
    if file.key is None and file.tier == SERVICE:
        return Finding("signatures", None, "the service makes the key with which it signs runs at its first start")
    if file.key is None and file.tier == "aggregator":
        return Finding("signatures", None, "no signing_key: nodes with a trusted_key will not take this run")
    if file.key is None:
        detail = "no trusted_key: this node takes whatever run it is offered, also by a broker that was broken into"
        return Finding("signatures", None, detail)
    if file.tier in ("aggregator", SERVICE):
        if open_to_others := file.key.stat().st_mode & 0o077:
            detail = f"{file.key} can be used by other users of this machine (mode {open_to_others:02o} for them)"
            return Finding("signatures", False, detail, f"chmod 600 {file.key}")
        return Finding("signatures", True, f"signs its run with the key {Signer(file.key.read_bytes()).fingerprint}")
    return Finding("signatures", True, f"takes only what the key {Verifier(file.key.read_bytes()).fingerprint} signed")


def check_clock(files: list[Path]) -> Finding:
    """A clock that is before what was written and signed before is wrong: boards without a battery start in 1970."""
    now = time.time()
    latest = max((path.stat().st_mtime for path in files if path.exists()), default=0.0)
    begins = [load_certificate(path).begins.timestamp() for path in files if path.suffix == ".crt" and path.exists()]
    if now + SLACK < max([latest, *begins]):
        detail = f"this machine has {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, and its files or certificates are of later"
        return Finding("clock", False, detail, "set the clock (timedatectl set-ntp true): certificates depend on it")
    return Finding("clock", True, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
