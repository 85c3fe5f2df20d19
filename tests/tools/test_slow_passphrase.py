"""How slowly the passphrase of an authority is guessed: in a process of its own, since others are quick in tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.tools.credentials import authority

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
ENCRYPT = """
import pathlib, sys
from edge_sdk.tools.credentials.authority import encrypt_key
print(encrypt_key(pathlib.Path(), sys.stdin.read(), "correct horse"))
"""


def costs(key: str) -> list[int]:
    """Rows, their size, and how often, of a key that scrypt has encrypted."""
    shown = subprocess.run(["openssl", "asn1parse"], input=key, capture_output=True, check=True, text=True).stdout
    assert ":scrypt" in shown and ":aes-256-cbc" in shown
    return [int(found, 16) for found in re.findall(r"INTEGER +:([0-9A-F]+)", shown)[:3]]


def test_a_guess_takes_as_much_memory_as_openssl_wants() -> None:
    plain = subprocess.run(["openssl", "genpkey", "-algorithm", "ED25519"], capture_output=True, check=True).stdout
    made = subprocess.run([sys.executable, "-c", ENCRYPT], input=plain, capture_output=True, check=True)
    rows, size, often = costs(made.stdout.decode())
    assert 128 * rows * size * often >= 2**24  # bytes


def test_an_authority_encrypts_its_key_as_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUSCULT_CA_PASSPHRASE", "correct horse")
    monkeypatch.setattr(authority, "SLOW", ("-scrypt", "-scrypt_N", "64"))
    assert main(["provision", str(tmp_path), "--hospital", "h", "--host", "broker.example", "--devices", "a"]) == 0
    (key,) = tmp_path.rglob("ca.key")
    assert costs(key.read_text())[0] == 64
