"""Who may be at one broker: its host and port, a hospital with its devices, an aggregator with its hospitals.

A site is remembered in `site.json`, so that a later call says only what is new.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.contract.run import RESERVED_NAMES, checked_name
from edge_sdk.errors import UsageError
from edge_sdk.tools.credentials.authority import checked_host

FORMAT = 1
PORT = 8883
TAKEN = frozenset({*RESERVED_NAMES, "aggregator", "authority", "broker", "ca", "crl", "localhost", "mosquitto", "root"})
"""Names that mean something else in topics, in files or at the broker; compared without case."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """One broker, and who may be there.

    Attributes:
        host: name or address under which nodes reach the broker; it stands in the broker's certificate.
        port: on which the broker listens.
        hospital: parent of `devices`; None: no devices come here.
        aggregator: parent of `hospitals`; None: it has another broker.
        enrolled: "PARENT/CHILD" of those whom a service has enrolled: they have made their keys themselves.
    """

    host: str
    port: int = PORT
    hospital: str | None = None
    devices: tuple[str, ...] = ()
    aggregator: str | None = None
    hospitals: tuple[str, ...] = ()
    enrolled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_host(self.host)
        if not 0 < self.port < 65536:
            raise UsageError(f"port = {self.port}, a port is between 1 and 65535")
        if self.hospital is None and self.aggregator is None:
            raise UsageError("whose broker is it? Name its --hospital with --devices, its --aggregator, or both")
        if self.devices and self.hospital is None:
            raise UsageError("--devices: name their --hospital too")
        if self.hospitals and self.aggregator is None:
            raise UsageError("--hospitals: name their --aggregator too")
        self.check_names()

    def check_names(self) -> None:
        """Raises UsageError for a name that somebody else could be taken for."""
        for what, names in (("device", self.devices), ("hospital", self.named_hospitals)):
            for name in names:
                if checked_name(name, what).lower() in {*TAKEN, self.host.lower()}:
                    raise UsageError(f"{what} = {name!r} has a meaning of its own here; choose another name")
        if self.aggregator is not None and checked_name(self.aggregator, "aggregator").lower() == self.host.lower():
            raise UsageError(f"aggregator = {self.aggregator!r} is the broker's host; choose another name")
        seen: dict[str, str] = {}
        for name in self.nodes:
            if (other := seen.setdefault(name.lower(), name)) != name or self.nodes.count(name) > 1:
                raise UsageError(f"two nodes cannot be called {name!r} and {other!r} at one broker")

    @property
    def named_hospitals(self) -> tuple[str, ...]:
        own = () if self.hospital is None else (self.hospital,)
        return tuple(dict.fromkeys((*own, *self.hospitals)))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of all who have a certificate."""
        above = () if self.aggregator is None else (self.aggregator,)
        return (*above, *self.named_hospitals, *self.devices)

    def list_pairs(self) -> Iterator[tuple[str, str]]:
        """Parent and child, of all who talk to each other here."""
        for hospital in self.named_hospitals if self.aggregator else ():
            yield str(self.aggregator), hospital
        for device in self.devices:
            yield str(self.hospital), device
        for pair in self.enrolled:
            parent, _, child = pair.partition("/")
            if child not in self.nodes:
                yield parent, child

    def is_parent(self, name: str) -> bool:
        """Is it a node without which there is no site?"""
        return name in (self.hospital, self.aggregator)

    def without(self, name: str) -> Site:
        """This site after a child has left it.

        Raises:
            UsageError: there is none of that name.
        """
        if name not in self.nodes:
            raise UsageError(f"revoke {name!r}: expected a node of this site: {', '.join(self.nodes)}")
        devices, hospitals = (tuple(n for n in names if n != name) for names in (self.devices, self.hospitals))
        return replace(self, devices=devices, hospitals=hospitals)


def combine(saved: Site | None, keep: bool = False, **given: Any) -> Site:
    """The site of a call: what is said now, and of what was said before all else.

    Args:
        keep: devices and hospitals that were named before and are not named now stay.

    Raises:
        UsageError: the call contradicts the site, or leaves out what nobody has said yet.
    """
    said = {key: value for key, value in given.items() if value is not None}
    if saved is None:
        if "host" not in said:
            raise UsageError("--host is missing: under which name or address do nodes reach the broker?")
        return make_site(said)
    for key in ("hospital", "aggregator"):
        before = getattr(saved, key)
        if before is not None and said.get(key, before) != before:
            raise UsageError(f"{key} = {said[key]!r}: this site is that of {before}; take another directory")
    for key in ("devices", "hospitals"):
        if key in said:
            said[key] = unique((*getattr(saved, key), *said[key])) if keep else said[key]
            check_list(key, getattr(saved, key), said[key])
    return make_site({**asdict(saved), **said})


def check_list(key: str, before: Iterable[str], now: Iterable[str]) -> None:
    """Raises UsageError where a list names none of those who are there. Who is left out is locked out, and such a list
    is more likely meant as an addition: all would be locked out by one word too few."""
    if (there := sorted(before)) and not set(there) & set(now):
        raise UsageError(
            f"--{key} {' '.join(now)} names none of those who are there: {', '.join(there)}. With --keep they stay, "
            "and who is named comes beside them; to end their time here, --revoke them first"
        )


def make_site(table: dict[str, Any]) -> Site:
    """A site from named values; lists may name somebody twice."""
    found: dict[str, Any] = {k: unique(v) if isinstance(v, list) else v for k, v in table.items()}
    return Site(**found)


def unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def load_site(path: Path) -> Site | None:
    """The site that a directory remembers; None: it remembers none.

    Raises:
        UsageError: the file cannot be read.
    """
    if not path.exists():
        return None
    try:
        table = json.loads(path.read_text())
        if table.pop("format") != FORMAT:
            raise UsageError(f"{path}: of another version")
        return make_site(table)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: is no site: {error}") from None


def save_site(path: Path, site: Site) -> None:
    write_text(path, json.dumps({"format": FORMAT, **asdict(site)}, indent=1) + "\n")
