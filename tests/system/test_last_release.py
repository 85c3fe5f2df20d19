"""The last release beside this one: its nodes with nodes of today, its stores, settings files, bundles, its service and
its clients."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.cli import main
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.model import Model
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.traces.synth import write_traces
from tests.delivery.fleet import eventually
from tests.system.last_release import ROOT, Release, find_release, install_release
from tests.system.test_three_terminals import ROUNDS, Terminals, written

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("starlette", reason="the service needs its extra")
pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.long,
]
EVERY = ("cloud", "north", "d1", "d2")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return install_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    write_traces(folder, devices=2, seed=4, minutes=2.0, overwrite=True)
    return folder


@pytest.fixture
def fleet(release: Release, traces: Path, tmp_path: Path) -> Iterator[Fleet]:
    with Mosquitto() as broker:
        made = written(tmp_path / "run", traces, broker.url, broker.url)
        for name in EVERY:  # the bundle of the release
            file = made.directory / f"{name}.toml"
            shipped = ROOT / "models" / "shipped" / "wrist.bundle"
            text = file.read_text()
            assert str(shipped) in text
            file.write_text(text.replace(str(shipped), str(release.bundle)))
        try:
            yield Fleet(made, release)
        finally:
            for process in made.running.values():
                process.kill()
                process.wait()


class Fleet:
    """An aggregator, a hospital and two devices, each of the last release or of today."""

    def __init__(self, made: Terminals, release: Release) -> None:
        self.made, self.release = made, release

    def start(self, name: str, old: bool) -> None:
        if not old:
            return self.made.start(name)
        tier = {"cloud": "aggregator", "north": "hospital"}.get(name, "device")
        log, file = self.made.directory / f"{name}.log", self.made.directory / f"{name}.toml"
        self.made.running[name] = self.release.start(log, tier, "--once", str(file))
        return None

    def check_rounds(self) -> None:
        """Each round is there once, and has counted both devices."""
        told = (self.made.directory / "cloud" / "metrics.jsonl").read_text()
        lines = [json.loads(line) for line in told.splitlines()]
        counted = [(line["round"], line["devices"]) for line in lines if line["kind"] == "round"]
        assert counted == [(round + 1, 2) for round in range(ROUNDS)]


@pytest.mark.parametrize("old", [("d1", "d2"), ("north", "d1"), ("cloud",), ("cloud", "north"), EVERY])
def test_a_fleet_of_two_versions_makes_every_round(fleet: Fleet, old: tuple[str, ...]) -> None:
    for name in EVERY:
        fleet.start(name, name in old)
    fleet.made.wait_for_the_end()
    fleet.check_rounds()


def test_a_fleet_is_upgraded_node_by_node_while_its_run_goes_on(fleet: Fleet) -> None:
    """As docs/upgrade.md says it, but that each node is killed: its store is as it was at that moment."""
    for name in EVERY:
        fleet.start(name, old=True)
    for after, name in enumerate(EVERY, 1):
        fleet.made.wait(lambda after=after: len(fleet.made.rounds()) >= after)  # type: ignore[misc]
        fleet.made.kill(name)
        fleet.start(name, old=False)
    fleet.made.wait_for_the_end()
    fleet.check_rounds()


def test_its_bundle_and_settings_are_read(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_bundle(fleet.release.bundle)
    assert Model(fleet.release.bundle).predict(found.theta0, found.golden()["in.x"]).shape[1] == 14
    for name in EVERY:
        main(["doctor", str(fleet.made.directory / f"{name}.toml"), "--json"])
        told = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
        assert told["settings"]["good"] is True, told


IMPORT = re.compile(r"^ *from ((?:edge_sdk|aggregator)[\w.]*) import ([\w, ]+?)(?: *#.*)?$", re.MULTILINE)


def test_names_that_its_pages_import_are_still_there(release: Release) -> None:
    """In their examples, whose lines people have in scripts of their own."""
    pages = [*release.source.glob("*.md"), *release.source.glob("docs/**/*.md")]
    found = {
        match.groups()
        for page in [*pages, *release.source.glob("docs/examples/*.py")]
        for match in IMPORT.finditer(page.read_text())
    }
    assert len(found) > 10
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for module, names in found:
            for name in names.split(","):
                assert hasattr(import_module(module), name.split(" as ")[0].strip()), (module, name)


# The service ------------------------------------------------------------------------------------------------------
class Demo:
    """The demonstration's service with its nodes, of the last release or of today, in one folder."""

    def __init__(self, base: Path, release: Release) -> None:
        self.base, self.release, self.log = base, release, base / "log"
        self.service = {"AUSCULT_SERVICE": str(base / "demo" / "service")}
        self.words = ("serve", "--demo", "--directory", str(base / "demo"), "--listen", "127.0.0.1:0")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, old: bool) -> None:
        if old:
            self.process = self.release.start(self.log, *self.words)
            return
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "edge_sdk.cli", *self.words]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(90) == 0, self.log.read_text()

    def ask(self, *words: str, old: bool) -> Any:
        """What the client of a version prints; None: it has failed, or the service is not there yet."""
        if old:
            code, text = self.release.ask(self.base, *words, "--json", more=self.service)
            return json.loads(text) if code == 0 else None
        command = [sys.executable, "-m", "edge_sdk.cli", *words, "--json"]
        own = {**os.environ, **self.service}
        done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=120, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait(self, what: Callable[[], Any]) -> None:
        try:
            eventually(lambda: bool(what()), 240)
        except AssertionError:
            raise AssertionError(self.log.read_text()[-5000:]) from None


def test_a_service_of_the_last_release_goes_on_as_one_of_today(release: Release, tmp_path: Path) -> None:
    """Its database, runs and models, the stores of its nodes; and clients of both versions at both services."""
    demo = Demo(tmp_path, release)
    demo.start(old=True)
    try:
        first = "fedslr-1"
        demo.wait(lambda: (demo.ask("runs", "show", first, old=False) or {}).get("round", 0) >= 2)
        before = demo.ask("runs", "ls", old=True)
        demo.stop()
        demo.start(old=False)
        demo.wait(lambda: demo.ask("runs", "ls", old=True))
        assert {run["id"] for run in demo.ask("runs", "ls", old=True)} >= {run["id"] for run in before}
        reached = demo.ask("runs", "show", first, old=True)["round"]
        demo.wait(lambda: (demo.ask("runs", "show", first, old=True) or {}).get("round", 0) > max(2, reached))
        for run in before:
            demo.ask("runs", "stop", run["id"], old=True)
        started = demo.ask("runs", "start", "--method", "fedavg", "--rounds", "2", "--id", "mine", old=True)
        assert started is not None
        demo.wait(lambda: (demo.ask("runs", "show", "mine", old=True) or {}).get("state") == "finished")
        [mine] = [model for model in demo.ask("models", "ls", old=True) if model["run"] == "mine"]
        assert demo.ask("models", "promote", mine["sha256"], old=True)["promoted"]
        assert demo.ask("fleet", "ls", old=True) and demo.ask("schedules", "ls", old=True) == []
        demo.stop()
        code, said = release.ask(tmp_path, *demo.words)
        assert code == 2 and "put back a backup from before" in said
    finally:
        assert demo.process is not None
        demo.process.kill()
        demo.process.wait()


DOCUMENT = """
import json
from aggregator.service.api.openapi import make_document
from aggregator.service.server.app import ROUTES
[api] = [route for route in ROUTES if getattr(route, "path", "") == "/api/v1"]
print(json.dumps(make_document(api.routes)))
"""


def document_of(python: Path | str, folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """The OpenAPI document of a version."""
    command = [str(python), "-P", "-c", DOCUMENT]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def fields_of(schema: Any, at: str = "") -> set[str]:
    """Paths of all fields of a schema of an answer."""
    found = {f"{at}.{name}" for name in schema.get("properties", {})}
    for name, inner in schema.get("properties", {}).items():
        found |= fields_of(inner, f"{at}.{name}")
    return found | (fields_of(schema["items"], f"{at}[]") if isinstance(schema.get("items"), dict) else set())


def test_what_its_api_takes_and_answers_is_still_there(release: Release, tmp_path: Path) -> None:
    """Each request of the last release's document, with its parameters, and each field that an answer has."""
    was = document_of(release.python, tmp_path, release.environment)["paths"]
    now = document_of(sys.executable, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})["paths"]
    assert len(was) > 20
    for path, verbs in was.items():
        for verb, before in verbs.items():
            after = now[path][verb]
            named = [{one["name"] for one in each.get("parameters", [])} for each in (before, after)]
            assert named[0] <= named[1], f"{verb} {path}"
            for code, answer in before["responses"].items():
                for kind, content in answer.get("content", {}).items():
                    new = after["responses"][code]["content"][kind]
                    assert fields_of(content.get("schema", {})) <= fields_of(new.get("schema", {})), f"{verb} {path}"


def test_the_release_is_that_of_the_changelog(release: Release) -> None:
    version, commit = find_release()
    assert release.version == version and len(commit) == 40
    assert f'version = "{version}"' in (release.source / "pyproject.toml").read_text()
