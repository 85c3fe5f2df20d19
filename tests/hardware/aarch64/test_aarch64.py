"""A device as a process of an emulated aarch64 processor: installed, examined, compared, and in a run with x86 ones.

`make test-aarch64` makes what is needed and runs this with its numbers shown. What emulation cannot tell: speed, and
how a real core rounds where it fuses other instructions than the emulator does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.data.traces.read import read_trace
from edge_sdk.model.model import Model
from tests.hardware.aarch64.machine import REPOSITORY, Aarch64
from tests.hardware.sensors.test_iio import lay_buffer, scan

BUNDLES = sorted((REPOSITORY / "models" / "shipped").glob("*.bundle"))
BUDGET = {"numpy", "onnxruntime", "paho-mqtt", "msgpack"}
OF_ONNXRUNTIME = {"flatbuffers", "packaging", "protobuf"}
CLOSE = 1e-5
"""Relative distance of vectors that are computed in float32 in another order; what is seen is printed."""


def test_only_the_four_packages_of_a_device_are_installed(aarch64: Aarch64) -> None:
    names = {found.metadata["Name"].lower() for found in distributions(path=[str(aarch64.site)])}
    assert names == {"auscult-edge"} | BUDGET | OF_ONNXRUNTIME
    [library] = (aarch64.site / "onnxruntime" / "capi").glob("onnxruntime_pybind11_state*.so")
    assert library.read_bytes()[18:20] == b"\xb7\x00"  # e_machine of the ELF header: aarch64


def test_the_doctor_finds_a_raspberry_in_good_health(aarch64: Aarch64, tmp_path: Path) -> None:
    done = aarch64.run("-m", "edge_sdk.cli", "doctor", "--json", "--bundle", BUNDLES[-1], "--directory", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {one["what"]: one for one in json.loads(done.stdout)}
    assert found["onnxruntime"]["good"] is True and found["bundle"]["good"] is True
    assert "aarch64" in found["machine"]["detail"]


def test_golden_vectors_of_all_shipped_bundles_and_how_far_the_processors_are_apart(aarch64: Aarch64) -> None:
    script = Path(__file__).with_name("compute_bundles.py")
    done = aarch64.run(script, *BUNDLES)
    assert done.returncode == 0, done.stderr
    emulated = json.loads(done.stdout)
    own = json.loads(subprocess.run([sys.executable, script, *BUNDLES], capture_output=True, check=True).stdout)
    assert emulated["machine"] == "aarch64" != own["machine"]
    print(f"\n{'bundle':<32}{'output':>10}{'loss':>10}{'gradient':>10}   relative to {own['machine']}; s a step")
    for name, here in own["bundles"].items():
        there = emulated["bundles"][name]
        apart = {key: distance(here[key], there[key]) for key in ("output", "loss", "gradient")}
        print(f"{name:<32}" + "".join(f"{value:>10.1e}" for value in apart.values()) + f"{there['seconds']:>10.3f}")
        assert max(apart.values()) < CLOSE, (name, apart)
        assert all(np.isfinite(there["gradient"]))


def distance(one: Any, other: Any) -> float:
    """Relative Euclidean distance of two vectors."""
    a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
    assert a.shape == b.shape
    return float(np.linalg.norm(a - b) / np.linalg.norm(a))


def test_the_board_is_recognised_and_measured(aarch64: Aarch64) -> None:
    done = aarch64.run("-m", "edge_sdk.cli", "board", BUNDLES[-1], "--json", "--samples", 8, "--memory", 500)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["board"]["profile"]["key"] == "raspberry-pi-4"
    assert "/proc/cpuinfo says" in shown["board"]["reason"]
    assert shown["calibration"]["chosen"]["batch"] == 8 and shown["calibration"]["forecast"]["joules"] > 0


def test_a_bundle_is_inspected(aarch64: Aarch64) -> None:
    done = aarch64.run("-m", "edge_sdk.cli", "bundle", "inspect", BUNDLES[-1])
    assert done.returncode == 0, done.stderr
    assert "a training step" in done.stdout


def test_an_accelerometer_is_recorded(aarch64: Aarch64, tmp_path: Path) -> None:
    """The buffer of a fake device, whose bytes come through a FIFO, read by the aarch64 process."""
    lay_buffer(tmp_path)
    out = tmp_path / "out"
    words = ["record", "iio:lis3dh_accel,rate=32", out, "--label", "walk", "--root", tmp_path]
    command = aarch64.command("-m", "edge_sdk.cli", *words)
    process = subprocess.Popen(
        command, env=aarch64.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with open(tmp_path / "dev/iio:device0", "wb", buffering=0) as kernel:  # waits until the process has opened it
        kernel.write(b"".join(scan(n, -n, 2 * n, 10**18 + 31_250_000 * n) for n in range(64)))
    said, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert b"64 samples" in said
    trace = read_trace(out / "lis3dh_accel.csv")
    assert trace.classes == ("walk",) and trace.rate_hz == pytest.approx(32)
    assert trace.values[7] == pytest.approx((0.12, -0.02, 0.19))


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_shipped_bundles_are_whole_here_too(bundle: Path) -> None:
    """The same check on this processor, so that a failure above is the other processor's."""
    Model(bundle, kernels="portable").check()
