"""The [wire] table of a settings file, for nodes whom the defaults do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.wire.addresses import Tls, broker_at, conceal, is_this_machine
from edge_sdk.wire.fields import SMALLEST_CHUNK


@dataclass(frozen=True, kw_only=True)
class Wire:
    """Options of a node's connections and of what it saves.

    Attributes:
        version: version of MQTT: 5, which tells a node the broker's limits, or 4, which is 3.1.1; None: 5, and 4 where
            the broker has no 5.
        durability: "normal": what was saved survives the death of the process; "full": a power cut too.
        keepalive: seconds of silence after which the broker is pinged.
        largest_chunk: bytes of a large body that travel together at most; None: 1 MB, or what the broker allows.
        outbox_bytes: bytes on the disk that messages on their way may take up; above that the oldest notices are given
            up, never a question or an answer. None: 256 MB.
        ca: file of the authorities that may sign for a broker at mqtts://, a Path or its text.
        certificate, key: files with which this node proves who it is, likewise.
        insecure: mqtt:// (plain text) may leave this machine.
        messages_per_second: messages that this node publishes in a second at most, for a broker that drops what is
            beyond; None: as many as the broker acknowledges.
        metrics_port: port of this machine where Prometheus finds /metrics; None: none.

    >>> Wire(version=5, durability="full").keepalive
    30
    """

    version: int | None = None
    durability: str = "normal"
    keepalive: int = 30
    largest_chunk: int | None = None
    outbox_bytes: int | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    metrics_port: int | None = None
    messages_per_second: float | None = None

    def __post_init__(self) -> None:
        take_paths(self, "ca", "certificate", "key")
        if self.version not in (None, 4, 5):
            raise UsageError(f"version = {self.version}: MQTT is spoken in 4 (3.1.1) and 5")
        if self.durability not in ("normal", "full"):
            raise UsageError(f"durability = {self.durability!r}, expected normal or full")
        if self.keepalive < 1:
            raise UsageError(f"keepalive = {self.keepalive}, at least 1 second")
        if self.largest_chunk is not None and self.largest_chunk < SMALLEST_CHUNK:
            raise UsageError(f"largest_chunk = {self.largest_chunk}, at least {SMALLEST_CHUNK} bytes")
        if self.outbox_bytes is not None and self.outbox_bytes < 0:
            raise UsageError(f"outbox_bytes = {self.outbox_bytes}, at least 0")
        if (self.certificate is None) != (self.key is None):
            raise UsageError("certificate and key: a certificate needs its key, and a key its certificate")
        if self.messages_per_second is not None and not 1 <= self.messages_per_second < float("inf"):
            raise UsageError(f"messages_per_second = {self.messages_per_second}, at least 1")
        if self.metrics_port is not None and not 0 <= self.metrics_port < 65536:
            raise UsageError(f"metrics_port = {self.metrics_port}, a port is between 0 and 65535")

    @property
    def tls(self) -> Tls:
        """Authority, certificate and key, as a connection takes them."""
        return Tls(self.ca, self.certificate, self.key)

    def check(self, url: str) -> None:
        """Raises UsageError: a URL is none, or would carry plain text over a network without leave."""
        broker = broker_at(url)
        if not (broker.tls or self.insecure or is_this_machine(broker.host)):
            raise UsageError(
                f"broker = {conceal(url)!r}: plain text would leave this machine; use mqtts:// or wss:// (auscult "
                "provision makes the certificates), or say insecure = true under [wire] where the network is trusted"
            )


def take_paths(settings: Any, *names: str) -> None:
    """Lets an application name files by texts: these attributes of frozen settings become paths.

    Raises:
        UsageError: one is neither a path nor a text.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and not isinstance(value, str | Path):
            raise UsageError(f"{name} = {value!r:.60}: expected the path of a file")
        object.__setattr__(settings, name, None if value is None else Path(value))


DEFAULTS = Wire()
