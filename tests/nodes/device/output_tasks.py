"""Devices, runs and fleets for models that predict something else than one class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk import Device, Samples
from edge_sdk.contract.loopback import Loopback
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.methods.shared.evaluation.evaluation import Finished, Scores
from edge_sdk.methods.shared.evaluation.reports import Models, Report
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.assembly import check_bundle, make_env, method_of


def make_device(bundle: Path, directory: Path, parts: Sequence[Samples], events: list[Any] | None = None) -> Device:
    """A device with samples to train on, held out and for choices, which nobody connects."""
    device = Device("a", hospital="h", broker="mqtt://127.0.0.1:1", bundle=bundle, directory=directory)
    device.on_event = ([] if events is None else events).append
    device.train_on(*parts)
    return device


def make_run(bundle: Path, classes: Sequence[str], more: Mapping[str, Any]) -> Run:
    given = {"id": "r", "classes": tuple(classes), "method": "fedavg", **more}
    return Run(bundle=read_bundle(bundle).sha256, **given)


def finish(device: Device, run: Run, theta: np.ndarray, scores: dict[str, float] | None = None) -> None:
    """A whole run, as its device sees it."""
    device.part.assemble(run)
    device.part.receive_event(1, Scores(1, scores or {}))
    device.part.receive_event(1, Models(1, {"global": theta}))
    device.part.receive_event(2, Finished(1))


def play_fleet(bundle: Path, run: Run, make: Callable[[str], Device]) -> tuple[Report, NodeEnv]:
    """The last report of a run of three devices at two hospitals, and what one of the devices is given."""
    check_bundle(run, read_bundle(bundle), "device")
    tree = {"a": ("a1", "a2"), "b": ("b1",)}
    envs: dict[str, NodeEnv] = {one: make(one).part.env(run) for one in ("a1", "a2", "b1")}
    device = envs["a1"]
    for parent, sizes in (("a", {"a1": 1, "a2": 1}), ("b", {"b1": 1}), ("cloud", {"a": 2, "b": 1})):
        envs[parent] = make_env(run, device.layout, device.theta0, sizes=sizes)
    told = Loopback(method_of(run), tree, envs, {}, 0, root="cloud").run().told
    return [event for node, event in told if node == "cloud" and isinstance(event, Report)][-1], device
