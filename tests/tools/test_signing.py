"""Signatures and provenance of a release: what was signed is found as it was, and whatever has changed is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from requirements.dist import write_sums
from requirements.signing import check, hash_of, sign, write_provenance

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


def make_key(folder: Path, name: str) -> Path:
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", key], check=True)
    return key


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A folder with two packages that are signed with the key beside it."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in ("auscult-1.0-py3-none-any.whl", "auscult-1.0.tar.gz"):
        (folder / name).write_text(name)
    write_sums(folder)
    sign(folder / "SHA256SUMS", make_key(tmp_path, "key"))
    return folder


def test_what_was_signed_is_found_as_it_was(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(signed, signed.parent / "key.pub")
    assert "2 files" in capsys.readouterr().out
    command = [sys.executable, "requirements/signing.py", str(signed), str(signed.parent / "key.pub")]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_other_bytes_files_keys_and_uses_are_refused(signed: Path) -> None:
    public, other = signed.parent / "key.pub", make_key(signed.parent, "other")
    with pytest.raises(SystemExit, match=r"is not signed with .*other\.pub"):
        check(signed, Path(f"{other}.pub"))
    (signed / "more.whl").write_text("")
    with pytest.raises(SystemExit, match=r"more\.whl: not both here and in SHA256SUMS"):
        check(signed, public)
    (signed / "more.whl").unlink()
    (signed / "auscult-1.0.tar.gz").write_text("changed")
    with pytest.raises(SystemExit, match=r"auscult-1\.0\.tar\.gz: other bytes than were signed"):
        check(signed, public)
    write_sums(signed)
    with pytest.raises(SystemExit, match="is not signed with"):
        check(signed, public)
    for_mail = ["ssh-keygen", "-q", "-Y", "sign", "-n", "mail", "-f", signed.parent / "key", signed / "SHA256SUMS"]
    (signed / "SHA256SUMS.sig").unlink()
    subprocess.run(for_mail, check=True)
    with pytest.raises(SystemExit, match="is not signed with"):
        check(signed, public)


def test_a_key_that_is_none_ends_the_release(signed: Path) -> None:
    (signed.parent / "torn").write_text("no key")
    with pytest.raises(SystemExit, match="torn does not sign"):
        sign(signed / "SHA256SUMS", signed.parent / "torn")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout")
def test_the_provenance_names_each_package_and_the_commit(signed: Path) -> None:
    write_provenance(signed, ROOT)
    found = json.loads((signed / "provenance.json").read_text())
    packages = [path for path in sorted(signed.iterdir()) if path.suffix in (".whl", ".gz")]
    assert [(one["name"], one["digest"]["sha256"]) for one in found["subject"]] == [
        (path.name, hash_of(path)) for path in packages
    ]
    [source] = found["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert len(source["digest"]["gitCommit"]) == 40
