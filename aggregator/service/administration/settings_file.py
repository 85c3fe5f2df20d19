"""The settings file of the service, `auscult serve FILE`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from aggregator.service.administration.certificates import Enrolling
from aggregator.service.administration.single_sign_on import SingleSignOn
from aggregator.service.database.webhooks import Webhook
from edge_sdk.contract.children.limits import check_devices
from edge_sdk.contract.run import checked_name
from edge_sdk.errors import UsageError
from edge_sdk.nodes.daemon.device_file import existing
from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys
from edge_sdk.wire.addresses import broker_at
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
        classes: label names of the models' first outputs, in their order; a model may have more outputs, which no
            sample is of. Of models that predict sets of labels or values: the names of all outputs.
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
        sign_on: a provider that knows people, beside the passwords that are kept here.
        webhooks: name -> who is told what has happened.
        enrolment: how nodes that enrol get certificates.
        at_once: runs that may go on at once, where their hospitals differ.
        lanes: for a broker with certificates: name -> a further certificate of the aggregator, since a broker takes one
            connection for each; with n of them n + 1 runs go on at once.
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
    sign_on: SingleSignOn | None = None
    webhooks: dict[str, Webhook] = field(default_factory=dict)
    enrolment: Enrolling = field(default_factory=Enrolling)
    at_once: int = 4
    lanes: dict[str, Wire] = field(default_factory=dict)

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
            check_devices(f"hospitals.{name}", devices)
        if self.at_once < 1:
            raise UsageError(f"at_once = {self.at_once}, at least 1 run")
        for name, wire in self.lanes.items():
            if not checked_name(name, "lanes").startswith(f"{self.name}-run-"):
                raise UsageError(f"lanes.{name}: the broker knows further certificates as {self.name}-run-2 and so on")
            wire.check(self.broker)
        if not self.classes:
            raise UsageError("classes = []: expected the names of at least 2, or of the bundles' values or labels")
        if not (self.address in LOCAL or self.proxied):
            raise UsageError(
                f"listen = {self.listen!r}: the console speaks plain HTTP, so it listens on this machine only; put a "
                "proxy with TLS in front of it and say proxied = true"
            )

    @property
    def most_runs(self) -> int:
        """Runs that may go on at once: over TLS no more than there are certificates for."""
        return min(self.at_once, 1 + len(self.lanes)) if broker_at(self.broker).tls else self.at_once

    def has_connection(self, number: int) -> bool:
        """Says whether a run can have this connection: over TLS each needs a certificate of its own."""
        return number <= len(self.lanes) or not broker_at(self.broker).tls

    def find_connection(self, number: int) -> tuple[str, Wire]:
        """Client id and certificates of a run's connection; 0 is the first one."""
        if number == 0:
            return self.name, self.wire
        if broker_at(self.broker).tls:
            return sorted(self.lanes.items())[number - 1]
        return f"{self.name}:{number}", self.wire  # no node's name has a colon

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
        if not sign or not address or not (port.isascii() and port.isdigit() and len(port) < 6) or int(port) > 65535:
            raise UsageError(f"listen = {self.listen!r}, expected ADDRESS:PORT, such as 127.0.0.1:8080")
        return address.strip("[]"), int(port)
