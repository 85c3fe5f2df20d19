"""Public inputs in a file, and a bundle's outputs and pulls on them as FedAL's devices are given them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.data.public_inputs import read_public, store_public
from edge_sdk.data.samples import Samples
from edge_sdk.errors import Cancelled, UsageError
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.assembly import check_identity
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.nodes.kernels import outputs
from edge_sdk.replay.cohorts.datasets import set_apart
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.traces.synth import write_traces

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 3, 64)).astype(np.float32)
CLASSES = tuple("abcdefghijklmn")


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(WRIST)


def test_a_file_of_public_inputs(tmp_path: Path) -> None:
    path = store_public(tmp_path / "some" / "public.npz", X)
    found = read_public(path)
    assert (found.x == X).all() and len(found.sha256) == 64
    assert found.sha256 == read_public(store_public(tmp_path / "again.npz", X)).sha256
    assert found.sha256 != read_public(store_public(tmp_path / "other.npz", X + 1)).sha256
    assert found.shaped((192,), "d").shape == (70, 192)
    with pytest.raises(UsageError, match=r"d: public inputs of shape \(3, 64\), the bundle's input is \(3, 32\)"):
        found.shaped((3, 32), "d")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X.astype(np.float64)}, "float64"),
        ({"x": X[:0]}, "at least one row"),
        ({"x": X * np.nan}, "not finite"),
        ({"y": X}, "no array x"),
        ({"x": X, "labels": X}, "labels"),
    ],
)
def test_what_is_no_such_file(arrays: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(UsageError, match=said):
        read_public(tmp_path / "bad.npz")


def device(tmp_path: Path, public: Path | None) -> Device:
    made = Device(
        "d1",
        hospital="h",
        broker="mqtt://127.0.0.1",
        bundle=WRIST,
        directory=tmp_path / "state",
        training=LocalTraining(public=public),
    )
    made.train_on(Samples(X, tuple(CLASSES[i % 14] for i in range(70))))
    return made


def test_a_device_checks_what_the_run_names(tmp_path: Path) -> None:
    path = store_public(tmp_path / "public.npz", X)
    sha = read_public(path).sha256
    run = Run(id="r", method="fedal", classes=CLASSES, public=sha)
    env = device(tmp_path, path).part.env(run)
    assert env.public.count == 70 and env.classes == 14 and env.private.count == 70
    fedproto = {"features": 64, "al": 0, "lf_local": 0, "lf_transfer": 0}
    for bad, other, said in (
        (Run(id="r", method="fedal", classes=CLASSES, public=sha, settings=fedproto), path, "offers no features"),
        (run, None, "name their file"),
        (Run(id="r", method="fedal", classes=CLASSES, public="0" * 64), path, "public inputs 000000000000"),
        (Run(id="r", method="fedal", classes=CLASSES), path, "public inputs none"),
        (Run(id="r", method="fedal", classes=CLASSES, public=sha, settings={"public_batch": 71}), path, "70 public"),
    ):
        with pytest.raises(UsageError, match=said):
            device(tmp_path, other).part.env(bad)


def test_a_bundle_of_ones_own_tells_the_runs_classes_apart() -> None:
    run = Run(id="r", method="fedal", classes=CLASSES, bundle="1" * 64)
    check_identity(run, "wrist", "2" * 64, 14, "device")
    with pytest.raises(UsageError, match="14 classes, this device has wrist with 13"):
        check_identity(run, "wrist", "1" * 64, 13, "device")
    with pytest.raises(UsageError, match="is for bundle"):
        check_identity(Run(id="r", method="fedavg", bundle="1" * 64), "wrist", "2" * 64, 14, "device")


def test_outputs_and_pulls_are_the_bundles(model: Model) -> None:
    made = outputs.inputs(model, X)
    rows, c = np.arange(69, -1, -1), RNG.normal(size=(70, 14)).astype(np.float32)
    assert (made.logits(model.theta0, rows[:9]) == model.predict(model.theta0, X[rows[:9]])).all()
    whole = made.pull(model.theta0, rows, c)  # more than a bundle takes at once
    parts = model.vjp(model.theta0, X[rows[:40]], c[:40])[1] + model.vjp(model.theta0, X[rows[40:]], c[40:])[1]
    assert np.linalg.norm(whole - parts) < 1e-4 * np.linalg.norm(parts)


def test_work_gives_way(model: Model) -> None:
    made = outputs.inputs(model, X, cancel=lambda: True)
    with pytest.raises(Cancelled):
        made.logits(model.theta0, np.arange(3))
    with pytest.raises(Cancelled):
        made.pull(model.theta0, np.arange(3), np.zeros((3, 14), np.float32))


def test_public_samples_are_nobodys(tmp_path: Path) -> None:
    train = np.arange(0, 200, 2)
    common, rest = set_apart(train, 30, seed=1)
    assert len(common) == 30 and sorted([*common, *rest]) == train.tolist()
    assert common.tolist() != set_apart(train, 30, seed=2)[0].tolist()
    with pytest.raises(UsageError, match="--public 100"):
        set_apart(train, 100, seed=1)


def test_windows_of_persons_who_are_no_devices_are_public(tmp_path: Path) -> None:
    write_traces(tmp_path, devices=4, seed=1, minutes=2.0)
    found = form_cohort(str(tmp_path), 2, 3, {"public": 40})
    assert found.public is not None and found.public.shape == (40, 3, 64)
    devices = sorted(d for some in found.tree.values() for d in some)
    assert 1 <= len(devices) < 4
    tables = found.tables(tmp_path / "data", lambda node: {})
    assert sorted(tables) == devices and "public" not in tables[devices[0]]
    assert form_cohort(str(tmp_path), 2, 3, {}).public is None
    with pytest.raises(UsageError, match="windows of 4 traces are not enough"):
        form_cohort(str(tmp_path), 2, 3, {"public": 100_000})
