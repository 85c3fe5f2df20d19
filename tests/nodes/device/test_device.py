"""What an application does with a device: samples before it starts, predictions at any time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples, Unlabelled
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.run_env import parts_of
from tests.delivery.fleet import eventually
from tests.model.bundle_files import repacked

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
X = np.random.default_rng(0).normal(size=(40, 3, 64)).astype(np.float32)
NAMES = tuple("abc")  # of the bundle's 14 outputs


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device("d1", hospital="h", broker="mqtt://127.0.0.1:1", bundle=WRIST, directory=tmp_path / "state")


def samples(count: int = 40) -> Samples:
    return Samples(X[:count], tuple(NAMES[i % 3] for i in range(count)))


def in_a_run(device: Device, **models: np.ndarray) -> None:
    """A run with three classes has ended with these models."""
    device.train_on(samples())
    run = Run(id="r", method="fedavg", bundle=device.part.model.sha256, classes=NAMES)
    device.part.assemble(run)
    device.part.receive_event(1, Models(1, models))


def test_predictions_are_names_of_the_run_even_where_the_bundle_has_more_outputs(device: Device) -> None:
    theta = device.part.model.theta0
    assert device.part.model.predict(theta, X).argmax(1).max() >= len(NAMES)
    in_a_run(device, personal=theta)
    best = device.part.model.predict(theta, X)[:, : len(NAMES)].argmax(1)
    assert [*device.predict(X).labels] == [NAMES[i] for i in best]


def test_predictions_before_any_run_are_the_initial_models_and_say_so(device: Device) -> None:
    expected = device.part.model.predict(device.part.model.theta0, X).argmax(1)
    names = device.part.model.bundle.class_names
    for which in (None, "personal", "initial"):
        found = device.predict(X, which)
        assert [*found.labels] == [names[code] for code in expected] and found.model == "initial"


def test_a_window_with_an_unknown_number_is_refused_and_named(device: Device) -> None:
    x = X.copy()
    x[2, 0, 5] = np.nan
    for predict in (device.predict, device.log_probabilities):
        with pytest.raises(UsageError, match="predict: row 2 has a value that is not finite"):
            predict(x)
    with pytest.raises(UsageError, match="row 0"):
        device.predict(np.full_like(X[0], np.inf))


def test_a_model_that_is_not_there_is_told(device: Device) -> None:
    with pytest.raises(UsageError, match="which = 'nonsense': expected one of personal, global"):
        device.predict(X, "nonsense")
    theta = device.part.model.theta0
    in_a_run(device, **{"global": theta})
    assert device.predict(X).labels == device.predict(X, "global").labels  # the best that there is
    with pytest.raises(UsageError, match="which = 'personal': run r has made only global"):
        device.predict(X, "personal")
    device.part.receive_event(2, Models(2, {"companion": -theta}))
    own = device.part.model.predict(-theta, X)[:, : len(NAMES)].argmax(1)
    assert [*device.predict(X).labels] == [*device.predict(X, "companion").labels] == [NAMES[i] for i in own]


def test_starting_without_samples_is_told_to_who_starts_it(tmp_path: Path) -> None:
    """But for a bundle that says what signal it takes: there, samples may be observed later."""
    table = tmp_path / "table.bundle"
    table.write_bytes(repacked(read_bundle(WRIST), {"signal": None}))
    device = Device("d1", hospital="h", broker="mqtt://127.0.0.1:1", bundle=table, directory=tmp_path / "state")
    with pytest.raises(UsageError, match="call train_on"):
        device.start()
    with pytest.raises(UsageError, match="call train_on"):
        device.run()


def test_samples_cannot_be_changed_while_the_device_runs(device: Device) -> None:
    device.train_on(samples())
    device.start()
    try:
        with pytest.raises(UsageError, match="d1 is running: stop"):
            device.train_on(samples(20))
        with pytest.raises(UsageError, match="d1 is running"):
            device.start()
    finally:
        device.stop()
    device.train_on(samples(20))
    assert device.part.train is not None and len(device.part.train) == 20


def labelling_run(device: Device) -> Run:
    settle = {"optimiser": "adam", "label_times": 1}
    return Run(id="r", method="fedavg", bundle=device.part.model.sha256, classes=NAMES, settle=settle)


def test_samples_without_a_label_are_given_beside_the_others(device: Device) -> None:
    loose = Unlabelled(X[30:], np.repeat([4, 9], 5))
    device.train_on(samples(20), validation=samples(10), unlabelled=loose)
    own = device.part.env(labelling_run(device)).own
    assert own is not None and own.count == 10 and own.recording.tolist() == [4] * 5 + [9] * 5
    device.train_on(samples(20), validation=samples(10))
    own = device.part.env(labelling_run(device)).own
    assert own is not None and own.count == 0


def test_a_function_reads_them_in_a_run_that_wants_them(device: Device) -> None:
    asked: list[int] = []
    device.train_on(samples(20), validation=samples(10), unlabelled=lambda: asked.append(1))
    device.part.env(Run(id="r", method="fedavg", bundle=device.part.model.sha256, classes=NAMES))
    assert (
        not asked
        and parts_of(device.part, labelling_run(device), cancellable=False).unlabelled is None
        and asked == [1]
    )


def test_unlabelled_samples_of_another_shape_are_refused(device: Device) -> None:
    with pytest.raises(UsageError, match=r"unlabelled: samples of shape \(3, 8\), the bundle's input is \(3, 64\)"):
        device.train_on(samples(), unlabelled=Unlabelled(X[:2, :, :8].copy(), np.zeros(2, np.int64)))


def test_a_device_says_what_is_wrong_with_its_broker(device: Device) -> None:
    device.train_on(samples())
    with device:
        why = eventually(device.why)
    assert why.startswith("its broker: ") and "refused" in why
