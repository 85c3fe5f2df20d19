"""Who may use the console, and what: people with passwords, tokens for programs, sessions of browsers.

A session's cookie and a token are random and kept as their sha256 only, passwords as argon2id. Roles contain each
other: a viewer reads; an operator also starts and stops runs and promotes models; an approver also approves what
somebody else has asked for, where two people are needed; an admin also says who may do what.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sql
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy.engine import Connection

from aggregator.service.administration.wrong_passwords import WrongPasswords
from aggregator.service.database import audit
from aggregator.service.database.database import Database, Row, about, invitations, keys, people
from aggregator.service.database.problems import NotFoundError, NotPossibleError
from edge_sdk.contract.run import ID, checked_name
from edge_sdk.errors import UsageError

VIEWER, OPERATOR, APPROVER, ADMIN = "viewer", "operator", "approver", "admin"
ROLES = (VIEWER, OPERATOR, APPROVER, ADMIN)
"""Each may do what those before it may."""
SESSION, TOKEN, BROWSER = "session", "token", "browser"
"""Kinds of keys. That of a browser opens nothing: it proves that somebody has signed in there."""
SUBJECT = "sub "
"""How keys of the table `about` begin that say who came with which name from a provider."""
SESSION_SECONDS, BROWSER_SECONDS, TOKEN_DAYS = 12 * 3600.0, 90 * 86400.0, 365.0
LONGEST_DAYS = 3660.0
SCOPES = (
    "status",
    "runs",
    "fleet",
    "models",
    "schedules",
    "rollouts",
    "enrolment",
    "metrics",
    "audit",
    "people",
    "tokens",
)
"""Parts of the API, by the beginnings of their paths, that a token may be for."""
SHORTEST = 10  # characters of a password
ID_DIGITS = 16  # of a token's hash, by which people call it


@dataclass(frozen=True)
class Somebody:
    """Who makes a request.

    Attributes:
        csrf: what a form of this session must bring; "": it is a program with a token, which no browser sends.
        scopes: parts of the API that a token is for, such as "runs"; empty: for everything that its role may.
    """

    name: str
    role: str
    csrf: str = ""
    scopes: tuple[str, ...] = ()

    def may(self, role: str) -> bool:
        """Somebody of this role may do it; may this one?"""
        return ROLES.index(self.role) >= ROLES.index(role)


class SignInError(UsageError):
    """A name and a password that do not go together, or too many of them."""


class People:
    """The people and tokens of one service."""

    def __init__(self, database: Database):
        self.database, self.hasher = database, PasswordHasher()
        self.wrong, self.decoy = WrongPasswords(), ""

    def list_all(self) -> list[Row]:
        return self.database.read(sql.select(people.c.name, people.c.role, people.c.created).order_by(people.c.name))

    def list_with_sessions(self) -> list[Row]:
        """Who may use the console, with the number of their sessions; also whom a provider has signed in."""
        columns = keys.c.name, keys.c.role, keys.c.created
        sessions = self.database.read(
            sql.select(*columns).where(keys.c.kind == SESSION, keys.c.expires > time.time()).order_by(keys.c.created)
        )
        names = [row["name"] for row in sessions]
        found = {row["name"]: row for row in [*sessions, *self.list_all()]}
        return [{**found[name], "sessions": names.count(name)} for name in sorted(found)]

    def add(self, name: str, role: str, password: str, who: str) -> str:
        """Adds somebody, or gives somebody another role and password; their sessions end, and so do tokens of this name
        that may more than the role, and invitations to the fleet where it may make none.

        Returns:
            The role before; "": it is somebody new.

        Raises:
            UsageError: the name, role or password cannot be used.
        """
        checked_name(name, "name")
        if role not in ROLES:
            raise UsageError(f"role = {role!r}, expected {', '.join(ROLES[:-1])} or {ROLES[-1]}")
        if len(password) < SHORTEST:
            raise UsageError(f"a password has at least {SHORTEST} characters")
        values = {"role": role, "password": self.hasher.hash(password)}
        with self.database.transaction() as t:
            before = t.execute(sql.select(people.c.role).where(people.c.name == name)).scalar() or ""
            if not t.execute(people.update().where(people.c.name == name).values(**values)).rowcount:
                t.execute(people.insert().values(name=name, created=time.time(), **values))
            more = ROLES[ROLES.index(role) + 1 :]
            its = keys.c.kind == SESSION, (keys.c.kind == TOKEN) & keys.c.role.in_(more)
            t.execute(keys.delete().where(keys.c.name == name, sql.or_(*its)))
            if OPERATOR in more:
                end_invitations(t, name)
            audit.note(t, who, "people.add", name, role=role, **({"before": before} if before else {}))
        return before

    def remove(self, name: str, who: str, keep_admin: bool = False) -> None:
        """Removes somebody, with all sessions, tokens, and invitations to the fleet that nobody has used.

        Args:
            keep_admin: not the last one who may say who may do what.

        Raises:
            UsageError: there is nobody of that name, or nobody else could undo it.
        """
        with self.database.transaction() as t:
            others = sql.select(sql.func.count()).where(people.c.role == ADMIN, people.c.name != name)
            is_here = sql.select(people.c.name).where(people.c.name == name)
            if keep_admin and t.execute(is_here).first() and not t.execute(others).scalar_one():
                raise NotPossibleError(f"{name} is the last {ADMIN}: add another one first, on the service's machine")
            gone = t.execute(people.delete().where(people.c.name == name)).rowcount
            gone += t.execute(about.delete().where(about.c.key.startswith(SUBJECT), about.c.value == name)).rowcount
            if not (t.execute(keys.delete().where(keys.c.name == name)).rowcount or gone):
                raise NotFoundError(f"name = {name!r}: there is nobody of that name")
            end_invitations(t, name)
            audit.note(t, who, "people.remove", name)

    def sign_in(self, name: str, password: str, address: str = "", browser: str = "") -> tuple[str, str]:
        """Checks a password. May be called from several threads.

        Args:
            address: from where it comes.
            browser: the key that this browser was given when somebody signed in there before, or "".

        Returns:
            Cookie of a new session, and the key that the browser keeps.

        Raises:
            SignInError: they do not go together, or that was tried too often from there.
        """
        name = name if ID.fullmatch(name) else ""  # nobody's
        known = self.find_key(browser, BROWSER) if browser else None
        proof = hash_key(browser) if known is not None and known.name == name else ""
        if self.wrong.must_wait(name, address, proof):
            raise SignInError("too many wrong passwords for this name from here; wait five minutes")
        self.decoy = self.decoy or self.hasher.hash(secrets.token_urlsafe())
        found = self.database.read(sql.select(people).where(people.c.name == name))
        try:  # as long for a name that is not there, so that nobody learns which ones are
            self.hasher.verify(found[0]["password"] if found else self.decoy, password)
        except (VerificationError, InvalidHashError):
            found = []
        if not found:
            self.wrong.note(name, address, proof)
            raise SignInError("this name and this password do not go together")
        self.wrong.forget(name, address, proof)
        role = found[0]["role"]
        browser = browser if proof else self.make_key(BROWSER, name, role, BROWSER_SECONDS, name)
        session = self.make_session(name, role, address)
        if self.database.read(sql.select(people).where(people.c.name == name)) != found:  # changed meanwhile
            self.end_key(session)
            raise SignInError("this name and this password do not go together")
        return session, browser

    def know(self, subject: str, name: str) -> str:
        """The name here of somebody whom a provider has signed in: the one with which they came first.

        Names at a provider may be changed, by oneself too, and given to somebody else; here who has asked for something
        and who approves it are told apart by them.

        Args:
            subject: what the provider calls somebody, for ever.

        Raises:
            SignInError: somebody else came with this name.
        """
        key = SUBJECT + hash_key(subject)[:36]
        with self.database.transaction() as t:
            first = t.execute(sql.select(about.c.value).where(about.c.key == key)).scalar()
            if first is not None:
                return str(first)
            its = about.c.key.startswith(SUBJECT), about.c.value == name
            if t.execute(sql.select(about.c.key).where(*its)).first() is not None:
                raise SignInError(f"{name} was somebody else at the provider: an admin has to remove that one first")
            t.execute(about.insert().values(key=key, value=name))
        return name

    def make_session(self, name: str, role: str, address: str) -> str:
        """Makes a session for somebody who has signed in from an address; returns its cookie, which is kept nowhere."""
        return self.make_key(SESSION, name, role, SESSION_SECONDS, name, address=address)

    def make_key(
        self, kind: str, name: str, role: str, seconds: float, who: str, scopes: Sequence[str] = (), address: str = ""
    ) -> str:
        """Makes a session or a token, and returns it: it is kept nowhere. `address`: from where, for the audit log.

        Raises:
            UsageError: it would not last, or has a scope that there is not.
        """
        if wrong := {*scopes} - {*SCOPES}:
            raise UsageError(f"scope = {min(wrong)!r}, expected some of {', '.join(SCOPES)}")
        if not 0.0 < seconds <= LONGEST_DAYS * 86400:
            raise UsageError(f"days = {seconds / 86400:g}: expected more than 0 and at most {LONGEST_DAYS:g}")
        key, now = draw_key(), time.time()
        row = {"hash": hash_key(key), "kind": kind, "name": name, "role": role, "csrf": secrets.token_urlsafe(24)}
        row["scopes"] = ",".join(scopes)
        with self.database.transaction() as t:
            t.execute(keys.delete().where(keys.c.expires < now))
            t.execute(keys.insert().values(**row, created=now, expires=now + seconds))
            if kind != BROWSER:
                more = {"scopes": list(scopes), "address": address}
                audit.note(t, who, f"{kind}.make", name, role=role, **{k: v for k, v in more.items() if v})
        return key

    def find_key(self, key: str, kind: str) -> Somebody | None:
        """Whose session or token this is; None: nobody's, or no longer."""
        query = sql.select(keys).where(keys.c.hash == hash_key(key), keys.c.kind == kind, keys.c.expires > time.time())
        for row in self.database.read(query):
            scopes = tuple(filter(None, row["scopes"].split(",")))
            return Somebody(row["name"], row["role"], row["csrf"] if kind == SESSION else "", scopes)
        return None

    def end_tokens(self, name: str) -> None:
        """Ends all tokens of one name."""
        with self.database.transaction() as t:
            t.execute(keys.delete().where(keys.c.name == name, keys.c.kind == TOKEN))

    def list_tokens(self) -> list[Row]:
        """Tokens that are good now, those that end first before the others; what a token is itself, nobody keeps."""
        columns = (keys.c.hash, keys.c.name, keys.c.role, keys.c.scopes, keys.c.created, keys.c.expires)
        query = sql.select(*columns).where(keys.c.kind == TOKEN, keys.c.expires > time.time())
        rows = self.database.read(query.order_by(keys.c.expires))
        return [{"id": row.pop("hash")[:ID_DIGITS], **row} for row in rows]

    def revoke_token(self, id: str, who: str) -> None:
        """Ends a token, with the invitations to the fleet that were made under its name since it was: whoever it has
        leaked to may have made them. Raises UsageError if there is none of that id."""
        with self.database.transaction() as t:
            rows = t.execute(sql.select(keys).where(keys.c.kind == TOKEN)).mappings()
            token = next((row for row in rows if row["hash"][:ID_DIGITS] == id), None)
            if token is None:
                raise NotFoundError(f"id = {id[:40]!r}: there is no token of that id")
            t.execute(keys.delete().where(keys.c.hash == token["hash"]))
            gone = end_invitations(t, token["name"], token["created"])
            audit.note(t, who, "token.revoke", token["name"], id=id, **({"invitations": gone} if gone else {}))

    def end_key(self, key: str) -> None:
        """Ends a session. Nothing, where there is none."""
        with self.database.transaction() as t:
            its = keys.c.hash == hash_key(key), keys.c.kind == SESSION
            name = t.execute(sql.select(keys.c.name).where(*its)).scalar()
            if name is not None:
                t.execute(keys.delete().where(*its))
                audit.note(t, name, "session.end", name)

    def has(self, name: str) -> bool:
        """True if somebody of that name signs in with a password here."""
        known = sql.select(people.c.name).where(people.c.name == name)
        return bool(ID.fullmatch(name) and self.database.read(known))


def end_invitations(t: Connection, name: str, since: float = 0.0) -> int:
    """Ends invitations to the fleet that somebody has made and nobody has used; returns how many."""
    its = invitations.c.by == name, invitations.c.used == "", invitations.c.created >= since
    return int(t.execute(invitations.delete().where(*its)).rowcount)


def draw_key(count: int = 32) -> str:
    """A random key of `count` bytes, as letters, digits, `-` and `_`. It never begins with `-`: behind `--token` a
    command would read it as another option.
    """
    while (key := secrets.token_urlsafe(count)).startswith("-"):
        pass
    return key


def hash_key(key: str) -> str:
    """What is kept of a session's cookie or of a token. It is random, so a quick hash is enough."""
    return hashlib.sha256(key.encode()).hexdigest()
