"""Builds the packages of a release: wheels and sdists of `auscult`, `auscult-edge` and `auscult-native`.

    make dist                 into dist/, with the bills of materials of `make sbom`, provenance.json and SHA256SUMS
    make dist SIGN=KEY        the same, and SHA256SUMS.sig, made with this private key (signing.py)

`auscult-native` has a wheel for this processor and, where its compiler is here, one for aarch64. None is for musl, as
there is no onnxruntime that it could serve.

Each is built from the files that git knows, as they are in the working tree, and each wheel from its sdist. All is
built twice, in two places, and must come to the same bytes. Times are those of the latest commit, or SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from requirements.signing import sign, write_provenance

ROOT = Path(__file__).parent.parent
PURE = {"auscult": {"edge_sdk", "aggregator"}, "auscult-edge": {"edge_sdk"}}
"""Package of Python alone -> the names that it puts beside other people's packages."""
NATIVE = {"auscult-native": {"auscult_native"}}
CROSS = {"aarch64": "aarch64-linux-gnu-g++"}
"""Processor beside this one -> its compiler (apt install g++-aarch64-linux-gnu)."""
SOURCES = ("edge_sdk", "aggregator", "models", "hardware")
TOP_FILE = "auscult.toml"
"""Name that the pyproject.toml at the top has in the sdist of `auscult-edge`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="what is there is replaced (dist)")
    parser.add_argument("--sbom", type=Path, help="folder of bills of materials, which go beside the packages")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="private key of ssh-keygen that signs SHA256SUMS")
    parser.add_argument("--no-native", action="store_true", help="without auscult-native, which needs a C++ compiler")
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # what is installed beside us
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    names = {**PURE, **({} if options.no_native else NATIVE)}
    for made in build_twice(tuple(names), options.out):
        if made.suffix == ".whl":
            check_names(made, names[made.name.split("-")[0].replace("_", "-")])
    packages = sorted(map(str, options.out.iterdir()))
    run("twine", "check", "--strict", *packages)
    # W009 is about two names at the top; check_names has said which there may be.
    run("check-wheel-contents", "--ignore", "W009", *(path for path in packages if path.endswith(".whl")))
    for bill in sorted(options.sbom.glob("*.cdx.json")) if options.sbom else ():
        shutil.copy(bill, options.out)
    write_provenance(options.out, ROOT)
    write_sums(options.out)
    if options.sign is not None:
        sign(options.out / "SHA256SUMS", options.sign)
    report(options.out, options.sign)


def build_twice(names: tuple[str, ...], out: Path) -> list[Path]:
    """Builds all into `out`, and once more elsewhere; ends the program where the bytes differ."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "log", "-1", "--format=%ct").strip())
    with TemporaryDirectory(prefix="auscult-dist-") as one, TemporaryDirectory(prefix="again-") as two:
        for place in map(Path, (one, two)):
            stage(place)
            for name in names:
                build(name, place, place / "made")
        first, second = (sorted((Path(place) / "made").iterdir()) for place in (one, two))
        differ = [path.name for path in first if hash_of(path) not in {hash_of(other) for other in second}]
        if differ or len(first) != len(second):
            sys.exit(f"built twice, and not to the same bytes: {', '.join(differ)}")
        return [Path(shutil.copy(path, out)) for path in first]


def stage(place: Path) -> None:
    """Copies the files that git knows, without the tests, of which setuptools would take a few. Links stay links, and
    modes are those of a checkout with umask 022. Ends the program where git has not been told of a source."""
    if unknown := run("git", "ls-files", "--others", "--exclude-standard", *SOURCES).split():
        sys.exit(f"git does not know {', '.join(unknown)}: add or remove what is no part of a package")
    for name in run("git", "ls-files", "-z", ":!tests").split("\0"):
        source, copy = ROOT / name, place / name
        if name and (source.is_symlink() or source.is_file()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy, follow_symlinks=False)
            if not copy.is_symlink():
                copy.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def build(name: str, place: Path, out: Path) -> None:
    """Builds one package's sdist, and from that its wheel."""
    sources = {"auscult": place, "auscult-edge": place / "edge-sdist", "auscult-native": place / "models" / "native"}
    if name == "auscult-edge":
        stage_edge(place, sources[name])
    before = set(out.glob("*"))
    call_backend(name, "build_sdist", sources[name], out)
    [sdist] = set(out.glob("*")) - before
    settle_times(sdist)
    unpacked = place / f"{name}-unpacked"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    [folder] = unpacked.iterdir()
    for processor in ("", *(cross_processors() if name in NATIVE else ())):
        wheels = place / f"{name}-wheel{processor}"
        call_backend(name, "build_wheel", folder, wheels, processor)
        [wheel] = wheels.iterdir()
        if name in NATIVE:
            wheel = give_portable_name(wheel, place / f"{name}-repaired{processor}")
        shutil.copy(wheel, out)


def cross_processors() -> list[str]:
    """Processors beside this one for which there is a compiler here; of others it is told that they are left out."""
    others = [each for each in CROSS if each != platform.machine()]
    for each in others:
        if shutil.which(CROSS[each]) is None:
            print(f"auscult-native has no wheel for {each}: {CROSS[each]} is not installed")
    return [each for each in others if shutil.which(CROSS[each])]


def call_backend(name: str, hook: str, source: Path, out: Path, processor: str = "") -> None:
    """Builds with what is installed here (PEP 517), and without a network; for another processor if one is named."""
    out.mkdir(exist_ok=True)
    backend = "scikit_build_core.build" if name in NATIVE else "setuptools.build_meta"
    code = f"import {backend} as backend; backend.{hook}({str(out)!r})"
    target = {"SYSTEM_NAME": "Linux", "SYSTEM_PROCESSOR": processor, "CXX_COMPILER": CROSS.get(processor, "")}
    told = {
        "CMAKE_ARGS": " ".join(f"-DCMAKE_{key}={value}" for key, value in target.items()),
        "_PYTHON_HOST_PLATFORM": f"linux-{processor}",  # which the wheel's name is made of
    }
    run(sys.executable, "-c", code, folder=source, more=told if processor else {})


def stage_edge(place: Path, edge: Path) -> None:
    """Lays out the sdist of `auscult-edge`, whose setup.py takes everything from the top of a checkout otherwise."""
    shutil.copytree(place / "hardware" / "provision" / "edge", edge)
    shutil.copytree(place / "edge_sdk", edge / "edge_sdk")
    shutil.copy(place / "pyproject.toml", edge / TOP_FILE)
    (edge / "MANIFEST.in").write_text(f"include {TOP_FILE} README.md\n")


def give_portable_name(wheel: Path, folder: Path) -> Path:
    """The same wheel for every Linux that has what it needs (manylinux), or as it is, which is told."""
    if shutil.which("auditwheel") is None:
        print(f"{wheel.name}: auditwheel is not installed, so this wheel is for Linux as it is here")
        return wheel
    run("auditwheel", "repair", "--wheel-dir", str(folder), str(wheel))
    [found] = folder.iterdir()
    return found


def settle_times(sdist: Path) -> None:
    """Writes an sdist again, in order, with one time and without owners: setuptools notes when and by whom."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    found: list[tuple[tarfile.TarInfo, bytes | None]] = []
    with tarfile.open(sdist) as archive:
        for member in sorted(archive.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            content = archive.extractfile(member)
            found.append((member, None if content is None else content.read()))
    with (
        sdist.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member, data in found:
            archive.addfile(member, None if data is None else io.BytesIO(data))


def check_names(wheel: Path, allowed: set[str]) -> None:
    """Ends the program where a wheel would put another name beside other people's packages."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    if others := {name for name in names - allowed if not name.endswith((".dist-info", ".libs"))}:
        sys.exit(f"{wheel.name}: {', '.join(sorted(others))}: only {', '.join(sorted(allowed))} should be in it")


def write_sums(out: Path) -> None:
    """Writes SHA256SUMS, in the form of sha256sum."""
    (out / "SHA256SUMS").write_text("".join(f"{hash_of(path)}  {path.name}\n" for path in sorted(out.iterdir())))


def report(out: Path, key: Path | None) -> None:
    """Prints each file with its size, and whether they are signed."""
    made = sorted(out.iterdir())
    for path in made:
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path.name}")
    signed = "not signed (SIGN=KEY)" if key is None else f"signed with {key.name}"
    print(f"{len(made)} files in {out}; every package was built twice, to the same bytes; {signed}")


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(*words: str, folder: Path = ROOT, more: Mapping[str, str] | None = None) -> str:
    """Runs a program and returns what it prints; ends this one where it fails. `more`: variables of its environment."""
    own = {**os.environ, **(more or {})}
    done = subprocess.run(words, cwd=folder, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
