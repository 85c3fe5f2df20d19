"""What a certificate says of itself, read without the openssl command, which a device may not have.

Only the few fields are read that an operator can do something about; whether a signature is right is for TLS to say.
X.509 is a tree of DER values: a tag, a length, and a content that may be values again (ITU-T X.690, RFC 5280).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edge_sdk.errors import UsageError

COMMON_NAME, EXTENDED_USAGE = bytes.fromhex("550403"), bytes.fromhex("551d25")
PURPOSES = {bytes.fromhex("2b06010505070301"): "server", bytes.fromhex("2b06010505070302"): "client"}
SEQUENCE, OID, OCTETS, UTC_TIME, VERSION, EXTENSIONS = 0x30, 0x06, 0x04, 0x17, 0xA0, 0xA3
BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class Certificate:
    """Fields of one certificate.

    Attributes:
        name, issuer: common names of its holder, and of who has signed it.
        begins, ends: times between which it is good.
        purposes: "client", "server"; empty: it does not say.
    """

    name: str
    issuer: str
    begins: datetime
    ends: datetime
    purposes: frozenset[str]

    def days_left(self) -> float:
        return (self.ends - datetime.now(UTC)).total_seconds() / 86400


@dataclass(frozen=True)
class Der:
    """One DER value."""

    tag: int
    content: bytes

    def parts(self) -> list[Der]:
        return list(read_values(self.content))


def read_values(data: bytes) -> Iterator[Der]:
    """The DER values that follow each other in `data`. ValueError: it is cut off."""
    at = 0
    while at < len(data):
        tag, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + size > len(data):
            raise ValueError("a value is cut off")
        yield Der(tag, data[at : at + size])
        at += size


def load_certificate(path: Path) -> Certificate:
    """The first certificate of a PEM file.

    Raises:
        UsageError: there is no such file, or no certificate in it.
    """
    try:
        found = BLOCK.search(path.read_text(errors="replace"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if found is None:
        raise UsageError(f"{path}: there is no certificate in it (PEM)")
    try:
        return read_certificate(ssl.PEM_cert_to_DER_cert(found[0]))
    except (ValueError, IndexError) as error:
        raise UsageError(f"{path}: is no certificate: {error}") from None


def read_certificate(data: bytes) -> Certificate:
    """Read a certificate in DER. ValueError or IndexError: it is none."""
    fields = next(read_values(data)).parts()[0].parts()
    _, _, issuer, validity, subject, *rest = fields[1:] if fields[0].tag == VERSION else fields
    begins, ends = (read_time(one) for one in validity.parts())
    extensions = [one for one in rest if one.tag == EXTENSIONS]
    return Certificate(
        common_name(subject),
        common_name(issuer),
        begins,
        ends,
        read_purposes(extensions[0]) if extensions else frozenset(),
    )


def read_time(value: Der) -> datetime:
    """A time: with two digits for the year up to 2049, with four from 2050 on."""
    form = "%y%m%d%H%M%SZ" if value.tag == UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(value.content.decode("ascii"), form).replace(tzinfo=UTC)


def common_name(name: Der) -> str:
    """The common name in a distinguished name; "" if it has none."""
    pairs = [pair.parts() for entry in name.parts() for pair in entry.parts()]
    return next((value.content.decode(errors="replace") for kind, value in pairs if kind.content == COMMON_NAME), "")


def read_purposes(extensions: Der) -> frozenset[str]:
    for extension in extensions.parts()[0].parts():
        kind, *_, value = extension.parts()
        if kind.content == EXTENDED_USAGE:
            listed = next(read_values(value.content)).parts()
            return frozenset(PURPOSES[one.content] for one in listed if one.content in PURPOSES)
    return frozenset()
