"""The settings file of the service, `auscult serve FILE`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from aggregator.service.hooks import Webhook
from aggregator.service.office import Enrolling
from edge_sdk.contract.run import checked_name
from edge_sdk.errors import UsageError
from edge_sdk.nodes.masks import AggregatorKeys
from edge_sdk.nodes.service_files import existing
from edge_sdk.wire.options import Wire

CONSOLE = "console"
"""Name under which the service listens at the broker to what hospitals report."""
LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class FleetFile:
    """`auscult serve FILE`.

    Attributes:
        name: of the aggregator, as hospitals call it.
        broker: URL of the broker that hospitals reach it by.
        directory: everything that the service keeps: its database, runs, models.
        bundles: compiled models that runs may train.
        classes: label names in the order of the models' outputs.
        hospitals: name -> number of its devices. What a hospital reports of itself counts more; one that reports
            nothing takes part only if it is named here.
        listen: address and port of the console.
        hosts: names by which browsers may call it, beside the address that it listens on.
        database: URL as SQLAlchemy has it; "": an SQLite file in the directory.
        threads: of torch on a CPU, in each run.
        masks: keys of the aggregator for runs with secret sums; None: the service makes its own, and knows those of
            the devices that enrol.
        proxied: a proxy in front of the console speaks TLS with browsers, so cookies are for that alone.
        two_people: a run that somebody asks for begins when another one has approved it.
        wire: certificates of the aggregator.
        console_wire: certificates with which the service listens to reports; None: those of `wire`.
        webhooks: name -> who is told what has happened.
        enrolment: how nodes that enrol get certificates.
    """

    name: str
    broker: str
    directory: Path
    bundles: tuple[Path, ...]
    classes: tuple[str, ...]
    hospitals: dict[str, int] = field(default_factory=dict)
    listen: str = "127.0.0.1:8080"
    hosts: tuple[str, ...] = ()
    database: str = ""
    threads: int = 1
    masks: AggregatorKeys | None = None
    proxied: bool = False
    two_people: bool = False
    wire: Wire = field(default_factory=Wire)
    console_wire: Wire | None = None
    webhooks: dict[str, Webhook] = field(default_factory=dict)
    enrolment: Enrolling = field(default_factory=Enrolling)

    def __post_init__(self) -> None:
        checked_name(self.name, "name")
        self.wire.check(self.broker)
        (self.console_wire or self.wire).check(self.broker)
        for bundle in self.bundles:
            existing(bundle, "bundles")
        for name in self.webhooks:
            checked_name(name, "webhooks")
        for name, devices in self.hospitals.items():
            checked_name(name, "hospitals")
            if devices < 1:
                raise UsageError(f"hospitals.{name} = {devices}, a hospital has at least 1 device")
        if len(self.classes) < 2:
            raise UsageError(f"classes = {list(self.classes)}: expected the names of at least 2")
        if not (self.address in LOCAL or self.proxied):
            raise UsageError(
                f"listen = {self.listen!r}: the console speaks plain HTTP, so it listens on this machine only; put a "
                "proxy with TLS in front of it and say proxied = true"
            )

    @property
    def address(self) -> str:
        """Where the console listens, without its port."""
        return self.split_listen()[0]

    @property
    def port(self) -> int:
        return self.split_listen()[1]

    @property
    def url(self) -> str:
        """Address of the console for somebody on this machine."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"

    def split_listen(self) -> tuple[str, int]:
        """Address and port; port 0: a free one.

        Raises:
            UsageError: it is no ADDRESS:PORT.
        """
        address, sign, port = self.listen.rpartition(":")
        if not sign or not address or not port.isdigit() or int(port) > 65535:
            raise UsageError(f"listen = {self.listen!r}, expected ADDRESS:PORT, such as 127.0.0.1:8080")
        return address.strip("[]"), int(port)
