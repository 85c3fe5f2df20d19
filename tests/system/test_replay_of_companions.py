"""Prox, discriminator and consensus in one training over a broker: devices of another architecture beside FedSLR's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")

import torch

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo.dense import MLP

pytestmark = pytest.mark.long

SETTINGS = ("outputs.public_batch=16", "outputs.tau=2", "outputs.eta_l=0.005", "into=0.01", "shared.eta_l=0.05")
SETTINGS += ("shared.eta_g=5.0", "shared.lam=0.0001")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two devices of each hospital have the first, one has the other."""
    found = []
    for i, hidden in enumerate(((16,), (24, 12))):
        path = tmp_path_factory.mktemp("bundles") / f"{i}.bundle"
        torch.manual_seed(i)
        compile_module(MLP((30,), 2, hidden).eval(), Spec(f"mlp{i}", (30,), 2)).save(path)
        found.append(path)
    return [found[0], found[0], found[1]]


def replayed(bundles: list[Path], out: Path, method: str, *more: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "edge_sdk.cli", "replay", "breast-cancer", "--method", method, "--hospitals", "2"]
    command += ["--devices", "3", "--rounds", "9", "--seed", "5", "--public", "60", "--out", str(out), "--json"]
    command += [word for path in bundles for word in ("--bundle", str(path))]
    command += [word for pair in (*SETTINGS, *more) for word in ("--set", pair)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("method", "more"),
    [("fedslr+fedal", ()), ("fedslr-b+fedal", ("shared.cloud=first-b", "shared.ready=1", "shared.cloud_step=0.1"))],
)
def test_all_steps_in_one_training(bundles: list[Path], tmp_path: Path, method: str, more: tuple[str, ...]) -> None:
    code, told, wrong = replayed(bundles, tmp_path / "out", method, *more)
    assert code == 0, wrong
    found: dict[str, Any] = json.loads(told)
    assert found["accuracy"]["personalised"] > 0.85 and found["accuracy"]["companion"] > 0.8
    kinds = {d["device"]: set(d["accuracy"]) for d in found["devices"]}
    assert kinds["h1-3"] == kinds["h2-3"] == {"local", "companion"}
    assert kinds["h1-1"] == {"local", "global", "personalised"}
    rounds = [line for line in found["curve"] if line["kind"] == "round"]
    assert len(rounds) == 9 and any("payoff" in line["sums"] for line in rounds)
    assert "companion" in (tmp_path / "out" / "report.html").read_text()


def test_a_hospital_of_companions_only_is_refused_before_anything_runs(bundles: list[Path], tmp_path: Path) -> None:
    shared, _, other = bundles
    code, _, wrong = replayed([shared, shared, shared, other, other, other], tmp_path / "out", "fedslr+fedal")
    assert code != 0 and "companions.hospital-2 = 3: less than the 3 devices of that hospital" in wrong
