"""The install script with the real wheels, for an image of Debian arm64: the installed device is in health."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.hardware.aarch64.machine import EMULATOR, PROCESSOR, REPOSITORY, Aarch64, find_python, run_quietly

PROVISION = REPOSITORY / "hardware" / "provision"
BUNDLE = REPOSITORY / "models" / "shipped" / "wrist.bundle"


def make_kit(aarch64: Aarch64, folder: Path) -> Path:
    """A folder as collect.sh makes it, of the wheels that are there already."""
    shutil.copytree(aarch64.directory / "wheels", folder / "wheels")
    for file in (*PROVISION.glob("*.service"), PROVISION / "install.sh"):
        shutil.copy(file, folder)
    [auscult] = aarch64.site.parent.glob("auscult_edge-*.whl")
    shutil.copy(auscult, folder / "wheels")
    run_quietly([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder / "wheels", "pip"])
    return folder


def test_a_device_is_installed_from_a_folder_and_is_in_health(aarch64: Aarch64, tmp_path: Path) -> None:
    root, image = aarch64.directory / "root", tmp_path / "image"
    shutil.copytree(root, image, symlinks=True)
    kit, settings = make_kit(aarch64, tmp_path / "kit"), tmp_path / "watch-7.toml"
    settings.write_text('name = "watch-7"\n')
    run = [EMULATOR, "-cpu", PROCESSOR, "-L", str(image)]
    python = find_python(image)
    environment = {**os.environ, "ROOT": str(image), "RUN": " ".join(run), "PYTHON": str(python)}
    done = subprocess.run(
        ["sh", kit / "install.sh", "device", settings], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "systemctl enable --now auscult-device@watch-7" in done.stdout
    [site] = (image / "opt/auscult/lib").glob("python3.*/site-packages")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    words = [*run, python, "-m", "edge_sdk.cli", "doctor", "--json", "--bundle", BUNDLE, "--directory", tmp_path]
    health = subprocess.run(
        list(map(str, words)),
        env=kept | {"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert health.returncode == 0, health.stdout + health.stderr
    found = {one["what"]: one for one in json.loads(health.stdout)}
    assert found["bundle"]["good"] is True and "aarch64" in found["machine"]["detail"]
