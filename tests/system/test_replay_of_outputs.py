"""FedAL over a broker: devices of two architectures, public inputs in a file that each of them checks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")

import torch

from edge_sdk.model.bundle import read_bundle
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo.dense import MLP
from edge_sdk.nodes.models.kept_models import load
from edge_sdk.replay.nodes.broker import EmbeddedBroker
from edge_sdk.replay.nodes.processes import NodeProcesses

pytestmark = pytest.mark.long


def auscult(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge_sdk.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, f"code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two networks for 30 features, and one that wants them as 5 x 6."""
    found = []
    for i, (shape, hidden) in enumerate((((30,), (16,)), ((5, 6), (24, 12)))):
        path = tmp_path_factory.mktemp("bundles") / f"{i}.bundle"
        torch.manual_seed(i)
        compile_module(MLP(shape, 2, hidden).eval(), Spec(f"mlp{i}", shape, 2)).save(path)
        found.append(path)
    return found


def arguments(bundles: list[Path], out: Path) -> list[object]:
    fixed: list[object] = ["--hospitals", 2, "--devices", 2, "--seed", 5, "--out", out, "--json", "--method", "fedal"]
    return [*fixed, *(word for path in bundles for word in ("--bundle", path))]


@pytest.fixture(scope="module")
def played(bundles: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A whole run: its directory, and what it printed."""
    out = tmp_path_factory.mktemp("played") / "out"
    settings = ("--set", "eta_l=0.005", "--set", "public_batch=16", "--set", "measure=3", "--evaluate-every", 2)
    done = auscult("replay", "breast-cancer", *arguments(bundles, out), "--rounds", 6, "--public", 60, *settings)
    return out, json.loads(done.stdout)


def models_in(out: Path) -> dict[str, bytes]:
    """Device -> the model that it has kept."""
    return {path.parent.name: load(path).models["personal"].tobytes() for path in out.glob("devices/*/replay-*.npz")}


def test_devices_with_different_bundles(bundles: list[Path], played: tuple[Path, dict[str, Any]]) -> None:
    out, found = played
    assert set(found["accuracy"]) == {"local", "personalised"} and found["accuracy"]["personalised"] > 0.85
    assert found["model"]["file"] == "" and not (out / "model.npz").exists()
    sizes = [read_bundle(path).layout.size for path in bundles]
    for i, device in enumerate(("h1-1", "h1-2", "h2-1", "h2-2")):
        assert len(models_in(out)[device]) == 4 * sizes[i % 2]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rounds = [line for line in lines if line["kind"] == "round"]
    assert [line["round"] for line in rounds] == [1, 2, 3, 4, 5, 6]
    assert [line["round"] for line in lines if line["kind"] == "evaluation"] == [2, 4, 6]
    sums = rounds[-1]["sums"]
    assert sums["exchanged"] == 4 * 5 and sums["floor"] / sums["exchanged"] == pytest.approx(-np.log(4))
    assert "settled_own_accuracy" in sums and "settled_own_accuracy" not in rounds[0]["sums"]
    with np.load(out / "data" / "public.npz") as public, np.load(out / "data" / "h1-1.npz") as mine:
        assert public.files == ["x"] and public["x"].shape == (60, 30)
        assert not {row.tobytes() for row in public["x"]} & {row.tobytes() for row in mine["x"]}


def test_kill_9_of_the_aggregator_changes_no_bit(played: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """The discriminator and its optimiser go on where they were saved."""
    before, _ = played
    out = tmp_path / "out"
    with EmbeddedBroker() as broker, NodeProcesses(out / "logs") as fleet:
        commands = configured(before, out, broker.url)
        for name, command in commands.items():
            fleet.start(name, command)
        for rounds in (1, 3):
            wait_for_rounds(out, rounds, fleet)
            fleet.running["aggregator"].kill()
            fleet.running["aggregator"].wait()
            fleet.start("aggregator", commands["aggregator"])
        for process in fleet.running.values():
            process.wait(120)
        fleet.check()
    assert models_in(out) == models_in(before) and len(models_in(out)) == 4
    lines = [json.loads(line) for line in (out / "aggregator" / "metrics.jsonl").read_text().splitlines()]
    expected = [json.loads(line) for line in (before / "metrics.jsonl").read_text().splitlines()]
    assert [line.get("sums") for line in lines] == [line.get("sums") for line in expected]


def configured(before: Path, out: Path, url: str) -> dict[str, list[str | Path]]:
    """The same settings files for another directory and broker: node -> its command."""
    commands: dict[str, list[str | Path]] = {}
    old = re.compile(r"mqtt://127\.0\.0\.1:\d+")
    (out / "config").mkdir(parents=True)
    for path in sorted((before / "config").glob("*.toml")):
        copy = out / "config" / path.name
        copy.write_text(old.sub(url, path.read_text()).replace("local_only = true", "local_only = false"))
        tier = path.stem if path.stem == "aggregator" else "hospital" if path.stem.startswith("hos") else "device"
        commands[path.stem] = [tier, "--once", copy]
    return commands


def wait_for_rounds(out: Path, rounds: int, fleet: NodeProcesses) -> None:
    path = out / "aggregator" / "metrics.jsonl"
    until = time.monotonic() + 120
    while not path.exists() or path.read_text().count('"kind": "round"') < rounds:
        fleet.check()
        assert time.monotonic() < until
        time.sleep(0.02)


def test_what_travels_is_small(bundles: list[Path], tmp_path: Path) -> None:
    """Logits of 4 devices, 3 rounds of 5 exchanges, 16 inputs, 2 classes: headers are most of it; a model is not."""
    settings = ("--set", "public_batch=16", "--no-local-only", "--rounds", 3)
    done = auscult("replay", "breast-cancer", *arguments(bundles, tmp_path / "out"), *settings)
    found = json.loads(done.stdout)
    up, logits = found["bytes"]["device_to_hospital"], 4 * 3 * 5 * 16 * 2 * 4
    assert logits < up < logits + 4 * (3 * 6 + 8) * 400


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--public", 0), "0 public inputs, a batch of fedal has public_batch = 32"),
        (("--public", 1000), "--public 1000: there are"),
        (("--public", 20), "20 public inputs, a batch of fedal has public_batch = 32"),
        (("--set", "tau=0"), "tau = 0: at least 1"),
    ],
)
def test_mistakes_are_told(more: Any, said: str, bundles: list[Path], tmp_path: Path) -> None:
    done = auscult("replay", "breast-cancer", *arguments(bundles, tmp_path / "out"), "--rounds", 1, *more, code=2)
    assert not (tmp_path / "out").exists()
    assert said in done.stderr


def test_several_bundles_are_for_models_that_differ(bundles: list[Path], tmp_path: Path) -> None:
    given = arguments(bundles, tmp_path / "out")
    given[given.index("fedal")] = "fedavg"
    done = auscult("replay", "breast-cancer", *given, "--rounds", 1, code=2)
    assert "--bundle is named 2 times: this method trains one model" in done.stderr
