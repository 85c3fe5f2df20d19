"""What an application meets between runs: new runs, reboots, labels that nobody listed, runs that are refused."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.method import UP, Role
from edge_sdk.contract.run import Run
from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedavg import FedavgModel
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.daemon.device_file import DeviceFile, find_normaliser
from edge_sdk.nodes.daemon.device_service import DeviceService
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.nodes.device.progress_log import ProgressLog
from edge_sdk.nodes.models.warm_start import find_earlier
from edge_sdk.wire.link import Backoff
from tests.model.bundle_files import repacked

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
X = np.random.default_rng(0).normal(size=(40, 3, 64)).astype(np.float32)
NAMES = tuple("abc")


def make_device(directory: Path, **more: LocalTraining) -> Device:
    return Device("d1", hospital="h", broker="mqtt://127.0.0.1:1", bundle=WRIST, directory=directory, **more)


def make_run(device: Device, id: str = "r", classes: tuple[str, ...] = NAMES) -> Run:
    return Run(id=id, method="fedavg", bundle=device.part.model.sha256, classes=classes)


def samples(names: tuple[str, ...] = NAMES) -> Samples:
    return Samples(X, tuple(names[i % len(names)] for i in range(len(X))))


def end_run(device: Device, run: Run, theta: np.ndarray) -> None:
    device.part.assemble(run)
    device.part.receive_event(1, Models(1, {"global": theta, "personal": theta}))
    device.part.receive_event(2, Finished(1))


def best(device: Device, theta: np.ndarray, names: tuple[str, ...] = NAMES) -> list[str]:
    return [names[i] for i in device.part.model.predict(theta, X)[:, : len(names)].argmax(1)]


def test_a_new_run_keeps_the_working_model_until_its_own_is_there(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    device.train_on(samples())
    theta = device.part.model.theta0 * np.float32(0.5)
    end_run(device, make_run(device), theta)
    new = make_run(device, "r2", ("c", "b", "a", "d"))
    device.part.assemble(new)
    assert not device.finished.is_set()
    found = device.predict(X)
    assert [*found.labels] == best(device, theta) and found.model == "personal" and found.run == "r"
    device.part.receive_event(3, Models(1, {"global": -theta}))
    found = device.predict(X)
    assert [*found.labels] == best(device, -theta, new.classes) and found.run == "r2"


def test_a_device_predicts_after_a_reboot_without_samples_and_network(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    device.train_on(samples())
    theta = device.part.model.theta0 * np.float32(0.5)
    end_run(device, make_run(device), theta)
    again = make_device(tmp_path)
    assert again.predict(X).labels == device.predict(X).labels
    assert again.predict(X).run == "r"


def test_predictions_are_names_and_probabilities_from_the_first_moment(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    found = device.predict(X)
    assert found.model == "initial" and len(found) == len(X) and found.classes == device.part.model.bundle.class_names
    np.testing.assert_allclose(found.probabilities.sum(1), 1, atol=1e-6)
    one = device.predict(X[0])[0]
    assert one.label == found.labels[0] and one.probability == pytest.approx(found.probabilities[0].max(), rel=1e-5)
    with pytest.raises(UsageError, match="which = 'nonsense'"):
        device.predict(X, "nonsense")


def test_samples_with_a_label_that_the_run_does_not_list_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = make_device(tmp_path)
    device.train_on(samples(("a", "b", "juggling", "c")), held_out=samples(("juggling", "a")))
    with caplog.at_level(logging.WARNING):
        env = device.part.env(make_run(device))
    assert env.samples == 30 and env.score(device.part.model.theta0)["samples"] == 20
    assert "d1: training: 10 of 40 samples" in caplog.text and "juggling" in caplog.text
    device.train_on(samples(("juggling",)))
    with pytest.raises(UsageError, match="no training sample has a label of this run"):
        device.part.env(make_run(device))


def test_a_refused_run_reaches_the_application(tmp_path: Path) -> None:
    events: list[object] = []
    device = make_device(tmp_path)
    device.on_event = events.append
    device.train_on(samples())
    other = Run(id="other", method="fedavg", bundle="ab" * 32, classes=NAMES)
    device.runtime.membership.next_run = other  # as a hello of the hospital brings it
    device.runtime.membership.take_up_pending(0.0)
    assert device.finished.is_set() and device.refusal.startswith("run other: the run is for bundle abab")  # named once
    assert [type(event).__name__ for event in events] == ["RunRefused"]


def test_files_of_old_runs_are_removed_but_never_those_of_the_working_model(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    device.train_on(samples())
    for number in range(8):
        for ending in (".db", ".db-wal"):
            (tmp_path / f"r{number}{ending}").write_bytes(b"x")
        (tmp_path / f"r{number}.bodies").mkdir()
        os.utime(tmp_path / f"r{number}.db", (1000 + number, 1000 + number))
    end_run(device, make_run(device, "r0"), device.part.model.theta0)
    device.part.assemble(make_run(device, "r9"))
    assert {path.stem for path in tmp_path.glob("r*.db*")} <= {"r0", "r7", "r6", "r7.db", "r6.db", "r0.db"}
    assert (tmp_path / "r0.npz").exists() and (tmp_path / "r0.db").exists()
    assert not (tmp_path / "r3.bodies").exists()


def test_a_line_says_that_a_device_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    progress = ProgressLog("d1", "r", logging.getLogger("auscult.d1"), lambda: now[0])
    role = progress.watch(Role(lambda env: (0, []), lambda env, state, sender, m: (state + 1, []), None, int))
    with caplog.at_level(logging.INFO):
        for _ in range(30):
            assert role.receive(None, 4, UP, FedavgModel(None, 7, 1)) == (5, [])
            now[0] += 1
    assert [record.getMessage() for record in caplog.records] == [
        f"d1: run r, round 7: FedavgModel worked on in 0.0 s, {count} questions so far" for count in (1, 11, 21)
    ]


@pytest.mark.parametrize(
    ("url", "cap"), [("mqtt://127.0.0.1", 10), ("mqtt://localhost", 10), ("mqtts://far", Backoff().cap)]
)
def test_a_broker_on_this_machine_is_tried_again_within_seconds(tmp_path: Path, url: str, cap: float) -> None:
    device = Device("d1", hospital="h", broker=url, bundle=WRIST, directory=tmp_path)
    assert [link.backoff.cap for link in device.runtime.all_links] == [cap]


def test_a_trace_is_normalised_as_the_bundle_says_like_live_samples(tmp_path: Path) -> None:
    """An application and a replay must not give one model different inputs."""
    kept = read_bundle(WRIST)
    how = {"normalise": {"mean": [0.0, 1.0, 2.0], "scale": [1.0, 2.0, 4.0]}}
    bundle = tmp_path / "n.bundle"
    bundle.write_bytes(repacked(kept, {"signal": {**kept.manifest["signal"], **how}}))
    rows = [f"{at / 32:.5f},{at % 7},{at % 5},{at % 3},{'ab'[at // 320 % 2]}" for at in range(3200)]
    (tmp_path / "t.csv").write_text("\n".join(["time,ax,ay,az,activity", *rows]) + "\n")
    plain, ready = (samples_of(Cut(tmp_path / "t.csv"), how) for how in (None, find_normaliser(bundle)))
    np.testing.assert_array_equal(ready.train.x, read_bundle(bundle).signal.normalise(plain.train.x))
    assert ready.train.x[0, 2, 0] == (plain.train.x[0, 2, 0] - 2) / 4 and find_normaliser(WRIST) is None
    given = {"broker": "mqtt://127.0.0.1:1", "bundle": bundle, "directory": tmp_path / "s"}
    file = DeviceFile(name="d", hospital="h", data=Cut(tmp_path / "t.csv"), **given)
    np.testing.assert_array_equal(DeviceService(file).device.part.train.x, ready.train.x)


def start(device: Device, run: Run) -> np.ndarray:
    """The personal model with which a device that has not trained yet begins a run of Ditto, or None."""
    assembly = device.part.assemble(run)
    found = assembly.role.start(assembly.env)[0].inner.v
    device.part.receive_event(9, Finished(1))
    return found


def test_a_new_run_begins_with_the_personal_model_that_is_there(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    device.train_on(samples())
    ditto = replace(make_run(device, "r2"), method="ditto")
    assert start(device, ditto) is None
    theta = device.part.model.theta0 * np.float32(0.5)
    end_run(device, make_run(device, "r3"), theta)
    device = make_device(tmp_path)  # also after a restart
    device.train_on(samples())
    np.testing.assert_array_equal(start(device, replace(ditto, id="r4")), theta)
    assert start(device, replace(ditto, id="r3")) is None  # the run that has made it goes on from its own record
    assert start(device, replace(ditto, id="r5", classes=("c", "b", "a"))) is None  # outputs mean something else
    end_run(device, make_run(device, "r6"), np.full_like(theta, np.nan))
    assert start(device, replace(ditto, id="r7")) is None


def test_a_new_run_begins_anew_where_the_application_says_so_or_the_model_is_another(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    device.train_on(samples())
    end_run(device, make_run(device), device.part.model.theta0 * np.float32(0.5))
    ditto = replace(make_run(device), id="r2", method="ditto")
    cold = make_device(tmp_path, training=LocalTraining(warm_start=False))
    cold.train_on(samples())
    assert start(cold, ditto) is None
    assert find_earlier(device.part.working, device.part.model, ditto, device.part.log)
    slots = device.part.model.layout.slots
    other = SimpleNamespace(layout=Layout((*slots[:-1], replace(slots[-1], name="another"))), name="other")
    assert not find_earlier(device.part.working, other, ditto, device.part.log)
