"""A node's own key: made where it is used, and never sent. With the openssl command, or else with `cryptography`.

Both make a key on the curve P-256 as PKCS #8, and a certificate request (PKCS #10) that names the node.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Protocol

from edge_sdk.atomic import write_bytes, write_text
from edge_sdk.errors import UsageError

CURVE = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


class KeyTool(Protocol):
    """What makes keys, requests and signatures."""

    def make_key(self, path: Path) -> None:
        """Make a private key in a file that is its owner's alone."""
        ...

    def make_request(self, key: Path, name: str) -> str:
        """A certificate request for a node of that name, PEM."""
        ...

    def sign(self, key: Path, data: bytes) -> str:
        """Signature of some data, ECDSA with SHA-256, base64."""
        ...

    def fingerprint(self, certificate: str) -> str:
        """sha256 of a certificate in PEM, hexadecimal digits."""
        ...

    def make_mask_key(self, path: Path) -> str:
        """Make a private key for secret sums (X25519) in a file that is its owner's alone.

        Returns:
            Its public half, base64.
        """
        ...


def find_key_tool() -> KeyTool:
    """What this machine has for keys. Raises UsageError if it has nothing."""
    if shutil.which("openssl") is not None:
        return OpensslTool()
    if importlib.util.find_spec("cryptography") is not None:
        return LibraryTool()
    raise UsageError(
        "enrol makes this node's key, and needs the openssl command (Debian: apt install openssl) or the library "
        "cryptography (pip install cryptography) for that: both are missing here"
    )


class OpensslTool:
    """The openssl command."""

    def make_key(self, path: Path) -> None:
        write_bytes(path, self.run("genpkey", *CURVE))

    def make_request(self, key: Path, name: str) -> str:
        return self.run("req", "-new", "-key", str(key), "-subj", f"/CN={name}").decode()

    def sign(self, key: Path, data: bytes) -> str:
        return base64.b64encode(self.run("dgst", "-sha256", "-sign", str(key), given=data)).decode()

    def fingerprint(self, certificate: str) -> str:
        said = self.run("x509", "-noout", "-fingerprint", "-sha256", given=certificate.encode()).decode()
        return said.partition("=")[2].strip().replace(":", "").lower()

    def make_mask_key(self, path: Path) -> str:
        write_bytes(path, self.run("genpkey", "-algorithm", "X25519"))
        path.chmod(0o600)
        found = self.run("pkey", "-in", str(path), "-pubout", "-outform", "DER")
        return base64.b64encode(found[-32:]).decode()  # the key is the end of its DER (RFC 8410)

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        """What openssl prints. Raises UsageError if it fails."""
        done = subprocess.run(["openssl", *arguments], input=given, capture_output=True, umask=0o077, env=os.environ)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise UsageError(f"openssl {arguments[0]} failed: {lines[-1]}")
        return done.stdout


class LibraryTool:
    """The library `cryptography`."""

    def make_key(self, path: Path) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        how = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        write_bytes(path, key.private_bytes(serialization.Encoding.PEM, *how))

    def make_request(self, key: Path, name: str) -> str:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
        return builder.sign(self.load(key), hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, key: Path, data: bytes) -> str:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        return base64.b64encode(self.load(key).sign(data, ec.ECDSA(hashes.SHA256()))).decode()

    def fingerprint(self, certificate: str) -> str:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        return x509.load_pem_x509_certificate(certificate.encode()).fingerprint(hashes.SHA256()).hex()

    def make_mask_key(self, path: Path) -> str:
        from edge_sdk.nodes.secrets.mask_keys import make_key

        return make_key(path)

    def load(self, path: Path):  # type: ignore[no-untyped-def]
        """A private key on an elliptic curve. Raises UsageError if the file has none."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UsageError(f"{path}: is no key on an elliptic curve")
        return key


def replace_pair(folder: Path, name: str, certificate: str) -> None:
    """Let NAME.key.next and a certificate for it take the places of the present two.

    The certificate is written aside first, so that after a kill between the two renames `complete_pair` ends what was
    begun.
    """
    write_text(folder / f"{name}.crt.next", certificate)
    complete_pair(folder, name)


def complete_pair(folder: Path, name: str) -> None:
    """End a replacement that was begun. Nothing, where none was."""
    certificate, key = folder / f"{name}.crt.next", folder / f"{name}.key.next"
    if certificate.exists():
        if key.exists():
            key.replace(folder / f"{name}.key")
        certificate.replace(folder / f"{name}.crt")
