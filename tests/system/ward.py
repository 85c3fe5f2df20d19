"""A hospital with two devices as threads of the test, and versions that are brought to them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.methods.rollout.messages import RolloutVerdict
from edge_sdk.methods.shared.evaluation.reports import Progress
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import DevicePolicy
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.nodes.hospital.options import DeviceList, HospitalPolicy
from edge_sdk.nodes.kernels.rollout import hash_model
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.wire.signatures import Signer, make_private_key, sign_run
from tests.delivery.fleet import eventually

WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
NAMES = tuple(f"c{i}" for i in range(14))


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
    """A hospital with two devices, whose held-out labels are what the bundle's initial model says: it is perfect.

    Args:
        trusted: the operator's public key; None: nobody checks anything.
        evaluations: lanes beside the main one, at the hospital and its devices; `without`: devices that have none.
        enrolled: devices may be enrolled beside a and b.

    Attributes:
        size: devices of the hospital, as the settings of a rollout's aggregator have it.
        signer: signs what `roll` brings; it is the operator of those who trust `own_key`.
    """

    signer = Signer(make_private_key())

    def __init__(
        self,
        base: Path,
        url: str,
        trusted: Path | None = None,
        evaluations: int = 0,
        without: tuple[str, ...] = (),
        enrolled: bool = False,
    ):
        self.enrolled, self.size = enrolled, 2
        self.base, self.url, self.stack, self.number = base, url, ExitStack(), 0
        self.trust: dict[str, Any] = {} if trusted is None else {"trusted_key": trusted}
        self.trust |= {"evaluations": evaluations}
        self.without = without
        self.devices = {name: self.make_device(name) for name in ("a", "b")}
        self.theta0 = self.devices["a"].part.model.theta0
        self.verdicts: list[RolloutVerdict] = []
        self.rounds: list[int] = []

    def make_device(self, name: str) -> Device:
        x = np.random.default_rng(len(name)).normal(size=(60, 3, 64)).astype(np.float32)
        given: dict[str, Any] = {"broker": self.url, "bundle": WRIST, "directory": self.base / name}
        policy = DevicePolicy(**self.trust | ({"evaluations": 0} if name in self.without else {}))
        device = Device(name, hospital="h", policy=policy, **given)
        model = device.part.model
        held_out = Samples(x, tuple(NAMES[i] for i in model.predict(model.theta0, x).argmax(1)))
        device.train_on(held_out, held_out)
        return device

    def __enter__(self) -> Ward:
        given: dict[str, Any] = {"broker": self.url, "bundle": WRIST, "directory": self.base / "h"}
        devices = DeviceList(("a", "b"), enrolled=self.enrolled)
        policy = HospitalPolicy(allow=Allow(scores_of=1), **self.trust)  # it has two devices
        self.hospital = Hospital("h", aggregator="cloud", devices=devices, policy=policy, **given)
        self.stack.enter_context(running(self.hospital))
        for device in self.devices.values():
            self.stack.enter_context(running(device))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def run_of(self, theta: np.ndarray, **settings: Any) -> Run:
        self.number += 1
        wanted = {"theta": hash_model(theta), **settings} if "undo" not in settings else settings
        run = Run(id=f"roll-{self.number}", method="rollout", bundle=self.devices["a"].part.model.sha256, classes=NAMES)
        return replace(run, settings=wanted, deadline=60.0)

    def sign(self, run: Run) -> Run:
        return sign_run(run, self.signer, 1000 + self.number)

    def save_model(self, path: Path, theta: np.ndarray) -> Path:
        layout = self.devices["a"].part.own_model.layout
        np.savez(path, **{slot.name: layout.view(theta, slot) for slot in layout.slots})
        return path

    def cloud(self, run: Run, theta: np.ndarray, lane: int = 0) -> Any:
        from aggregator.aggregator import Aggregator
        from aggregator.options import HospitalList, PreparedRun, Process

        model = self.save_model(self.base / f"{run.id}.npz", theta)
        given: dict[str, Any] = {"broker": self.url, "bundle": WRIST, "directory": self.base / f"cloud-{run.id}"}
        given |= {"hospitals": HospitalList({"h": self.size}, enrolled=self.enrolled)}
        given |= {"process": Process(lane=lane, client=f"cloud:{lane}" if lane else "")}
        made = Aggregator("cloud", run=PreparedRun(run, model=None if "undo" in run.settings else model), **given)
        made.on_event = self.note
        return made

    def training(self, id: str = "train", rounds: int = 10**6) -> Any:
        """An aggregator whose run goes on as long as somebody looks; `rounds` hears of each."""
        from aggregator.aggregator import Aggregator
        from aggregator.options import HospitalList

        settings = {"eta_l": 1e-4, "batch": 8}
        run = Run(id=id, method="fedavg", bundle=self.devices["a"].part.model.sha256, classes=NAMES, rounds=rounds)
        run = self.sign(replace(run, settings=settings, deadline=60.0))
        given: dict[str, Any] = {"broker": self.url, "bundle": WRIST, "directory": self.base / f"cloud-{id}"}
        made = Aggregator("cloud", run=run, hospitals=HospitalList({"h": 2}, enrolled=self.enrolled), **given)
        made.on_event = self.note
        return made

    def goes_on(self) -> None:
        done = len(self.rounds)
        eventually(lambda: len(self.rounds) > done + 2, 60)

    def note(self, message: Any) -> None:
        if isinstance(message, Progress):
            self.rounds.append(message.round)
        if isinstance(message, RolloutVerdict):
            self.verdicts.append(message)

    def roll(self, theta: np.ndarray, lane: int = 0, **settings: Any) -> RolloutVerdict:
        """A rollout from its begin to its end."""
        before = len(self.verdicts)
        run = self.sign(self.run_of(theta, **settings))
        with running(self.cloud(run, theta, lane)) as cloud:
            eventually(lambda: len(self.verdicts) > before and cloud.finished.is_set() and cloud.runtime.delivered, 60)
        there = [d for d in self.devices.values() if d.part.lanes or not lane]
        ends = [(d.part.lanes[lane - 1] if lane else d).finished for d in there]
        eventually(lambda: all(end.is_set() for end in ends), 60)
        return self.verdicts[-1]

    @property
    def versions(self) -> dict[str, str]:
        return {name: device.part.working.run for name, device in self.devices.items()}


def worse(theta: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).normal(size=theta.shape).astype(np.float32)


def own_key(base: Path) -> Path:
    """The public key of who signs what a ward rolls out."""
    path = base / "trusted.pem"
    path.write_bytes(Ward.signer.public_pem)
    return path
