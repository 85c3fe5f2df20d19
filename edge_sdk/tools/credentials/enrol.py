"""`auscult enrol`: this machine becomes a device or a hospital of a fleet, with a token and nothing copied by hand.

The key is made here and stays here. What the service is asked is noted in enrolment.json before it is asked, so that
the command can be interrupted at any moment and typed again: the same request has the same answer.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edge_sdk.atomic import make_private_directory, replace_file, write_text
from edge_sdk.contract.run import checked_name
from edge_sdk.errors import AuscultError, UsageError, say_reason
from edge_sdk.tools.credentials.certificates import load_certificate
from edge_sdk.tools.credentials.enrolled_files import digest_of, write_settings
from edge_sdk.tools.credentials.mask_papers import AGGREGATOR
from edge_sdk.tools.credentials.no_redirects import NoRedirects
from edge_sdk.tools.credentials.own_key import complete_pair, find_key_tool, replace_pair
from edge_sdk.wire.addresses import is_this_machine

NOTE = "enrolment.json"
TIMEOUT, EVERY = 30.0, 2.0  # seconds for an answer; between two questions whether somebody has decided
LARGEST, LARGEST_ANSWER = 2**30, 2**24  # bytes of a bundle, and of another answer


class NotEnrolledError(AuscultError):
    """The service does not take this node, or cannot be reached."""


@dataclass(frozen=True)
class Desk:
    """Where a node enrols.

    Args:
        url: of the service's console.
        ca: file of the authority that has signed for that, where it is none that this machine knows.
        insecure: plain HTTP may leave this machine.

    Raises:
        UsageError: the token would travel as plain text.
    """

    url: str
    ca: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--at {self.url!r}: expected the address of a service, such as https://fleet.example")
        if not (parts.scheme == "https" or self.insecure or is_this_machine(parts.hostname)):
            raise UsageError(
                f"--at {self.url}: the token would leave this machine as plain text; use https:// or, where the "
                "network is trusted, --insecure"
            )

    def as_note(self) -> dict[str, Any]:
        """Describes how the service is reached, for a later call."""
        return {"at": self.url, "at_ca": str(Path(self.ca).resolve()) if self.ca else "", "insecure": self.insecure}

    def open(self, what: str, table: dict[str, Any]) -> Any:
        """Ask the service. Raises NotEnrolledError with what it says, if it does not do it."""
        heads = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/enrol/v1/{what}", json.dumps(table).encode(), heads)
        handlers: list[Any] = [NoRedirects]
        if self.url.startswith("https"):
            context = ssl.create_default_context(cafile=self.ca or None)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        try:
            return urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            with error:
                raise NotEnrolledError(read_error(error)) from None
        except (OSError, http.client.HTTPException) as error:
            raise NotEnrolledError(f"{self.url}: cannot be reached: {say_reason(error)}") from None

    def ask(self, what: str, table: dict[str, Any]) -> dict[str, Any]:
        with self.open(what, table) as answer:
            try:
                found = json.loads(read_whole(answer))
            except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
                raise NotEnrolledError(f"{self.url}: what it answers is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise NotEnrolledError(f"{self.url}: what it answers is no JSON object")
        return found


def read_whole(answer: Any) -> bytes:
    """The bytes of an answer. Raises ValueError if they are more than there is room for."""
    found: bytes = answer.read(LARGEST_ANSWER + 1)
    if len(found) > LARGEST_ANSWER:
        raise ValueError(f"more than {LARGEST_ANSWER} bytes")
    return found


def read_error(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(read_whole(error))["error"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, http.client.HTTPException):
        return f"{error.url}: HTTP {error.code}"


@dataclass
class Applicant:
    """A node that enrols, in a folder of its own.

    Args:
        folder: for its key, certificate, model and settings.
    """

    name: str
    folder: Path

    def __post_init__(self) -> None:
        checked_name(self.name, "name")

    @property
    def note(self) -> dict[str, Any]:
        """What was noted of an earlier call; empty where there was none."""
        try:
            found = json.loads((self.folder / NOTE).read_text())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise UsageError(f"{self.folder / NOTE}: cannot be read: {error}") from None
        return dict(found)

    def begin(self, desk: Desk, token: str, mask_key: str = "") -> dict[str, Any]:
        """Make the keys, and ask for a certificate.

        Args:
            mask_key: public half of a key for secret sums that is there already; "": one is made with each new token,
                so that whoever takes a device's place has another key than that.

        Returns:
            What the service says: "state" and "kind".

        Raises:
            UsageError: the folder is another node's.
            NotEnrolledError: the service does not take the token.
        """
        make_private_directory(self.folder, mark=NOTE)
        note, tool, key = self.note, find_key_tool(), self.folder / f"{self.name}.key"
        if note and note.get("name") != self.name:
            raise UsageError(f"{self.folder} is the folder of {note.get('name')}; name another with --folder")
        if note.get("token") != token or not key.exists():
            if not key.exists():
                tool.make_key(key)
            mask_key = mask_key or tool.make_mask_key(self.folder / f"{self.name}.mask.key")
            note = {"name": self.name, **desk.as_note(), "claim": secrets.token_urlsafe(32), "token": token}
            note |= {"request": tool.make_request(key, self.name), "mask_key": mask_key}
            write_text(self.folder / NOTE, json.dumps(note, indent=1) + "\n")
        return desk.ask("request", {key: note[key] for key in ("name", "token", "claim", "request", "mask_key")})

    def wait(self, desk: Desk, seconds: float) -> dict[str, Any]:
        """What an approved node is given, once somebody has approved it.

        Raises:
            NotEnrolledError: it was denied, or nobody has decided within that time.
        """
        end, note = time.monotonic() + seconds, self.note
        while True:
            found = desk.ask("state", {"name": self.name, "claim": note["claim"]})
            if found["state"] == "approved":
                return found
            if found["state"] != "waiting":
                raise NotEnrolledError(f"{self.name} is {found['state']}")
            if time.monotonic() > end:
                raise NotEnrolledError(
                    f"{self.name} waits for approval: auscult fleet approve {self.name}, or the console's page "
                    "Enrolment; then type this command again"
                )
            time.sleep(EVERY)

    def take(self, desk: Desk, given: dict[str, Any], trace: Path | None) -> Path:
        """Write all that was given, and return the settings file.

        Raises:
            NotEnrolledError: the authority is not the one that the token names, or the model is not what was promised.
        """
        pin, note = str(self.note["token"]).partition(".")[2], self.note
        if not pin or not find_key_tool().fingerprint(given["ca"]).startswith(pin):
            raise NotEnrolledError("the authority is not the one that the token names: somebody may be in between")
        bundle = self.folder / f"{checked_name(given['bundle']['name'], 'bundle')}.bundle"
        if not bundle.exists() or digest_of(bundle) != given["bundle"]["sha256"]:
            self.load_bundle(desk, {"name": self.name, "claim": note["claim"]}, bundle, given["bundle"]["sha256"])
        write_text(self.folder / "ca.crt", given["ca"])
        write_text(self.folder / f"{self.name}.crt", given["certificate"])
        write_text(self.folder / "trusted.pem", given["trusted_key"])
        if public := given.get("aggregator_mask_key"):
            write_text(self.folder / AGGREGATOR, f"{given['aggregator']} {public}\n")
        return write_settings(self.folder, self.name, given, bundle.name, trace)

    def load_bundle(self, desk: Desk, who: dict[str, str], path: Path, sha256: str) -> None:
        """Load the model. A file takes its place only if it is what was promised."""
        with desk.open("bundle", who) as answer, replace_file(path) as file:
            left, digest = LARGEST, hashlib.sha256()
            while block := answer.read(2**16):
                left -= len(block)
                if left < 0:
                    raise NotEnrolledError(f"the model has more than {LARGEST} bytes")
                file.write(block)
                digest.update(block)
            if (found := digest.hexdigest()) != sha256:
                raise NotEnrolledError(f"the model is not what was promised: sha256 {found[:12]}, not {sha256[:12]}")

    def renew(self, desk: Desk, before: float) -> float | None:
        """Get a new certificate for a new key, in the name of the present one.

        Args:
            before: days before the end of the present certificate from which on it is renewed.

        Returns:
            Days for which the new one is good; None: the present one is good for longer than `before`.
        """
        complete_pair(self.folder, self.name)
        present = load_certificate(self.folder / f"{self.name}.crt")
        if present.days_left() > before:
            return None
        tool, key, fresh = find_key_tool(), self.folder / f"{self.name}.key", self.folder / f"{self.name}.key.next"
        if not fresh.exists():
            tool.make_key(fresh)
        request = tool.make_request(fresh, self.name)
        signed = {"name": self.name, "request": request, "signature": tool.sign(key, request.encode())}
        replace_pair(self.folder, self.name, desk.ask("renew", signed)["certificate"])
        return load_certificate(self.folder / f"{self.name}.crt").days_left()
