"""The aggregator: the global step of a method, as a service with metrics, checkpoints and a ledger.

What it writes in its directory:
    run.toml        the run as it was started
    metrics.jsonl   one JSON object a line: rounds, evaluations, the end; each once, whatever is killed when
    model.npz       the newest global model, one array for each parameter, by its name
    ledger.json     bytes from and to each hospital, and all counters, while it runs
    result.json     what it came to: the model's size and ranks, bytes, seconds, memory
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from aggregator.kernels import device_of, kernels_for
from aggregator.private_model.table import given, regulariser_of, warnings_of
from edge_sdk.algebra import lowrank
from edge_sdk.algebra.classification import areas
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.data.public_inputs import read_public
from edge_sdk.errors import UsageError
from edge_sdk.live.runtime import Assembly, Runtime
from edge_sdk.methods.hsgd.plan import Planned
from edge_sdk.methods.shared.evaluation import Finished
from edge_sdk.methods.shared.reports import Progress, Report
from edge_sdk.model.bundle import Bundle, read_bundle
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes.assembly import assembly, check_bundle, method_of, place
from edge_sdk.nodes.output_kernels import check_public, inputs
from edge_sdk.nodes.private_table import Private
from edge_sdk.nodes.split_kernels import divides, split_of
from edge_sdk.replay.report import accuracies, loss, percent
from edge_sdk.wire.options import DEFAULTS, Wire


class Aggregator:
    """One aggregator node.

    Args:
        name: what its hospitals call it.
        broker: URL of the broker that hospitals reach it by.
        bundle: file with the compiled model.
        directory: where it keeps its state and writes its results.
        run: the training job.
        hospitals: name -> number of its devices (M, the number of all devices, is their sum).
        companions: name -> how many of these take part with outputs only, in a run that has such.
        public: file of the public inputs, for such a run.
        deadline: seconds after which a round ends with the hospitals that have answered.
        quorum: hospitals without which a round does not end.
        wait_for: hospitals that must be ready before the run starts; None: all.
        device: "cpu", "cuda", or "auto" (a GPU where there is one) for the torch kernels.
        private: a pretrained model and what it is for; never sent.
        wire: certificates, MQTT version, durability; see `edge_sdk.wire.options.Wire`.
    """

    def __init__(
        self,
        name: str,
        *,
        broker: str,
        bundle: str | Path,
        directory: str | Path,
        run: Run,
        hospitals: Mapping[str, int],
        companions: Mapping[str, int] | None = None,
        public: Path | None = None,
        deadline: float,
        quorum: int = 1,
        wait_for: int | None = None,
        device: str = "auto",
        private: Private | None = None,
        wire: Wire = DEFAULTS,
        on_event: Callable[[Any], None] | None = None,
        log: logging.Logger | None = None,
    ):
        self.name, self.on_event = checked_name(name, "aggregator name"), on_event
        self.bundle, self.job, self.device = read_bundle(bundle), run, device
        self.hospitals = checked_hospitals(hospitals)
        check_deadlines(run, deadline)
        self.deadline, self.quorum = deadline, quorum
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = log or logging.getLogger(f"auscult.{name}")
        regulariser = private and regulariser_of(private, self.bundle, run.seed, device_of(device))
        self.own = given(method_of(run).env, regulariser)
        if method_of(run).companions:
            self.own |= beside(self.bundle, self.hospitals, companions or {}, public)
        start = self.assemble(run)
        start.role.start(start.env)  # pure: what it finds wrong with the settings is said now
        for warning in warnings_of(run, self.hospitals, regulariser, self.bundle.theta0):
            self.log.warning("%s: %s", name, warning)
        self.metrics = Metrics(self.directory / "metrics.jsonl")
        self.finished = threading.Event()
        self.runtime = Runtime(
            name,
            parent=None,
            children=tuple(self.hospitals),
            directory=self.directory,
            broker=broker,
            run=run,
            assemble=self.assemble,
            told=self.told,
            wait_for=wait_for,
            log=self.log,
            **wire.options(broker),
        )

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Serve until `stop`, or until `until()` says so."""
        self.runtime.run(until)

    def stop(self) -> None:
        self.runtime.stop()

    def assemble(self, run: Run) -> Assembly:
        manifest = self.bundle.manifest
        check_bundle(run, manifest["name"], self.bundle.sha256, manifest["classes"], "this aggregator")
        check_public(run)
        method = method_of(run)
        parts = {**kernels_for(method.env, self.device), **self.own}
        if divides(run, self.bundle):
            parts["split"] = split_of(SplitModel(self.bundle, check=False))
        self.place: NodeEnv = place(run, self.bundle.layout, self.bundle.theta0, sizes=self.hospitals, **parts)
        return assembly(run, "aggregator", self.place, self.deadline, self.quorum)

    def told(self, number: int, message: Any) -> None:
        """A round, an evaluation or the end: into the metrics, once."""
        line = described(message)
        if line is not None:
            more = {"time": time.time(), "bytes": self.runtime.counters.totals(), "sent_parameters": self.sent()}
            self.metrics.add(number, {**line, **more})
            self.log.info("%s: %s", self.name, sentence(line))
        if isinstance(message, (Report, Finished)):
            self.save_model()
        if self.on_event is not None:
            self.on_event(message)
        if isinstance(message, Finished):
            self.finished.set()

    def sent(self) -> int | None:
        """How many numbers the newest model is as it travels; None where it does not travel packed."""
        packed = getattr(self.shown(), "model", None)
        return lowrank.floats(self.bundle.layout, packed.ranks) if isinstance(packed, Packed) else None

    def node_state(self) -> Any:
        assert self.runtime.node is not None  # told is called within a run
        return self.runtime.node.record.state

    def shown(self) -> Any:
        """The newest global model, as the method shows it."""
        return method_of(self.job).show(self.place, self.node_state())

    def save_model(self) -> None:
        """The newest global model, in place of the one before; nothing where there is none."""
        layout, self.newest = self.bundle.layout, self.shown()
        if method_of(self.job).models_differ:
            return
        theta = method_of(self.job).models(self.place, None, self.newest)["global"]
        arrays = {slot.name: layout.view(theta, slot) for slot in layout.slots}
        part = self.directory / "model.npz.part"
        with part.open("wb") as file:
            np.savez(file, **arrays)
        os.replace(part, self.directory / "model.npz")


def sentence(line: Mapping[str, Any]) -> str:
    """A line of metrics for people."""
    if line["kind"] == "finished":
        return f"finished after {line['round']} rounds"
    if line["kind"] == "plan":
        return f"from round {line['round'] + 1} on P = {line['P']}, Q = {line['Q']}, eta = {line['eta']:.4g}"
    words = [f"{line['kind']} {line['round']}: {line.get('devices', line['sums'].get('devices', 0)):.0f} devices"]
    if (mean := loss(line)) is not None:
        words.append(f"loss {mean:.4f}")
    words += [f"{name} {percent(value)}" for name, value in accuracies(line["sums"]).items()]
    return ", ".join(words)


def beside(
    bundle: Bundle, hospitals: Mapping[str, int], companions: Mapping[str, int], public: Path | None
) -> dict[str, Any]:
    """What the aggregator is given to let its model take part among devices of other architectures."""
    for name, count in companions.items():
        if not 0 <= count < hospitals.get(name, 0):
            devices = hospitals.get(name, 0)
            raise UsageError(f"companions.{name} = {count}: less than the {devices} devices of that hospital")
    if public is None:
        raise UsageError("public: companions compare outputs on public inputs; name their file")
    model = Model(bundle)
    x = read_public(public).shaped(model.input_shape, "the aggregator")
    return {"counts": dict(companions), "public": inputs(model, x)}


class Metrics:
    """A file of JSON lines in which every number occurs once, although told messages may come again after a crash."""

    def __init__(self, path: Path):
        self.path, self.last = path, -1
        if path.exists():
            complete = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            path.write_text("".join(complete))
            self.last = max((json.loads(line)["number"] for line in complete), default=-1)

    def add(self, number: int, line: Mapping[str, Any]) -> None:
        if number <= self.last:
            return
        with self.path.open("a") as file:
            file.write(json.dumps({"number": number, **line}) + "\n")
        self.last = number


def described(message: Any) -> dict[str, Any] | None:
    """A message for the application as a line of metrics."""
    if isinstance(message, Progress):
        return {"kind": "round", **asdict(message)}
    if isinstance(message, Report):
        sums, auc = areas(message.sums)
        return {"kind": "evaluation", **asdict(message), "sums": sums, "auc": auc}
    if isinstance(message, Finished):
        return {"kind": "finished", **asdict(message)}
    if isinstance(message, Planned):
        finite = {key: value if isfinite(value) else None for key, value in asdict(message).items() if key != "plan"}
        return {"kind": "plan", **finite, **asdict(message.plan)}
    return None


def checked_hospitals(hospitals: Mapping[str, int]) -> dict[str, int]:
    if not hospitals:
        raise UsageError("hospitals: none named; expected at least one, as name = number of its devices")
    for name, devices in hospitals.items():
        checked_name(name, "hospital name")
        if devices < 1:
            raise UsageError(f"hospitals.{name} = {devices}, a hospital has at least 1 device")
    return dict(hospitals)


def check_deadlines(run: Run, deadline: float) -> None:
    """A hospital must give up on its devices before the aggregator gives up on the hospital."""
    if not deadline > run.deadline and deadline != float("inf"):
        least = f"the aggregator waits longer than a hospital does for its devices ({run.deadline} s)"
        raise UsageError(f"deadline = {deadline}: {least}")
