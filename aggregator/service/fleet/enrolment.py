"""Who belongs to the fleet: one-time tokens, requests, and what people decide about hospitals and devices.

    token ──> waiting ──approve──> approved <──approve── suspended
                │                     │  └────suspend────────^
                deny ──> denied       ├── remove ──> removed
                                      └── replace ─> lost        its certificates are taken back, its name is free for
                                                                 who brings the new token

A token is random, works once, ends by itself, and is kept as its hash. So is the claim, by which a node that has asked
proves later that it is the one that asked. What is decided is in the database before anything follows from it: the
certificates (administration/certificates.py), the access list of the broker, and the lists of devices that
hospitals are told (rosters.py).
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable, Mapping

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from aggregator.service.administration.accounts import ID_DIGITS, draw_key, hash_key
from aggregator.service.database import audit
from aggregator.service.database.database import Database, Row, tables
from aggregator.service.database.database import invitations as tokens
from aggregator.service.runs.runs import NotFoundError, NotPossibleError
from edge_sdk.contract.run import checked_name
from edge_sdk.errors import UsageError
from edge_sdk.tools.credentials.site import TAKEN

WAITING, APPROVED, DENIED, SUSPENDED, REMOVED, LOST = "waiting", "approved", "denied", "suspended", "removed", "lost"
APPROVE, DENY, SUSPEND, REMOVE, REPLACE = "approve", "deny", "suspend", "remove", "replace"
STEPS: Mapping[tuple[str, str], str] = {
    (WAITING, APPROVE): APPROVED,
    (WAITING, DENY): DENIED,
    (APPROVED, SUSPEND): SUSPENDED,
    (SUSPENDED, APPROVE): APPROVED,
    **{(state, REMOVE): REMOVED for state in (APPROVED, SUSPENDED, LOST)},
    **{(state, REPLACE): LOST for state in (APPROVED, SUSPENDED, LOST)},
}
"""(state, what a person does) -> the state then; nothing else is possible."""
ENDED = (DENIED, REMOVED, LOST)
"""States from which a name may ask anew, with another token."""
BARRED = (SUSPENDED, REMOVED, LOST)
"""States of hospitals that may take part in no run. Who only asks, or was denied, bars nobody: the settings may name a
hospital that came in without enrolling, and whoever holds a token can ask under its name."""
HOSPITAL, DEVICE = "hospital", "device"
HOURS = 24.0  # until a token ends

nodes = sql.Table(
    "nodes",
    tables,
    sql.Column("name", sql.String(64), primary_key=True),
    sql.Column("kind", sql.String(16), nullable=False),  # hospital or device
    sql.Column("parent", sql.String(64), nullable=False),  # of a device: its hospital
    sql.Column("state", sql.String(16), nullable=False),
    sql.Column("claim", sql.String(64), nullable=False),  # hash of what proves that it is the one that asked
    sql.Column("request", sql.Text, nullable=False),  # PEM (PKCS #10)
    sql.Column("key", sql.String(64), nullable=False),  # sha256 of its public key
    sql.Column("certificate", sql.Text, nullable=False, default=""),  # PEM; empty until it is fetched
    sql.Column("ends", sql.Float),  # when the certificate does
    sql.Column("mask_key", sql.String(64), nullable=False, default=""),  # X25519, base64
    sql.Column("asked", sql.Float, nullable=False),
    sql.Column("decided", sql.Float),
    sql.Column("by", sql.String(64), nullable=False, default=""),
)


class TokenRefusedError(UsageError):
    """A token that is none, has been used, or has ended; or a claim that is not that of the name."""


class Enrolment:
    """The members of one fleet, and those who want to be.

    Args:
        list_taken: kind -> names that no node of that kind may enrol under, because they are those of nodes that came
            in another way. A certificate of such a name would be good for speaking in that node's place.
    """

    def __init__(self, database: Database, fleet: str, list_taken: Callable[[str], Iterable[str]]):
        self.database, self.fleet, self.list_taken = database, fleet, list_taken

    # -- tokens

    def make_token(
        self, who: str, hospital: str = "", name: str = "", hours: float = HOURS, approved: bool = False
    ) -> str:
        """Makes a one-time token and returns it: it is kept nowhere.

        Args:
            hospital: of the device that it is for; "": it is for a hospital.
            name: only for a node of this name; "": for any.
            approved: who brings it is approved at once.

        Raises:
            UsageError: a name cannot be used.
        """
        if hospital:
            checked_name(hospital, "hospital")
        if name:
            self.check_name(name, DEVICE if hospital else HOSPITAL)
        if not 0 < hours <= 24 * 365:
            raise UsageError(f"hours = {hours}: above 0, and at most a year")
        token, now = draw_key(24), time.time()
        row = {"kind": DEVICE if hospital else HOSPITAL, "parent": hospital, "name": name, "approved": approved}
        with self.database.transaction() as t:
            t.execute(tokens.delete().where(tokens.c.expires < now - 30 * 86400.0))
            t.execute(
                tokens.insert().values(
                    hash=hash_key(token), by=who, created=now, expires=now + hours * 3600.0, used="", **row
                )
            )
            audit.note(t, who, "enrol.token", name or hospital or "a hospital", hours=hours, **row)
        return token

    def list_tokens(self) -> list[Row]:
        """Tokens that somebody can still enrol with, those that end first before the others."""
        columns = [tokens.c[key] for key in ("hash", "kind", "parent", "name", "approved", "by", "created", "expires")]
        query = sql.select(*columns).where(is_open(), tokens.c.expires > time.time()).order_by(tokens.c.expires)
        return [{"id": row.pop("hash")[:ID_DIGITS], **row} for row in self.database.read(query)]

    def revoke_token(self, id: str, who: str) -> None:
        """Ends a token that nobody has used. Raises NotFoundError if there is none of that id."""
        with self.database.transaction() as t:
            rows = t.execute(sql.select(tokens).where(is_open())).mappings()
            found = next((row for row in rows if row["hash"][:ID_DIGITS] == id), None)
            if found is None:
                raise NotFoundError(f"id = {id[:40]!r}: there is no open invitation of that id")
            t.execute(tokens.delete().where(tokens.c.hash == found["hash"]))
            audit.note(t, who, "enrol.revoke", found["name"] or found["parent"] or "a hospital", id=id)

    def check_name(self, name: str, kind: str) -> None:
        """Raises UsageError for a name that somebody else could be taken for."""
        checked_name(name, "name")
        if name.lower() in {taken.lower() for taken in self.list_taken(kind)}:
            raise UsageError(f"name = {name!r} is another node's already; choose another")
        fleet, lower = self.fleet.lower(), name.lower()
        if lower in {*TAKEN, fleet, f"{fleet}-console"} or lower.startswith(f"{fleet}-run-"):
            raise UsageError(f"name = {name!r} has a meaning of its own here; choose another")

    # -- what a node asks

    def take_request(self, name: str, token: str, claim: str, request: str, key: str, mask_key: str = "") -> Row:
        """Take a node's request, and use its token up. The same request once more is answered in the same way.

        Args:
            request: a certificate request that was checked.
            key: sha256 of its public key.

        Raises:
            TokenRefusedError: the token is not good, or not for this node.
            NotPossibleError: there is a node of that name already.
            UsageError: the name cannot be used.
        """
        with self.database.transaction() as t:
            found, given = find_row(t, name), find_token(t, token)
            self.check_name(name, given["kind"])
            if found is not None and given["used"] == name and hmac.compare_digest(found["claim"], hash_key(claim)):
                return found  # our answer was lost
            check_token(given, name)
            if found is not None and found["state"] not in ENDED:
                raise NotPossibleError(
                    f"name = {name!r}: there is such a {found['kind']} already, and it is {found['state']}; "
                    "take another name, or let `auscult fleet replace` set this one free"
                )
            row = {"kind": given["kind"], "parent": given["parent"], "claim": hash_key(claim), "request": request}
            row |= {"state": APPROVED if given["approved"] else WAITING, "key": key, "mask_key": mask_key}
            row |= {"certificate": "", "ends": None, "asked": time.time(), "decided": None, "by": ""}
            if given["approved"]:
                row |= {"decided": time.time(), "by": given["by"]}
            t.execute(nodes.delete().where(nodes.c.name == name))
            t.execute(nodes.insert().values(name=name, **row))
            t.execute(tokens.update().where(tokens.c.hash == given["hash"]).values(used=name))
            audit.note(t, name, "enrol.ask", name, kind=row["kind"], hospital=row["parent"], state=row["state"])
        return {"name": name, **row}

    def find_claimed(self, name: str, claim: str) -> Row:
        """The row of a node that proves to be the one that asked. Raises TokenRefusedError if it does not."""
        rows = self.database.read(sql.select(nodes).where(nodes.c.name == name))
        if not rows or not hmac.compare_digest(rows[0]["claim"], hash_key(claim)):
            raise TokenRefusedError(f"{name!r}: nobody of that name has asked with this claim")
        return rows[0]

    def note_certificate(self, name: str, certificate: str, ends: float, key: str) -> None:
        """Note what was issued to a node; `key`: sha256 of the public key in it."""
        with self.database.transaction() as t:
            t.execute(nodes.update().where(nodes.c.name == name).values(certificate=certificate, ends=ends, key=key))
            audit.note(t, self.fleet, "enrol.certificate", name, key=key[:16])

    # -- what people decide

    def change(self, name: str, action: str, who: str) -> Row:
        """Lets a person decide about a node, and returns its row as it is then.

        Raises:
            NotPossibleError: there is no such node, or that is not possible from where it stands.
            UsageError: the name is another node's by now.
        """
        with self.database.transaction() as t:
            found = find_row(t, name)
            if found is None:
                raise NotFoundError(f"{name!r}: nobody of that name has asked to be enrolled")
            if (after := STEPS.get((found["state"], action))) is None:
                possible = sorted(a for state, a in STEPS if state == found["state"]) or ["nothing but asking anew"]
                raise NotPossibleError(f"{name} is {found['state']}; possible: {', '.join(possible)}")
            if action == APPROVE:
                self.check_name(name, found["kind"])  # who was made by hand since it asked has the name now
            changes = {"state": after, "decided": time.time(), "by": who}
            if after in ENDED:
                changes |= {"certificate": "", "ends": None, "mask_key": ""}
            t.execute(nodes.update().where(nodes.c.name == name).values(**changes))
            if action != APPROVE:  # what it was invited with before is no way back
                t.execute(tokens.delete().where(is_open(), tokens.c.name == name))
            audit.note(t, who, f"enrol.{action}", name, before=found["state"], hospital=found["parent"])
        return {**found, **changes}

    # -- what others ask

    def list_all(self, state: str = "") -> list[Row]:
        """All nodes by name; `state`: only those."""
        query = sql.select(nodes).order_by(nodes.c.name)
        return self.database.read(query if not state else query.where(nodes.c.state == state))

    def find(self, name: str) -> Row | None:
        return next(iter(self.database.read(sql.select(nodes).where(nodes.c.name == name))), None)

    def list_devices(self, hospital: str) -> tuple[str, ...]:
        """Names of the devices that belong to a hospital now."""
        query = sql.select(nodes.c.name).where(
            nodes.c.parent == hospital, nodes.c.kind == DEVICE, nodes.c.state == APPROVED
        )
        return tuple(sorted(str(row["name"]) for row in self.database.read(query)))

    def list_barred(self) -> frozenset[str]:
        """Names of hospitals that may take part in no run."""
        query = sql.select(nodes.c.name).where(nodes.c.kind == HOSPITAL, nodes.c.state.in_(BARRED))
        return frozenset(str(row["name"]) for row in self.database.read(query))


def is_open() -> sql.ColumnElement[bool]:
    """Which tokens nobody has used."""
    return tokens.c.used == ""


def find_row(t: Connection, name: str) -> Row | None:
    found = t.execute(sql.select(nodes).where(nodes.c.name == name)).mappings().first()
    return None if found is None else dict(found)


def find_token(t: Connection, token: str) -> Row:
    """The row of a token. Raises TokenRefusedError if there is none."""
    found = t.execute(sql.select(tokens).where(tokens.c.hash == hash_key(token))).mappings().first()
    if found is None:
        raise TokenRefusedError("this token is none of this service's")
    return dict(found)


def check_token(given: Row, name: str) -> None:
    """Raises TokenRefusedError if a token cannot be used by a node of this name now."""
    if given["used"]:
        raise TokenRefusedError("this token has been used; ask for another one")
    if given["expires"] < time.time():
        raise TokenRefusedError("this token has ended; ask for another one")
    if given["name"] not in ("", name):
        raise TokenRefusedError(f"this token is for {given['name']}, not for {name}")
