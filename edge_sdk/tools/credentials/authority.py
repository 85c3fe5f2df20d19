"""A certificate authority in a folder of its own, made with the openssl command.

The folder holds the authority's key, its list of certificates (`index.txt`, as `openssl ca` keeps it) and a copy of
each certificate. Nothing in it is for anybody else: what nodes and the broker are given is written elsewhere. Each
certificate is good for one thing: a node's to connect (clientAuth), the broker's to be connected to (serverAuth).
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from edge_sdk.atomic import write_text
from edge_sdk.errors import UsageError

CA_DAYS, DAYS = 3650, 825
"""Days for which the authority and its certificates are good. The revocation list is good for CA_DAYS too: a broker
refuses everybody when its list has expired, and the list lies beside it, so an early end would protect nobody."""
CURVE = ("-pkeyopt", "ec_paramgen_curve:P-256")
SLOW = ("-scrypt",)
"""What makes a passphrase slow to guess: scrypt with openssl's cost."""
VARIABLE = "AUSCULT_OPENSSL_PASS"
"""Names the passphrase in the environment of the openssl process, and nowhere else."""

CONFIG = """[ca]
default_ca = site
[site]
dir = .
database = index.txt
new_certs_dir = issued
certificate = ca.crt
private_key = ca.key
crlnumber = crlnumber
default_md = sha256
default_crl_days = {ca_days}
rand_serial = yes
unique_subject = no
copy_extensions = none
policy = policy
[policy]
commonName = supplied
[client]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {alternative}
"""

Purpose = Literal["client", "server"]
HOLD = "certificateHold"
"""Reason of a revocation that may end (RFC 5280, 5.3.1)."""


@dataclass(frozen=True)
class Issued:
    """One line of the authority's list of certificates.

    Attributes:
        name: common name of its holder.
        serial: hexadecimal digits; also the name of the copy in `issued`.
        expires: when it ends by itself.
        revoked: it was taken back before, for good or until it is released.
        held: it was taken back until it is released.
    """

    name: str
    serial: str
    expires: datetime
    revoked: bool
    held: bool = False

    @property
    def state(self) -> str:
        if self.held:
            return "held"
        return "revoked" if self.revoked else "good" if self.is_good else "expired"

    @property
    def is_good(self) -> bool:
        return not self.revoked and self.expires > datetime.now(UTC)


class Authority:
    """The authority of one site.

    Args:
        folder: made by `make`.
        passphrase: asked for when the key is used for the first time, and only if it is encrypted.
    """

    def __init__(self, folder: Path, passphrase: Callable[[], str]):
        self.folder, self.ask, self.known = folder, passphrase, ""

    @property
    def exists(self) -> bool:
        return (self.folder / "ca.crt").exists()

    @property
    def due(self) -> Path:
        """File that is there while the list of what was taken back is not what it should be: a call that was killed in
        between leaves it to the next one."""
        return self.folder / "list.due"

    @property
    def is_encrypted(self) -> bool:
        return "BEGIN ENCRYPTED" in (self.folder / "ca.key").read_text()

    def make(self, name: str, passphrase: str | None) -> None:
        """Make key and certificate of an authority called `name`. `passphrase`: None leaves the key as plain text."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / "issued").mkdir(exist_ok=True)
        plain = run_openssl(self.folder, "genpkey", "-algorithm", "EC", *CURVE)
        key = plain if passphrase is None else encrypt_key(self.folder, plain, passphrase)
        write_text(self.folder / "ca.key", key)
        (self.folder / "ca.key").chmod(0o600)
        (self.folder / "index.txt").touch()
        write_text(self.folder / "crlnumber", "01\n")
        self.known = passphrase or ""
        extensions = ("basicConstraints=critical,CA:TRUE,pathlen:0", "keyUsage=critical,keyCertSign,cRLSign")
        usage = [word for extension in extensions for word in ("-addext", extension)]
        subject = ("-subj", f"/CN={name} authority", "-days", str(CA_DAYS), "-out", "ca.crt")
        self.use_key("req", "-x509", "-key", "ca.key", *subject, *usage)

    def issue(self, name: str, purpose: Purpose, into: Path, file: str, host: str = "", *ends: str) -> None:
        """Make `file`.key and `file`.crt in a folder, for a holder called `name`; old ones are replaced.

        Args:
            host: name or address of a server.
            ends: options of `openssl ca` in place of the usual DAYS.
        """
        into.mkdir(parents=True, exist_ok=True)
        key, certificate = into / f"{file}.key", into / f"{file}.crt"
        aside = into / f"{file}.key.new"
        request = ("req", "-new", "-newkey", "ec", *CURVE, "-nodes", "-keyout", str(aside), "-subj", f"/CN={name}")
        try:
            signed = self.sign(name, purpose, run_openssl(self.folder, *request), host, *ends)
        except UsageError:
            aside.unlink()
            raise
        aside.chmod(0o600)
        aside.replace(key)
        write_text(certificate, signed)

    def sign(self, name: str, purpose: Purpose, request: str, host: str = "", *ends: str) -> str:
        """Sign a request (PKCS #10, PEM) for a holder called `name`, whatever the request calls it.

        Args:
            host: name or address of a server.
            ends: options of `openssl ca` in place of the usual DAYS.

        Returns:
            The certificate, PEM.
        """
        self.configure(host)
        write_text(self.folder / "request.csr", request)
        try:
            signing = ("-batch", "-notext", "-in", "request.csr", "-subj", f"/CN={name}", "-extensions", purpose)
            return self.use_key("ca", "-config", "ca.cnf", *signing, *(ends or ("-days", str(DAYS))))
        finally:
            (self.folder / "request.csr").unlink()

    def revoke(self, name: str) -> int:
        """Take back all certificates of a holder that are good or held, for good; returns their number."""
        self.release(name)
        return self.take_back(name)

    def hold(self, name: str) -> int:
        """Take back all certificates of a holder that are good, until `release`; returns their number."""
        return self.take_back(name, "-crl_reason", HOLD)

    def take_back(self, name: str, *reason: str) -> int:
        good = [one for one in self.list_issued() if one.name == name and one.is_good]
        if good:
            self.due.touch()
        for one in good:
            self.configure()
            self.use_key("ca", "-config", "ca.cnf", "-revoke", f"issued/{one.serial}.pem", *reason, "-batch")
        return len(good)

    def release(self, name: str) -> int:
        """Let the held certificates of a holder be good again; returns their number. openssl has no command for that:
        the list of certificates says of such a one again what it said before."""
        index = self.folder / "index.txt"
        lines = index.read_text().splitlines() if index.exists() else []
        held = [line for line in lines if (one := read_index_line(line)).name == name and one.held]
        if held:
            self.due.touch()
            write_text(index, "".join(f"{to_good(line) if line in held else line}\n" for line in lines))
        return len(held)

    def write_list(self, path: Path) -> None:
        """Write the list of what was taken back (CRL, PEM)."""
        self.configure()
        self.use_key("ca", "-config", "ca.cnf", "-gencrl", "-out", "crl.pem", "-batch")
        write_text(path, (self.folder / "crl.pem").read_text())
        self.due.unlink(missing_ok=True)

    def list_issued(self) -> list[Issued]:
        """All certificates that were ever signed here, the oldest first."""
        index = self.folder / "index.txt"
        lines = index.read_text().splitlines() if index.exists() else []
        return [read_index_line(line) for line in lines]

    def configure(self, host: str = "") -> None:
        """Write the configuration that `openssl ca` reads; relative to the folder, which may be moved."""
        text = CONFIG.format(ca_days=CA_DAYS, alternative=format_alternative(host or "localhost"))
        write_text(self.folder / "ca.cnf", text)

    def use_key(self, *arguments: str) -> str:
        """Run openssl on the authority's key.

        Raises:
            UsageError: the passphrase is not the key's, or openssl fails for another reason.
        """
        if self.is_encrypted and not self.known:
            self.known = self.ask()
        given = ("-passin", f"env:{VARIABLE}") if self.is_encrypted else ()
        return run_openssl(self.folder, *arguments, *given, secret=self.known)


def read_index_line(line: str) -> Issued:
    """Read one line of `index.txt`: state, end, revocation, serial, file and subject, with tabs between them."""
    state, end, revocation, serial, _, subject = line.split("\t")
    # openssl writes the year with two digits up to 2049 and with four from 2050 on, as X.509 does
    expires = datetime.strptime(end, "%y%m%d%H%M%SZ" if len(end) == 13 else "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return Issued(
        subject.removeprefix("/CN="), serial, expires, state == "R", revocation.partition(",")[2].startswith(HOLD)
    )


def to_good(line: str) -> str:
    """A line of `index.txt` as it was before its certificate was taken back."""
    _, end, _, *rest = line.split("\t")
    return "\t".join(["V", end, "", *rest])


def encrypt_key(folder: Path, plain: str, passphrase: str) -> str:
    """A private key, encrypted with AES-256 under a passphrase that is slow to guess (PKCS #8, PEM)."""
    how = ("pkcs8", "-topk8", *SLOW, "-v2", "aes-256-cbc", "-passout", f"env:{VARIABLE}")
    return run_openssl(folder, *how, secret=passphrase, given=plain)


def checked_host(host: str) -> str:
    """A host's name or address, as it may stand in a certificate and in a configuration file.

    Raises:
        UsageError: it is neither.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        label = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        if len(host) > 253 or not re.fullmatch(rf"{label}(\.{label})*", host):
            raise UsageError(f"host = {host!r}, expected a host's name or address, without scheme and port") from None
        return host


def format_alternative(host: str) -> str:
    """An address or a name, as openssl wants it for a subjectAltName."""
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def run_openssl(folder: Path, *arguments: str, secret: str = "", given: str = "") -> str:
    """Run openssl in a folder and return what it prints. Files that it makes are for their owner alone.

    Raises:
        UsageError: there is no openssl, or it has failed; with the last line that it said.
    """
    if shutil.which("openssl") is None:
        raise UsageError("provision needs the openssl command (Debian: apt install openssl)")
    environment = {**os.environ, VARIABLE: secret}
    done = subprocess.run(
        ["openssl", *arguments],
        cwd=folder,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        umask=0o077,
    )
    if done.returncode:
        raise UsageError(explain_failure(arguments[0], done.stderr))
    return done.stdout


def explain_failure(command: str, said: str) -> str:
    """A failure of openssl in words: a wrong passphrase is by far the most frequent one."""
    if "bad decrypt" in said or "maybe wrong password" in said or "Could not read private key" in said:
        return "the passphrase is not that of the authority's key"
    lines: Sequence[str] = said.strip().splitlines() or ["no reason given"]
    return f"openssl {command} failed: {lines[-1]}"
