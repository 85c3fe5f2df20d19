"""Native products, compiled for aarch64 on this machine, in the emulated one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hardware.aarch64.machine import REPOSITORY, Aarch64, run_quietly

COMPILER = "aarch64-linux-gnu-g++"
SOURCE = REPOSITORY / "models" / "native"
BUNDLES = sorted((REPOSITORY / "models" / "shipped").glob("*.bundle"))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, its library cross-compiled."""
    for program, debian in ((COMPILER, "g++-aarch64-linux-gnu"), ("cmake", "cmake")):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt install {debian})")
    build, site = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("native")
    target = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_CXX_COMPILER={COMPILER}"]
    run_quietly(["cmake", "-S", SOURCE, "-B", build, *target])
    run_quietly(["cmake", "--build", build])
    run_quietly(["cmake", "--install", build, "--prefix", site])
    shutil.copy(SOURCE / "auscult_native" / "__init__.py", site / "auscult_native")
    return site


def test_products_are_right_and_bundles_use_them(aarch64: Aarch64, package: Path) -> None:
    command = aarch64.command(Path(__file__).with_name("check_native.py"), *BUNDLES)
    environment = aarch64.environment | {"PYTHONPATH": f"{aarch64.site}:{package}", "AUSCULT_NATIVE": "1"}
    done = subprocess.run(command, env=environment, cwd=aarch64.site, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["machine"] == "aarch64" and found["library"].endswith(", neon")
    assert set(found["kernels"].values()) == {"native"} and found["auto"] != "native"  # NEON is not measured
    assert found["products"] == 2000
