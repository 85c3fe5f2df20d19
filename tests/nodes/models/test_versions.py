"""Versions on a device: tried on its own samples, taken in one step, kept through restarts, and left again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError
from edge_sdk.methods.rollout.messages import VersionKept, VersionLeft, VersionTaken
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.model.bundle import parse, read_bundle
from edge_sdk.nodes.configuration.assembly import fixes_hospitals, fixes_members
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.kernels.rollout import hash_model
from edge_sdk.nodes.models import versions
from edge_sdk.replay.planning.bundles import compile_network
from tests.model.bundle_files import repacked

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
X = np.random.default_rng(0).normal(size=(40, 3, 64)).astype(np.float32)
NAMES = tuple("abc")
BYTES = np.frombuffer(WRIST.read_bytes(), np.uint8)


def make_device(directory: Path, bundle: Path = WRIST) -> Device:
    device = Device("d1", hospital="h", broker="mqtt://127.0.0.1:1", bundle=bundle, directory=directory)
    samples = Samples(X, tuple(NAMES[i % 3] for i in range(40)))
    device.train_on(samples, samples)
    return device


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return make_device(tmp_path / "state")


def model_like(device: Device, shift: float) -> np.ndarray:
    return (device.part.model.theta0 + np.float32(shift)).astype(np.float32)


def rollout(device: Device, theta: np.ndarray, id: str = "roll-1", bundle: str = "") -> Run:
    settings = {"theta": hash_model(theta)}
    return Run(id=id, method="rollout", bundle=bundle or device.part.model.sha256, classes=NAMES, settings=settings)


def train(device: Device, id: str = "r", **models: np.ndarray) -> None:
    """A run has ended with these models."""
    device.part.assemble(Run(id=id, method="fedavg", bundle=device.part.model.sha256, classes=NAMES))
    device.part.receive_event(1, Models(1, models))
    device.part.receive_event(2, Finished(1))


def take(
    device: Device, theta: np.ndarray, id: str = "roll-1", data: Any = BYTES, bundle: str = ""
) -> dict[str, float]:
    """The version is offered and taken; its rollout is not over yet."""
    env = device.part.assemble(rollout(device, theta, id, bundle)).env
    env.verify(data, theta)  # type: ignore[attr-defined]
    counts: dict[str, float] = env.attempt(data, theta)  # type: ignore[attr-defined]
    if counts.get("installed"):
        device.part.receive_event(1, VersionTaken(data, theta))
    return counts


def test_a_version_is_compared_taken_and_left_again(device: Device, tmp_path: Path) -> None:
    theta0, new = device.part.model.theta0, model_like(device, 0.01)
    train(device, **{"global": theta0, "personal": theta0 + np.float32(0.5)})
    right = device.predict(X).labels
    counts = take(device, new)
    said = device.part.train.labels  # type: ignore[union-attr]
    assert counts["before"] == sum(a == b for a, b in zip(right, said, strict=True)) and counts["samples"] == 40
    assert device.part.working.run == "roll-1"
    np.testing.assert_array_equal(device.part.working.kept.models["global"], new)
    np.testing.assert_allclose(device.part.working.kept.models["personal"], new + np.float32(0.5), rtol=1e-5)
    again = make_device(tmp_path / "state")
    assert again.part.working.run == "roll-1" and again.predict(X).labels == device.predict(X).labels
    again.part.assemble(rollout(again, new))
    again.part.receive_event(2, VersionLeft(""))
    assert again.part.working.run == "r" and again.predict(X).labels == right
    assert make_device(tmp_path / "state").part.working.run == "r"


def test_a_version_after_none_is_left_for_the_initial_model(device: Device, tmp_path: Path) -> None:
    take(device, model_like(device, 0.01))
    assert list(device.part.working.kept.models) == ["global"]
    device.part.receive_event(2, VersionLeft(""))
    assert device.predict(X).model == "initial" and make_device(tmp_path / "state").predict(X).model == "initial"


def test_a_version_that_nobody_has_confirmed_is_left_with_the_next_run(device: Device, tmp_path: Path) -> None:
    """Its rollout may have been halted while the device was away."""
    take(device, model_like(device, 0.01))
    restarted = make_device(tmp_path / "state")
    assert restarted.part.working.run == "roll-1"
    restarted.part.assemble(Run(id="r2", method="fedavg", bundle=device.part.model.sha256, classes=NAMES))
    assert restarted.predict(X).model == "initial"


def test_a_confirmed_version_stays_until_a_run_makes_a_newer_one(device: Device) -> None:
    take(device, model_like(device, 0.01))
    device.part.receive_event(2, VersionKept())
    device.part.receive_event(3, Finished(0))
    train(device, "r2", **{"global": device.part.model.theta0})
    assert device.part.working.run == "r2"
    device.part.assemble(Run(id="undo", method="rollout", bundle=device.part.model.sha256, settings={"undo": "roll-1"}))
    device.part.receive_event(1, VersionLeft("roll-1"))
    assert device.part.working.run == "r2", "what a run has made since is not the rollout's to take back"


def test_a_confirmed_version_outlives_a_look_at_the_run_before_it(device: Device) -> None:
    """A run whose last words had not come, or the main lane of a device that has given up its others, brought the
    models of before the rollout back at the next start."""
    train(device, **{"global": model_like(device, 0.1)})
    take(device, model_like(device, 0.2))
    device.part.receive_event(2, VersionKept())
    device.part.assemble(Run(id="r", method="fedavg", bundle=device.part.model.sha256, classes=NAMES))
    assert device.part.working.run == "roll-1"
    train(device, "r2", **{"global": model_like(device, 0.3)})
    assert device.part.working.run == "r2"


def test_what_predicts_survives_a_power_cut_from_the_moment_at_which_it_was_told(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store forgets an event that was told, and its files were still in memory: a power cut took both."""
    synced, sync = set[int](), os.fsync

    def noted(number: int) -> None:
        sync(number)
        synced.add(os.fstat(number).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    train(device, **{"global": model_like(device, 0.1)})
    take(device, model_like(device, 0.2))
    device.part.receive_event(2, VersionKept())
    state = tmp_path / "state"
    kept = [*state.glob("*.npz"), *state.glob("*.bundle"), *(state / name for name in ("working", "previous"))]
    assert len(kept) == 5 and {path.name for path in kept} > {"r.npz", "roll-1.npz"}
    for path in (*kept, state / "before", state / "rollout.json", state):
        assert path.stat().st_ino in synced, path


def test_a_version_that_was_left_while_its_rollout_was_paused_predicts_when_it_is_kept(
    device: Device, tmp_path: Path
) -> None:
    """It was counted among those that have the version, and predicted with the one before."""
    train(device, **{"global": model_like(device, 0.1)})
    take(device, theta := model_like(device, 0.2))
    between = Run(id="r2", method="fedavg", bundle=device.part.model.sha256, classes=NAMES)
    device.part.assemble(between)
    assert device.part.working.run == "r"
    device.part.assemble(rollout(device, theta))
    for _ in range(2):  # told again
        device.part.receive_event(3, VersionKept())
        assert device.part.working.run == make_device(tmp_path / "state").part.working.run == "roll-1"
    device.part.assemble(between)
    assert device.part.working.run == "roll-1"


def test_a_version_that_was_left_gives_way_to_what_a_run_has_made_since(device: Device) -> None:
    train(device, **{"global": model_like(device, 0.1)})
    take(device, theta := model_like(device, 0.2))
    train(device, "r2", **{"global": model_like(device, 0.3)})
    device.part.assemble(rollout(device, theta))
    device.part.receive_event(3, VersionKept())
    assert device.part.working.run == "r2"


def test_a_version_that_is_there_is_not_taken_twice(device: Device) -> None:
    new = model_like(device, 0.01)
    take(device, new)
    device.part.receive_event(2, VersionKept())
    assert take(device, new, "roll-2") == {"already": 1.0}
    device.part.receive_event(2, VersionLeft("roll-1"))
    assert device.predict(X).model == "initial"


@pytest.mark.parametrize("point", ["kept_models.save", "note_working"])
def test_a_device_that_dies_while_it_takes_a_version(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """It predicts with the one before, and takes the new one when it is told again."""
    theta0, new = device.part.model.theta0, model_like(device, 0.01)
    train(device, **{"global": theta0})

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(versions, *(("note_working", die) if point == "note_working" else ("kept_models", Dead())))
        with pytest.raises(KeyboardInterrupt):
            take(device, new)
    again = make_device(tmp_path / "state")
    assert again.part.working.run == "r"
    again.part.assemble(rollout(again, new))
    again.part.receive_event(1, VersionTaken(BYTES, new))
    assert again.part.working.run == "roll-1"
    again.part.receive_event(2, VersionLeft(""))
    assert again.part.working.run == "r"


class Dead:
    def save(self, *_: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("what", ["model", "bundle", "nonsense"])
def test_another_version_than_the_run_says_is_refused_by_name(device: Device, tmp_path: Path, what: str) -> None:
    new = model_like(device, 0.01)
    run = rollout(device, new)
    data, theta, why = {
        "model": (BYTES, model_like(device, 0.02), "another model came than the run says"),
        "bundle": (other_bundle(), new, "another bundle came than the run says"),
        "nonsense": (BYTES[:1000], new, "what came as the bundle of the run is none"),
    }[what]
    for call in (device.part.assemble(run).env.verify, device.part.assemble(run).env.attempt):  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match=why):
            call(data, theta)
    assert device.predict(X).model == "initial"


def other_bundle() -> np.ndarray:
    """The same graphs under another name, so of another identity."""
    return np.frombuffer(repacked(read_bundle(WRIST), {"name": "other"}), np.uint8)


def test_a_new_bundle_is_taken_and_a_run_for_it_can_be_trained(device: Device, tmp_path: Path) -> None:
    theta0 = device.part.model.theta0
    train(device, **{"global": theta0, "personal": theta0 + np.float32(0.5)})
    data, own = other_bundle(), device.part.model.sha256
    sha256 = open_version_id(data)
    assert take(device, theta0, data=data, bundle=sha256)["installed"] == 1
    assert device.part.working.model.name == "other" and device.part.model.name != "other"
    assert "personal" in device.part.working.kept.models, "its shapes fit, so the personal component came along"
    device.part.receive_event(2, VersionKept())
    again = make_device(tmp_path / "state")
    again.part.assemble(Run(id="r2", method="fedavg", bundle=sha256, classes=NAMES))
    assert again.part.model.name == "other"
    again.part.assemble(Run(id="r3", method="fedavg", bundle=own, classes=NAMES))
    assert again.part.model.name != "other"
    again.part.receive_event(9, VersionLeft("roll-1"))
    again.part.versions.leave("roll-1")
    assert again.part.working.run == "r" and again.part.working.model.sha256 == own


def open_version_id(data: np.ndarray) -> str:
    return parse(data.tobytes()).sha256


def test_a_bundle_that_computes_something_else_is_not_taken(device: Device, tmp_path: Path) -> None:
    kept = read_bundle(WRIST)
    golden = np.frombuffer(kept.parts["golden"], np.uint8).copy()
    entry = next(e for e in kept.manifest["golden"]["arrays"] if e["name"] == "out.logits")
    golden[entry["offset"] : entry["offset"] + 4] = np.frombuffer(np.float32(1e3).tobytes(), np.uint8)
    data = np.frombuffer(repacked(kept, {"name": "spoilt"}, golden=golden.tobytes()), np.uint8)
    found = take(device, device.part.model.theta0, data=data, bundle=open_version_id(data))
    assert found == {"golden_failed": 1.0} and device.predict(X).model == "initial"


def test_a_damaged_note_keeps_the_version(device: Device) -> None:
    take(device, model_like(device, 0.01))
    (device.part.directory / versions.FILE).write_text("{")
    device.part.versions.leave_unconfirmed("r2")
    assert device.part.working.run == "roll-1"


def test_a_version_with_other_shapes_leaves_the_personal_component_with_the_old_one(device: Device) -> None:
    kept = replace(device.part.working, kept=versions.KeptModels({"global": X[0, 0], "personal": X[0, 1]}))

    class Other:
        layout, sha256 = object(), "other"

    carried = versions.carry_over(kept, Other(), device.part.model.theta0)  # type: ignore[arg-type]
    assert list(carried.models) == ["global"]


def test_a_hospital_that_joins_waits_for_the_end_of_a_rollout_and_a_device_does_not(device: Device) -> None:
    run = rollout(device, device.part.model.theta0)
    assert "with which it began" in fixes_hospitals(run) and fixes_members(run) == ""


def test_a_version_with_fewer_classes_than_the_run_does_not_suit_a_device(device: Device) -> None:
    pytest.importorskip("torch", reason="a bundle is compiled here")
    path = compile_network("mlp", ["--input", "3,64", "--classes", "2"], 0, print)
    version = read_bundle(path)
    assert take(device, version.theta0, data=np.fromfile(path, np.uint8), bundle=version.sha256) == {"unfit": 1.0}
    assert device.predict(X).model == "initial"
