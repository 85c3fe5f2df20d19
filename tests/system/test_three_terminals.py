"""The three tiers by hand, as the README shows them: settings files, three commands, mosquitto; and kill -9 of each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.traces.folder import load_folder
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.nodes.forking import NodeProcess
from edge_sdk.replay.planning.toml_files import write_toml
from edge_sdk.replay.traces.synth import write_traces
from tests import warm
from tests.wire.sites import Provisioned, make_site

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")

ROUNDS = 6
BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"


@dataclass
class Terminals:
    """One process for each tier (and a second device), by settings file; `copied`: of tests/warm.py."""

    directory: Path
    copied: bool = False
    running: dict[str, NodeProcess] = field(default_factory=dict)

    def start(self, name: str) -> None:
        tier = {"cloud": "aggregator", "north": "hospital"}.get(name, "device")
        words, said = [tier, "--once", str(self.directory / f"{name}.toml")], self.directory / f"{name}.log"
        if self.copied:
            self.running[name] = warm.server().begin(words, Path.cwd(), (said, said), os.environ)
            return
        with said.open("ab") as log:
            command = [sys.executable, "-m", "edge_sdk.cli", *words]
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()

    def rounds(self) -> list[int]:
        path = self.directory / "cloud" / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line["round"] for line in lines if line["kind"] == "round"]

    def wait(self, what: Callable[[], bool], seconds: float = 240) -> None:
        until = time.monotonic() + seconds
        while not what():
            for name, process in self.running.items():
                code = process.poll()
                assert code in (None, 0, -signal.SIGKILL), f"{name}: {(self.directory / f'{name}.log').read_text()}"
            assert time.monotonic() < until, "\n".join(p.read_text() for p in sorted(self.directory.glob("*.log")))
            time.sleep(0.02)

    def wait_for_the_end(self) -> None:
        self.wait(lambda: all(process.poll() == 0 for process in self.running.values()))

    def model(self) -> dict[str, bytes]:
        with np.load(self.directory / "cloud" / "model.npz") as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("traces")
    write_traces(directory, devices=2, seed=4, minutes=2.0, overwrite=True)
    return directory


@pytest.fixture
def broker() -> Iterator[str]:
    with Mosquitto() as running:
        yield running.url


def terminals(directory: Path, traces: Path, url: str, copied: bool = False) -> Terminals:
    made = written(directory, traces, url, url)
    made.copied = copied
    for name in ("cloud", "north", "d1", "d2"):
        made.start(name)
    return made


def written(directory: Path, traces: Path, url: str, upstream: str, **wires: dict[str, object]) -> Terminals:
    """The settings files. `wires`: the [wire] table of each node, and of the hospital's line up as `north_up`."""
    directory.mkdir()

    def common(name: str) -> dict[str, object]:
        table = {"broker": upstream if name == "cloud" else url, "bundle": BUNDLE, "directory": name, "name": name}
        return table | ({"wire": wires[name]} if name in wires else {})

    loaded = load_folder(traces)
    run = {"id": "by-hand", "method": "fedslr", "rounds": ROUNDS, "seed": 1, "classes": list(loaded[0].classes)}
    cloud = {**common("cloud"), "hospitals": {"north": 2}, "run": run}
    north = {**common("north"), "aggregator": "cloud", "devices": ["d1", "d2"], "upstream": upstream}
    north |= {"upstream_wire": wires["north_up"]} if "north_up" in wires else {}
    write_toml(directory / "cloud.toml", cloud)
    write_toml(directory / "north.toml", north)
    for name, trace in zip(("d1", "d2"), sorted(traces.glob("*.csv")), strict=True):
        write_toml(directory / f"{name}.toml", {**common(name), "hospital": "north", "data": {"trace": trace}})
    return Terminals(directory)


def test_killing_and_restarting_each_tier_changes_nothing(tmp_path: Path, traces: Path, broker: str) -> None:
    """The same rounds, each once, and the same model to the bit as in a run that nobody disturbed."""
    quiet = terminals(tmp_path / "quiet", traces, broker, copied=True)
    quiet.wait_for_the_end()
    assert quiet.rounds() == list(range(1, ROUNDS + 1))

    disturbed = terminals(tmp_path / "disturbed", traces, broker, copied=True)
    disturbed.copied = False  # what is started again loads all that it needs
    for after, victim in ((1, "d1"), (2, "north"), (3, "cloud")):
        disturbed.wait(lambda after=after: len(disturbed.rounds()) >= after)  # type: ignore[misc]
        disturbed.kill(victim)
        disturbed.start(victim)
    disturbed.wait_for_the_end()
    assert disturbed.rounds() == list(range(1, ROUNDS + 1))
    assert disturbed.model() == quiet.model()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_all_tiers_over_tls_with_an_authority_at_each_broker(tmp_path: Path, traces: Path) -> None:
    """As a hospital would have it: two brokers as `auscult provision` sets them up, and certificates for everybody."""

    def papers(site: Path, name: str) -> dict[str, object]:
        folder = site / "nodes" / name
        return {"ca": folder / "ca.crt", "certificate": folder / f"{name}.crt", "key": folder / f"{name}.key"}

    above, below = tmp_path / "above", tmp_path / "below"
    make_site(above, None, (), aggregator="cloud", hospitals=("north",))
    make_site(below, "north", ("d1", "d2"))
    with Provisioned(above) as top, Provisioned(below) as bottom:
        wires = {"cloud": papers(above, "cloud"), "north_up": papers(above, "north")}
        wires |= {name: papers(below, name) for name in ("north", "d1", "d2")}
        made = written(tmp_path / "run", traces, bottom.tls_url, top.tls_url, **wires)
        made.copied = True
        for name in ("cloud", "north", "d1", "d2"):
            made.start(name)
        made.wait_for_the_end()
    assert made.rounds() == list(range(1, ROUNDS + 1))
    ledger = json.loads((made.directory / "cloud" / "ledger.json").read_text())
    assert ledger["down"]["north"]["received"] > 0 and ledger["counters"]["commits"] > ROUNDS
    assert "counters: bytes_in=" in (made.directory / "north.log").read_text()


@pytest.mark.long
def test_services_that_are_started_again_after_the_end_end_again(tmp_path: Path, traces: Path, broker: str) -> None:
    """The aggregator once waited for ever for a run that was over, and wrote no result."""
    made = terminals(tmp_path / "run", traces, broker)
    made.wait_for_the_end()
    before = made.model()
    for name in ("cloud/result.json", "cloud/model.npz"):
        (made.directory / name).unlink()
    for name in ("cloud", "north", "d1", "d2"):
        made.start(name)
    made.wait_for_the_end()
    assert made.model() == before and made.rounds() == list(range(1, ROUNDS + 1))
    assert json.loads((made.directory / "cloud" / "result.json").read_text())["run"] == "by-hand"


@pytest.mark.long
def test_a_device_with_another_bundle_is_told_why(tmp_path: Path, traces: Path, broker: str) -> None:
    from edge_sdk.model.bundle import read_bundle

    other = tmp_path / "other.bundle"
    command = [sys.executable, "-m", "edge_sdk.models", "compile", "wrist", "-o", str(other), "--seed", "8"]
    subprocess.run(command, check=True, capture_output=True)
    assert read_bundle(other).sha256 != read_bundle(BUNDLE).sha256
    made = terminals(tmp_path / "run", traces, broker)
    made.kill("d2")
    text = (made.directory / "d2.toml").read_text().replace(str(BUNDLE), str(other))
    (made.directory / "d2.toml").write_text(text)
    made.start("d2")
    assert made.running["d2"].wait(60) == 2
    said = (made.directory / "d2.log").read_text()
    assert "is for bundle" in said and "this device has" in said
    for process in made.running.values():
        process.kill()
        process.wait()
