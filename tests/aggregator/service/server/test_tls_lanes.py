"""Runs side by side over a broker with certificates, as `auscult provision` has made it: real processes, real nodes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.service.models.rollouts import add_evaluation
from aggregator.service.runs.runs import FINISHED, RUNNING, Wanted, add_run, find_run
from edge_sdk.data.samples import Samples
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import DevicePolicy
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.nodes.hospital.options import HospitalPolicy, Upstream
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from edge_sdk.wire.options import Wire
from tests.aggregator.service.conftest import CLASSES
from tests.delivery.fleet import eventually
from tests.system.ward import running
from tests.wire.sites import Provisioned, make_site

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    pytest.mark.long,
]
HOSPITALS = ("north", "south")
LANES = ("cloud-run-2", "cloud-run-3")
PATIENCE = 240.0


def wire_of(files: Path, name: str) -> Wire:
    folder = files / "nodes" / name
    return Wire(ca=folder / "ca.crt", certificate=folder / f"{name}.crt", key=folder / f"{name}.key")


def make_ward(base: Path, hospital: str, files: Path, above: str, below: str) -> list[Any]:
    """A hospital with one device, whose broker is its own; over it certificates are wanted."""
    bundle = find_shipped_bundle("wrist.bundle")
    assert bundle is not None
    given: dict[str, Any] = {"broker": below, "bundle": bundle}
    up = Upstream("cloud", above, wire_of(files, hospital))
    x = np.random.default_rng(1).normal(size=(24, 3, 64)).astype(np.float32)
    samples = Samples(x, tuple(CLASSES[i % 3] for i in range(24)))
    device = Device(
        f"{hospital}-1",
        hospital=hospital,
        directory=base / f"{hospital}-1",
        policy=DevicePolicy(evaluations=1),
        **given,
    )
    device.train_on(samples, samples)
    given |= {"directory": base / hospital, "policy": HospitalPolicy(evaluations=1)}
    return [Hospital(hospital, aggregator=up, devices=(device.name,), **given), device]


def rounds(service: Any, id: str) -> int:
    lines = service.supervisor.lines_of(id)
    lines.read_on()
    return sum(line["kind"] == "round" for line in lines.lines)


def test_two_trainings_and_an_evaluation_go_on_over_tls_at_once(
    tmp_path: Path, make_service: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run has a connection, and so a certificate, of its own; who is a hospital or a device has one for all."""
    files = tmp_path / "site"
    make_site(files, hospital=None, devices=(), aggregator="cloud", hospitals=(*HOSPITALS, *LANES))
    with Provisioned(files) as broker, Mosquitto() as below, ExitStack() as stack:
        about = {"broker": broker.tls_url, "wire": wire_of(files, "cloud"), "hospitals": dict.fromkeys(HOSPITALS, 1)}
        service = make_service(**about, lanes={name: wire_of(files, name) for name in LANES})
        monkeypatch.setattr(service.monitor, "evaluations", lambda: dict.fromkeys(HOSPITALS, 1))  # as they report it
        for hospital in HOSPITALS:
            for node in make_ward(tmp_path, hospital, files, broker.tls_url, below.url):
                stack.enter_context(running(node))

        def until(what: Callable[[], bool]) -> None:
            eventually(lambda: service.supervisor.look() or what(), PATIENCE)

        wanted = [Wanted(method="fedavg", rounds=10**5, hospitals=(name,)) for name in HOSPITALS]
        trainings = [add_run(service.database, one, CLASSES, "test") for one in wanted]
        until(lambda: all(rounds(service, id) >= 2 for id in trainings))
        judged = add_evaluation(
            service.database, service.registry, service.registry.first, {"hospitals": ["north"], "id": "judged"}, "test"
        )
        until(lambda: find_run(service.database, judged)["state"] == FINISHED)
        row, line = find_run(service.database, judged), service.supervisor.lines_of(judged).lines[-2]
        assert row["beside"] == 1 and line["kind"] == "rollout" and line["counts"]["samples"] == 24, line
        done = [rounds(service, id) for id in trainings]
        until(lambda: all(rounds(service, id) > before + 2 for id, before in zip(trainings, done, strict=True)))
        assert {find_run(service.database, id)["state"] for id in trainings} == {RUNNING}
        said = "".join(path.read_text() for path in (service.file.directory / "logs").glob("*.log"))
        assert "in a row were lost" not in said, "no connection pushes another one out"
