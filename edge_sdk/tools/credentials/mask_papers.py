"""Pairs of keys for secret sums, made with the openssl command: one for each device, and one for the aggregator.

    nodes/NAME/NAME.mask.key    private key of a device or the aggregator
    nodes/NAME/aggregator.pub   for a device: the aggregator's public key
    masks/devices.pub           for the aggregator: the public keys of all devices of this site
    masks/NAME.pub              the aggregator's public key, for the sites of its hospitals

Whoever makes a device's key can read what it masks. So where a hospital provisions its own devices, its sums are secret
from its broker and from whoever runs its service, and not from the person at this command.
"""

from __future__ import annotations

import base64
from pathlib import Path
from tempfile import TemporaryDirectory

from edge_sdk.atomic import write_text
from edge_sdk.errors import UsageError
from edge_sdk.tools.credentials.authority import run_openssl
from edge_sdk.tools.credentials.site import Site

KEY_BYTES = 32
DER = bytes.fromhex("302a300506032b656e032100")
"""What a public key of X25519 has before its bytes (RFC 8410)."""
AGGREGATOR = "aggregator.pub"


def write_mask_keys(directory: Path, site: Site, aggregator_key: Path | None) -> None:
    """Makes the keys that are not there yet, and writes who is given which public ones.

    Args:
        aggregator_key: file with the public key of an aggregator of another site; None: as before.

    Raises:
        UsageError: openssl fails, or that file cannot be used.
    """
    folder = directory / "masks"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    above = folder / AGGREGATOR if site.aggregator is None else folder / f"{site.aggregator}.pub"
    if site.aggregator is not None:
        write_text(above, public_line(directory, site.aggregator))
    elif aggregator_key is not None:
        write_text(above, read_aggregator(aggregator_key))
    lines = [public_line(directory, device) for device in site.devices]
    write_text(folder / "devices.pub", "".join(lines))
    for device in site.devices if above.exists() else ():
        write_text(directory / "nodes" / device / AGGREGATOR, above.read_text())


def public_line(directory: Path, name: str) -> str:
    """A node's public key as a line; its private key is made where there is none."""
    path = directory / "nodes" / name / f"{name}.mask.key"
    if not path.exists():
        write_text(path, run_openssl(path.parent, "genpkey", "-algorithm", "X25519"))
        path.chmod(0o600)
    pem = run_openssl(path.parent, "pkey", "-pubout", given=path.read_text())
    body = base64.b64decode("".join(pem.strip().splitlines()[1:-1]))
    return f"{name} {base64.b64encode(body[-KEY_BYTES:]).decode()}\n"  # the key is the end of its DER (RFC 8410)


def read_aggregator(path: Path) -> str:
    """The one line of an aggregator's file of its public key. Raises UsageError for another file."""
    try:
        lines = path.read_text().splitlines()
        fits = len(lines) == 1 and len(base64.b64decode(lines[0].partition(" ")[2], validate=True)) == KEY_BYTES
    except (OSError, ValueError):
        fits = False
    if not fits:
        raise UsageError(f"--aggregator-key {path}: expected the file masks/NAME.pub of the aggregator's own site")
    name, _, text = lines[0].partition(" ")
    if not shares_something(base64.b64decode(text)):
        raise UsageError(
            f"--aggregator-key {path}: the key of {name} is a point of X25519 that shares nothing with any other key"
        )
    return lines[0] + "\n"


def shares_something(key: bytes) -> bool:
    """True if X25519 with this public key gives a secret; `openssl` refuses points of small order (RFC 7748, 6.1)."""
    with TemporaryDirectory() as folder:
        own, other = Path(folder, "own.key"), Path(folder, "other.der")
        own.write_text(run_openssl(own.parent, "genpkey", "-algorithm", "X25519"))
        other.write_bytes(DER + key)
        try:
            derive = ("pkeyutl", "-derive", "-inkey", own.name, "-peerkey", other.name, "-peerform", "DER")
            run_openssl(own.parent, *derive, "-out", "shared")
        except UsageError:
            return False
        return True
