"""Provisioning: scripts and units as their own tools find them, an installation into a folder, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "hardware" / "provision"
SCRIPTS, UNITS = sorted(FOLDER.glob("*.sh")), sorted(FOLDER.glob("*.service"))


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    done = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing(unit: Path, tmp_path: Path) -> None:
    """As an instance, with a program that is there in place of the one that is not installed here."""
    text = unit.read_text()
    assert text.count("/opt/auscult/bin/python3 ") == 1
    instance = tmp_path / unit.name.replace("@", "@watch-7")
    instance.write_text(text.replace("/opt/auscult/bin/python3 ", f"{shutil.which('true')} "))
    done = subprocess.run(["systemd-analyze", "verify", instance], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


PIP = """
import sys, sysconfig, zipfile
assert sys.argv[1:5] == ["install", "--quiet", "--no-index", "--find-links"] and sys.prefix != sys.base_prefix
zipfile.ZipFile(sys.argv[-1]).extractall(sysconfig.get_path("purelib"))
"""
"""As much of pip as is used here: the real one takes ten seconds to start from its wheel (tests/hardware/aarch64)."""


def make_kit(folder: Path, body: str = "") -> Path:
    """A folder as collect.sh makes it, with a package that is hardly one, so that nothing is downloaded."""
    kit = folder / "kit"
    (kit / "wheels").mkdir(parents=True)
    for file in (*UNITS, FOLDER / "install.sh"):
        shutil.copy(file, kit)
    with zipfile.ZipFile(kit / "wheels" / "pip-0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/__main__.py", PIP)
    with zipfile.ZipFile(kit / "wheels" / "auscult_edge-0.0.1-py3-none-any.whl", "w") as wheel:
        about = "auscult_edge-0.0.1.dist-info"
        wheel.writestr("edge_sdk/__init__.py", "")
        wheel.writestr("edge_sdk/cli.py", body)
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: auscult-edge\nVersion: 0.0.1\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return kit


def install(kit: Path, root: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(kit / "install.sh"), *map(str, words)]
    environment = {**os.environ, "ROOT": str(root), "PYTHON": sys.executable}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_image_is_prepared_and_prepared_again(tmp_path: Path) -> None:
    kit, root, settings = make_kit(tmp_path), tmp_path / "image", tmp_path / "watch-7.toml"
    settings.write_text('name = "watch-7"\n')
    for _ in range(2):
        done = install(kit, root, "device", settings)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("systemctl enable --now auscult-device@watch-7\n")
        kept = root / "var/lib/auscult/watch-7"
        kept.mkdir(exist_ok=True)  # which the second installation leaves alone
    assert sorted(path.name for path in (root / "opt").iterdir()) == ["auscult"]
    [site] = (root / "opt/auscult/lib").glob("python*/site-packages")
    assert (site / "edge_sdk/cli.py").exists()
    assert str(root) not in (root / "opt/auscult/pyvenv.cfg").read_text()
    assert (root / "etc/auscult/watch-7.toml").read_text() == settings.read_text()
    assert (root / "etc/auscult/watch-7.toml").stat().st_mode & 0o777 == 0o640
    assert {path.name for path in (root / "etc/systemd/system").iterdir()} == {unit.name for unit in UNITS}


def test_programs_that_do_not_start_replace_none(tmp_path: Path) -> None:
    settings, root = tmp_path / "watch-7.toml", tmp_path / "image"
    settings.write_text("")
    assert install(make_kit(tmp_path / "good"), root, "device", settings).returncode == 0
    before = sorted((root / "opt/auscult").rglob("*.py"))
    done = install(make_kit(tmp_path / "bad", "raise SystemExit(3)"), root, "device", settings)
    assert done.returncode == 1 and "the installed programs do not start" in done.stderr
    assert sorted((root / "opt/auscult").rglob("*.py")) == before


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "expected: device FILE.toml"),
        (["watch", "x.toml"], "watch: expected device, hospital or --broker"),
        (["device", "missing.toml"], "missing.toml: no such settings file"),
        (["device", "settings"], "a settings file is called NAME.toml"),
        (["device", "a b.toml"], "a b: letters, digits"),
        (["--broker", "nowhere"], "nowhere: no folder that auscult provision certs has written"),
    ],
)
def test_what_cannot_be_installed_is_said_before_anything_is_written(
    words: list[str], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("settings", "a b.toml"):
        (tmp_path / name).write_text("")
    done = install(make_kit(tmp_path), tmp_path / "image", *words)
    assert done.returncode == 1 and fault in done.stderr and not (tmp_path / "image").exists()


def test_a_kit_without_wheels_is_refused(tmp_path: Path) -> None:
    kit = make_kit(tmp_path)
    shutil.rmtree(kit / "wheels")
    (tmp_path / "a.toml").write_text("")
    done = install(kit, tmp_path / "image", "device", tmp_path / "a.toml")
    assert done.returncode == 1 and "collect.sh makes that folder" in done.stderr
