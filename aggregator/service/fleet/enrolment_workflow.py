"""What enrolment does: requests of nodes and decisions of people, carried through to certificates, broker and rosters.

What is decided is committed first. Then the certificates of who is removed are taken back, the broker is told, the list
of keys for secret sums is written, and the hospital hears its new list of devices. A kill in between is put right by
`bring_up`, at each start of the service.
"""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path
from typing import Any

from aggregator.service.administration.certificates import Office, check_request, check_signature, checked_mask_key
from aggregator.service.administration.mask_keys import MaskDesk
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.administration.signing import public_key_pem
from aggregator.service.database.database import Row
from aggregator.service.fleet.enrolment import (
    APPROVED,
    BARRED,
    DEVICE,
    ENDED,
    HOURS,
    REPLACE,
    STEPS,
    Enrolment,
    TokenRefusedError,
)
from aggregator.service.fleet.monitor import Monitor
from aggregator.service.fleet.pending_changes import describe_waiting
from aggregator.service.models.registry import Registry
from aggregator.service.runs.runs import RUNNING, list_runs
from edge_sdk.errors import UsageError


class EnrolmentDesk:
    """The desk of one service: the only way in which its fleet changes."""

    def __init__(self, file: FleetFile, enrolment: Enrolment, office: Office, monitor: Monitor, registry: Registry):
        self.file, self.enrolment, self.office = file, enrolment, office
        self.monitor, self.registry, self.masks = monitor, registry, MaskDesk(file)
        self.telling = threading.Lock()

    def bring_up(self) -> None:
        """Carry through what a kill may have interrupted."""
        for row in self.enrolment.list_all():
            if row["state"] in ENDED:
                self.office.revoke(row["name"])
        self.tell_all()

    def tell_all(self) -> None:
        """Tells runs and the broker who is a member now. Who reads the list writes it before another one reads it: else
        an older list could be written last, and let somebody in who was removed."""
        with self.telling:
            approved = self.enrolment.list_all(APPROVED)
            self.masks.write_list(row for row in approved if row["kind"] == DEVICE)
            self.office.tell_broker((row["parent"] or self.file.name, row["name"]) for row in approved)

    # -- people

    def make_token(
        self, who: str, hospital: str = "", name: str = "", hours: float = HOURS, approved: bool = False
    ) -> str:
        """A one-time token, with the fingerprint of the authority behind it; see `Enrolment.make_token`."""
        return f"{self.enrolment.make_token(who, hospital, name, hours, approved)}.{self.office.pin()}"

    def decide(self, name: str, action: str, who: str) -> dict[str, Any]:
        """Let a person decide about a node.

        Returns:
            The node as it is then, "waits": sentences about runs under way that it does not change and, where the node
            is to be replaced, "token" for the new one.
        """
        row = self.enrolment.change(name, action, who)
        if row["state"] in ENDED:
            self.office.revoke(name)
        self.tell_all()
        if row["kind"] == DEVICE:
            self.monitor.tell_roster(row["parent"])
        found = describe_node(row)
        changes_fleet = row["state"] in (APPROVED, *BARRED)
        found["waits"] = describe_waiting(row, list_runs(self.enrolment.database, RUNNING)) if changes_fleet else []
        if action == REPLACE:
            found["token"] = self.make_token(who, row["parent"], name, approved=True)
        return found

    # -- nodes

    def ask(self, table: dict[str, Any]) -> dict[str, Any]:
        """A node asks to be enrolled, with a token and a certificate request.

        Raises:
            UsageError: something in it cannot be used.
        """
        name, request = text_in(table, "name"), text_in(table, "request")
        key, mask_key = check_request(request, name), checked_mask_key(str(table.get("mask_key") or ""))
        token, claim = text_in(table, "token").partition(".")[0], checked_claim(text_in(table, "claim"))
        row = self.enrolment.take_request(name, token, claim, request, key, mask_key)
        if row["state"] == APPROVED:
            self.tell_all()
            self.monitor.tell_roster(row["parent"])
        return {"state": row["state"], "kind": row["kind"], "hospital": row["parent"]}

    def fetch(self, table: dict[str, Any]) -> dict[str, Any]:
        """Tells a node how its request stands and, once it is approved, all that it needs."""
        row = self.enrolment.find_claimed(text_in(table, "name"), text_in(table, "claim"))
        found: dict[str, Any] = {"state": row["state"], "kind": row["kind"], "hospital": row["parent"]}
        if row["state"] != APPROVED:
            return found
        if not row["certificate"]:
            certificate, ends = self.office.sign(row["name"], row["request"])
            self.enrolment.note_certificate(row["name"], certificate, ends, row["key"])
            row |= {"certificate": certificate, "ends": ends}
        bundle = self.registry.find()
        found |= {"certificate": row["certificate"], "ca": self.office.ca, "broker": self.file.broker}
        found |= {"aggregator": self.file.name, "trusted_key": read_operator_key(self.file.directory)}
        found |= {"aggregator_mask_key": self.masks.public_key(), "mask_key": row["mask_key"]}
        with self.registry.path_of().open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return found | {"bundle": {"name": bundle["name"], "sha256": digest}}

    def find_bundle(self, table: dict[str, Any]) -> Path:
        """File of the model that an approved node needs. Raises TokenRefusedError if it is not approved."""
        row = self.enrolment.find_claimed(text_in(table, "name"), text_in(table, "claim"))
        if row["state"] != APPROVED:
            raise TokenRefusedError(f"{row['name']} is {row['state']}")
        return self.registry.path_of()

    def renew(self, table: dict[str, Any]) -> dict[str, Any]:
        """A new certificate for a node that signs its request with the key of the present one.

        Anybody may ask this, so how it stands with a name is told to its holder only.

        Raises:
            UsageError: it does not, or is no member any more, or its certificate has ended.
        """
        name, request = text_in(table, "name"), text_in(table, "request")
        key, row = check_request(request, name), self.enrolment.find(name)
        is_same = row is not None and bool(row["certificate"]) and key == row["key"]  # our answer was lost
        if not is_same:
            check_holder(row, request, text_in(table, "signature"))
        assert row is not None
        if row["state"] != APPROVED:
            raise TokenRefusedError(f"{name} is {row['state']}, so its certificate is not renewed")
        if not is_same:
            if row["ends"] < time.time():
                raise TokenRefusedError(f"the certificate of {name} has ended; it enrols anew, with a token")
            certificate, ends = self.office.sign(name, request)
            self.enrolment.note_certificate(name, certificate, ends, key)
            row |= {"certificate": certificate}
        return {"certificate": row["certificate"], "ca": self.office.ca}


def check_holder(row: Row | None, request: str, signature: str) -> None:
    """Checks that a request is signed with the key of a node's certificate. Raises TokenRefusedError, in the same words
    for a name that there is not: whoever asks under one learns nothing of it."""
    try:
        if row is None or not row["certificate"]:
            raise UsageError("there is no certificate")
        check_signature(row["certificate"], request.encode(), signature)
    except UsageError:
        raise TokenRefusedError(
            "the request for renewal is not signed with the key of the present certificate (ECDSA with SHA-256); who "
            "has none any more enrols anew, with a token"
        ) from None


def text_in(table: dict[str, Any], key: str) -> str:
    """A text of a request. Raises UsageError if there is none."""
    found = table.get(key)
    if not isinstance(found, str) or not found:
        raise UsageError(f"{key} is missing: a text")
    return found


def checked_claim(claim: str) -> str:
    """A claim that nobody guesses. Raises UsageError if it is too short."""
    if len(claim) < 32:
        raise UsageError("claim: expected 32 characters or more, at random")
    return claim


def describe_node(row: Row) -> dict[str, Any]:
    """A member, or who wants to be one, as JSON has it."""
    found = {key: row[key] for key in ("name", "kind", "state", "ends", "asked", "decided", "by", "mask_key")}
    return found | {"hospital": row["parent"], "key": row["key"][:16]}


def read_operator_key(directory: Path) -> str:
    """The operator's public key, with which runs and models are signed, PEM."""
    return public_key_pem(directory).decode()


def choices_for(row: Row) -> list[str]:
    """What a person can do with a node, as the console's buttons have it."""
    return [action for (state, action) in STEPS if state == row["state"]]
