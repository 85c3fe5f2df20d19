"""The office of a fleet: checks certificate requests, lets the authority sign them, and tells the broker who may come.

The authority is that of `auscult provision`, in the folder that the settings name, or one of the service's own where
they name none. Its broker's access list and list of revoked certificates follow what the database says; they are
written anew as a whole, so whatever was interrupted is put right the next time, and at each start of the service.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import subprocess
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from edge_sdk.errors import UsageError, say_reason
from edge_sdk.nodes.secrets.mask_keys import KEY, is_public_key
from edge_sdk.tools.credentials.passphrase import read_passphrase
from edge_sdk.tools.credentials.provision import Provisioner

log = logging.getLogger("auscult.service")
SITE = "site"
"""Folder of the authority in the service's directory, where the settings name no other."""
LONGEST = 20_000  # characters of a request
PATIENCE = 20.0  # seconds for the command that tells the broker
SAID = 200  # characters of what that command says
MAY_COME = "who was removed may still come"


@dataclass(frozen=True, kw_only=True)
class Enrolling:
    """The [enrolment] table of a service's settings.

    Attributes:
        site: directory that `auscult provision` has made for the broker; None: the service keeps an authority of its
            own, whose certificates no broker asks for.
        reload: command after which the broker reads its access list and its list of revoked certificates again.
    """

    site: Path | None = None
    reload: tuple[str, ...] = ()


class Office:
    """The office of one service.

    Args:
        directory: of the service.

    Attributes:
        trouble: why the broker could not be told at the latest try; "": it was told.

    Raises:
        UsageError: the settings name a site that is none.
    """

    def __init__(self, how: Enrolling, directory: Path, fleet: str):
        self.how, self.fleet, self.lock, self.trouble = how, fleet, threading.Lock(), ""
        self.provisioner = Provisioner(how.site or directory / SITE, lambda new: read_passphrase(None, new))
        if how.site is not None and self.provisioner.saved is None:
            raise UsageError(f"enrolment.site = {str(how.site)!r}: auscult provision has made no site there")

    def open_authority(self) -> None:
        """Make the service's own authority, where there is none yet. Raises UsageError without openssl."""
        if not self.provisioner.authority.exists:
            self.provisioner.authority.make(self.fleet, None)

    @property
    def ca(self) -> str:
        """Certificate of the authority, PEM."""
        with self.lock:
            self.open_authority()
        return (self.provisioner.places.authority / "ca.crt").read_text()

    def pin(self) -> str:
        """Fingerprint of the authority, as tokens carry it: a node that has the token knows whom to believe."""
        return pin_of(self.ca)

    def sign(self, name: str, request: str) -> tuple[str, float]:
        """Sign a checked request for a node of that name.

        Returns:
            (its certificate in PEM, when that ends as Unix time).
        """
        with self.lock:
            self.open_authority()
            certificate = self.provisioner.authority.sign(name, "client", request)
        return certificate, x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc.timestamp()

    def revoke(self, name: str) -> None:
        """Take back all certificates of a node that has enrolled. Nothing, where it has none, or where the name is by
        now that of a node that was made by hand: its certificate was never the other's."""
        site = self.provisioner.saved
        with self.lock:
            if self.provisioner.authority.exists and (site is None or name not in site.nodes):
                self.provisioner.authority.revoke(name)

    def tell_broker(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Write who may come to the broker, and let it read that.

        Args:
            pairs: parent and child of all who are approved.
        """
        site = self.provisioner.saved
        if self.how.site is None or site is None:
            return
        with self.lock:
            enrolled = tuple(sorted(f"{parent}/{child}" for parent, child in pairs))
            try:
                self.provisioner.admit(replace(site, enrolled=enrolled))
            except OSError as error:  # what was decided stays, and is told at the next change or start
                folder = Path(error.filename).parent if error.filename else self.how.site
                return self.note_trouble(f"enrolment.site: {folder}: {say_reason(error)}")
        self.note_trouble("")
        self.reload_broker()

    def note_trouble(self, said: str) -> None:
        """Note why the broker could not be told, or, with "", that it was."""
        self.trouble = f"{said}; {MAY_COME}" if said else ""
        if said:
            log.error("the broker was not told who may come: %s", self.trouble)

    def reload_broker(self) -> None:
        if not self.how.reload:
            return
        said = ""
        try:
            ended = subprocess.run(self.how.reload, timeout=PATIENCE, capture_output=True, text=True, errors="replace")
            if ended.returncode:
                said = f"exit code {ended.returncode}: {(ended.stderr or ended.stdout).strip()[-SAID:]}"
        except (OSError, subprocess.SubprocessError) as error:
            said = say_reason(error)
        self.note_trouble(said and f"enrolment.reload = {self.how.reload[0]!r} ...: {said}")


def pin_of(ca: str) -> str:
    """Beginning of the sha256 of a certificate in PEM."""
    return x509.load_pem_x509_certificate(ca.encode()).fingerprint(hashes.SHA256()).hex()[:32]


def check_request(text: str, name: str) -> str:
    """Checks a certificate request, and returns the sha256 of its public key.

    Raises:
        UsageError: it is none, is not signed by its own key, is for another name, or its key is weak.
    """
    try:
        request = x509.load_pem_x509_csr(text[:LONGEST].encode())
        names = [str(a.value) for a in request.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        good, key = request.is_signature_valid, request.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise UsageError(f"request: is no certificate request in PEM ({error})") from None
    if not good:
        raise UsageError("request: is not signed by its own key")
    if names != [name]:
        raise UsageError(f"request: is for {', '.join(names) or 'nobody'}, expected {name}")
    strong = isinstance(key, (ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey)) or (
        isinstance(key, rsa.RSAPublicKey) and key.key_size >= 2048
    )
    if not strong or (isinstance(key, ec.EllipticCurvePublicKey) and key.key_size < 256):
        raise UsageError("request: its key is weak; expected one on an elliptic curve of 256 bits or more")
    return hash_public_key(key)


def hash_public_key(key: Any) -> str:
    plain = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(plain).hexdigest()


def check_signature(certificate: str, data: bytes, signature: str) -> None:
    """Checks that the holder of a certificate has signed some data (ECDSA with SHA-256; base64).

    Raises:
        UsageError: it has not, or the certificate has ended.
    """
    holder = x509.load_pem_x509_certificate(certificate.encode())
    key = holder.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise UsageError("the certificate's key is on no elliptic curve; enrol anew, with a token")
        key.verify(base64.b64decode(signature, validate=True), data, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, binascii.Error, ValueError):
        raise UsageError("the request for renewal is not signed with the key of the present certificate") from None


def checked_mask_key(text: str) -> str:
    """A public key of X25519 in base64, or "". Raises UsageError if it is neither."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise UsageError(f"mask_key: expected {KEY} bytes in base64: {error}") from None
    if text and len(key) != KEY:
        raise UsageError(f"mask_key: expected {KEY} bytes in base64, got {len(key)}")
    if text and not is_public_key(key):
        raise UsageError("mask_key: no public key of X25519")
    return text
