"""A version on its way to devices over a real broker: taken, halted, taken back, refused where it was changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.methods.rollout.messages import RolloutVerdict, VersionOffer
from edge_sdk.nodes.device import Device
from edge_sdk.nodes.hospital import Hospital
from edge_sdk.nodes.kernels.rollout import hash_model
from edge_sdk.nodes.versions import Versions
from edge_sdk.replay.broker import LocalBroker
from edge_sdk.wire.signatures import Signer, make_private_key, sign_run
from tests.delivery.fleet import eventually

pytest.importorskip("torch")
pytest.importorskip("cryptography")
WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
NAMES = tuple(f"c{i}" for i in range(14))
SIGNER = Signer(make_private_key())
Take = Callable[[], Any]


@contextmanager
def running(node: Any) -> Iterator[Any]:
    thread = threading.Thread(target=node.run, daemon=True)
    thread.start()
    try:
        yield node
    finally:
        node.stop()
        thread.join(30)
        assert not thread.is_alive()


class Ward:
    """A hospital with two devices, whose held-out labels are what the bundle's initial model says: it is perfect."""

    def __init__(self, base: Path, url: str, trusted: bool = False):
        self.base, self.url, self.stack, self.number = base, url, ExitStack(), 0
        key = base / "trusted.pem"
        key.write_bytes(SIGNER.public_pem)
        self.trust: dict[str, Any] = {"trusted_key": key} if trusted else {}
        self.devices = {name: self.make_device(name) for name in ("a", "b")}
        self.theta0 = self.devices["a"].model.theta0
        self.verdicts: list[RolloutVerdict] = []

    def make_device(self, name: str) -> Device:
        x = np.random.default_rng(len(name)).normal(size=(60, 3, 64)).astype(np.float32)
        given: dict[str, Any] = {"broker": self.url, "bundle": WRIST, "directory": self.base / name}
        device = Device(name, hospital="h", **given, **self.trust)
        held_out = Samples(x, tuple(NAMES[i] for i in device.model.predict(device.model.theta0, x).argmax(1)))
        device.train_on(held_out, held_out)
        return device

    def __enter__(self) -> Ward:
        given: dict[str, Any] = {"broker": self.url, "bundle": WRIST, "directory": self.base / "h"}
        self.hospital = Hospital("h", aggregator="cloud", devices=("a", "b"), **given)
        self.stack.enter_context(running(self.hospital))
        for device in self.devices.values():
            self.stack.enter_context(running(device))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def run_of(self, theta: np.ndarray, **settings: Any) -> Run:
        self.number += 1
        wanted = {"theta": hash_model(theta), **settings} if "undo" not in settings else settings
        run = Run(id=f"roll-{self.number}", method="rollout", bundle=self.devices["a"].model.sha256, classes=NAMES)
        return replace(run, settings=wanted, deadline=60.0)

    def cloud(self, run: Run, theta: np.ndarray) -> Any:
        from aggregator.server import Aggregator

        layout = self.devices["a"].model.layout
        model = self.base / f"{run.id}.npz"
        np.savez(model, **{slot.name: layout.view(theta, slot) for slot in layout.slots})
        given: dict[str, Any] = {"broker": self.url, "bundle": WRIST, "directory": self.base / f"cloud-{run.id}"}
        given |= {"hospitals": {"h": 2}, "deadline": "auto", "model": None if "undo" in run.settings else model}
        return Aggregator("cloud", run=run, on_event=self.note, **given)

    def note(self, message: Any) -> None:
        if isinstance(message, RolloutVerdict):
            self.verdicts.append(message)

    def roll(self, theta: np.ndarray, **settings: Any) -> RolloutVerdict:
        """A rollout from its begin to its end."""
        before = len(self.verdicts)
        run = sign_run(self.run_of(theta, **settings), SIGNER, 1000 + self.number)
        with running(self.cloud(run, theta)) as cloud:
            eventually(lambda: len(self.verdicts) > before and cloud.finished.is_set() and cloud.runtime.delivered, 60)
        eventually(lambda: all(d.finished.is_set() for d in self.devices.values()), 60)
        return self.verdicts[-1]

    @property
    def versions(self) -> dict[str, str]:
        return {name: device.working.run for name, device in self.devices.items()}


def worse(theta: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).normal(size=theta.shape).astype(np.float32)


def test_a_version_is_rolled_out_a_bad_one_is_taken_back_and_a_good_one_undone(
    tmp_path: Path, quick: LocalBroker
) -> None:
    with Ward(tmp_path, quick.url, trusted=True) as ward:
        good = ward.roll(ward.theta0 * np.float32(1.001))
        assert good.kept and good.counts["installed"] == 2 and good.counts["samples"] == 120
        assert ward.versions == {"a": "roll-1", "b": "roll-1"}
        bad = ward.roll(worse(ward.theta0))
        assert not bad.kept and "accuracy on the devices' own held-out samples fell" in bad.fault
        assert bad.counts["installed"] == bad.counts["reverted"] == 1, "the canary took it, and went back"
        assert ward.versions == {"a": "roll-1", "b": "roll-1"}
        back = ward.roll(ward.theta0, undo="roll-1")
        assert back.counts["reverted"] == 2 and ward.versions == {"a": "", "b": ""}


def test_a_hospital_that_hands_out_another_model_is_refused(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is signed, and says which model it is for; what comes beside it is another one."""
    other = worse(np.zeros(1, np.float32))

    def lie(bundle: Any, theta: Any) -> VersionOffer:
        return VersionOffer(bundle, np.resize(other, theta.shape).astype(np.float32))

    monkeypatch.setattr("edge_sdk.methods.rollout.method.VersionOffer", Liar(lie))
    with Ward(tmp_path, quick.url, trusted=True) as ward:
        run = sign_run(ward.run_of(ward.theta0), SIGNER, 1000)
        with running(ward.cloud(run, ward.theta0)):
            eventually(lambda: any(m.startswith("h: ") and "cannot take part" in m for m in caplog.messages))
        assert "another model came than the run says" in caplog.text
        assert ward.versions == {"a": "", "b": ""}


class Liar:
    """Stands for the class of the offer where the hospital makes it; a device still knows its type."""

    def __init__(self, make: Callable[..., VersionOffer]):
        self.make = make

    def __call__(self, *given: Any) -> VersionOffer:
        return self.make(*given)

    def __instancecheck__(self, message: object) -> bool:
        return isinstance(message, VersionOffer)


def test_a_device_whose_disk_fails_while_it_tries_a_version(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of its call is saved, as after a kill; the offer is on its disk, and is tried again."""
    attempt, died = Versions.attempt, threading.Event()
    gate = threading.Event()

    def slow(self: Versions, *given: Any) -> dict[str, float]:
        if self.name == "a" and not gate.is_set():
            died.set()
            gate.wait(60)
        return attempt(self, *given)

    monkeypatch.setattr(Versions, "attempt", slow)
    with Ward(tmp_path, quick.url) as ward:
        theta = ward.theta0 * np.float32(1.001)
        with running(ward.cloud(ward.run_of(theta), theta)) as cloud:
            eventually(died.is_set)
            session = ward.devices["a"].runtime.session
            assert session is not None
            session.store.drop()
            gate.set()
            eventually(lambda: cloud.finished.is_set(), 90)
        assert ward.verdicts[-1].kept
