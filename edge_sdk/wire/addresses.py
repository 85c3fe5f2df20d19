"""Addresses of brokers, and the certificates with which a node goes there."""

from __future__ import annotations

import ipaddress
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edge_sdk.errors import UsageError

SCHEMES = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""Scheme of a broker's URL -> its port. The last two are for networks that let only the web through."""
PATH = "/mqtt"  # path of a web address that names none


@dataclass(frozen=True)
class Broker:
    """Address of a broker, and as whom to connect. `path`: of the websocket; "" without one."""

    host: str
    port: int = SCHEMES["mqtt"]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    path: str = ""

    def __str__(self) -> str:
        scheme = "ws" if self.path else "mqtt"
        return f"{scheme}{'s' if self.tls else ''}://{self.host}:{self.port}{self.path}"


@dataclass(frozen=True)
class Tls:
    """Certificates for connections with TLS.

    Attributes:
        ca: file of the authorities that may sign for the broker; None: the system's.
        certificate, key: files of this node, where the broker wants to see a certificate.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Load the files.

        Raises:
            UsageError: a file is missing or is no certificate.
        """
        for key, path in (("ca", self.ca), ("certificate", self.certificate), ("key", self.key)):
            if path is not None and not path.is_file():
                raise UsageError(f"{key} = {str(path)!r}: there is no such file")
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except (OSError, ssl.SSLError) as e:
            raise UsageError(f"ca = {str(self.ca)!r}: holds no certificates of authorities ({e})") from None
        context.hostname_checks_common_name = False  # a common name is a node's: it never stands for a host
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as e:
            both = f"certificate = {str(self.certificate)!r}, key = {str(self.key)!r}"
            raise UsageError(f"{both}: are no certificate and its key ({e})") from None
        return context


PASSWORD = re.compile(r"(\w+://[^\s\"'/:@]*):[^\s\"']*@")


def conceal(text: str) -> str:
    """A text without the passwords of the addresses in it: `scheme://user:password@host` loses its password."""
    return PASSWORD.sub(r"\1@", text)


def broker_at(url: str) -> Broker:
    """Read a URL: `mqtt://[user:password@]host[:port]`, `mqtts://` for TLS, or over a websocket `wss://host[/path]`.

    Raises:
        UsageError: it is no such address.
    """
    wrong = UsageError(
        f"broker = {conceal(url)!r}, expected mqtt://[user:password@]host[:port], mqtts:// for TLS, or wss://host[:port][/path]"
    )
    try:
        parts = urlsplit(url)
        port = parts.port or SCHEMES[parts.scheme]
    except (ValueError, KeyError):
        raise wrong from None
    web = parts.scheme in ("ws", "wss")
    if not parts.hostname or parts.query or parts.fragment or not (web or parts.path in ("", "/")):
        raise wrong
    user, password = (None if v is None else unquote(v) for v in (parts.username, parts.password))
    path = (PATH if parts.path in ("", "/") else parts.path) if web else ""
    return Broker(parts.hostname, port, user, password, parts.scheme in ("mqtts", "wss"), path)


def is_this_machine(host: str) -> bool:
    """Is a broker's host the machine that we are on?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
