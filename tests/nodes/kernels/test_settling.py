"""What devices bring into a run that settles and augments, and how they predict afterwards."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from edge_sdk.algebra.ensemble import Ensemble, log_probabilities, pooled, smoothed
from edge_sdk.contract.run import Run
from edge_sdk.data.augment import Augment, augment, with_copies
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.directory import LATER, decode_run, encode_run
from edge_sdk.methods.settling.method import Choice
from edge_sdk.methods.shared.evaluation.reports import Event, Models
from edge_sdk.methods.shared.training.local import gradient, steady_gradient
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.assembly import augmentation_of, make_env, method_of
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.kernels import plain
from edge_sdk.nodes.kernels.family import DeviceParts
from edge_sdk.nodes.models import kept_models

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
RNG = np.random.default_rng(0)
X = RNG.normal(0, 0.5, (12, 3, 64)).astype(np.float32)
Y = np.array([2, 5, 5, 2, 2, 5, 5, 2, 2, 5, 9, 9])


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(WRIST)


def run_of(model: Model, **more) -> Run:
    classes = tuple(f"class-{i}" for i in range(model.classes))
    return Run(id="r", method="fedavg", bundle=model.sha256, classes=classes, **more)


def parts(model: Model, run: Run, **more) -> DeviceParts:
    given = dict(held_out=(X[4:6], Y[4:6]), validation=(X[10:], Y[10:]), augment=augmentation_of(run)) | more
    return DeviceParts(run=run, settings=None, whose="device d", model=model, x=X[:4], y=Y[:4], **given)


def env_of(model: Model, run: Run, **more):
    env = make_env(run, model.layout, model.theta0, **plain.for_device(parts(model, run, **more)))
    return replace(env, me="d")


# Settling -------------------------------------------------------------------------------------------------------
def test_a_device_settles_on_its_validation_samples_within_the_classes_that_it_knows(model):
    env = env_of(model, run_of(model, settle={"optimiser": "adam"}))
    assert env.own_classes == (2, 5, 9)  # 9 only in validation, 5 and 2 in training; the test part does not count
    np.testing.assert_array_equal(env.validation.labels, Y[10:])
    np.testing.assert_array_equal(env.held_out.labels, Y[4:6])
    np.testing.assert_array_equal(env.validation.logits(model.theta0), model.predict(model.theta0, X[10:]))


def test_a_device_without_validation_samples_cannot_settle(model):
    with pytest.raises(UsageError, match=r"run\.settle: device d has no validation samples"):
        env_of(model, run_of(model, settle={"optimiser": "adam"}), validation=None)
    env_of(model, run_of(model), validation=None)


def test_a_device_changes_its_training_and_validation_samples_over(model):
    run = run_of(model, settle={"optimiser": "adam"}, augment={"noise": 0.1})
    env = replace(env_of(model, run, unlabelled=(X[6:10], np.zeros(4, np.int64))), walked={"made before": X})
    other = env.swapped(env)
    assert (other.samples, other.swapped, other.walked, other.own_classes) == (2, None, {}, env.own_classes)
    loss, slope = other.grad_fn(model.theta0, None)
    wanted = model.loss_grad(model.theta0, X[10:], Y[10:])
    assert loss == pytest.approx(wanted[0], rel=1e-6) and slope == pytest.approx(wanted[1], abs=1e-6)
    changed = augment(X[10:], Augment(noise=0.1), np.random.default_rng(4))
    assert other.augmented(model.theta0, None, np.random.default_rng(4))[0] == pytest.approx(
        model.loss_grad(model.theta0, changed, Y[10:])[0], rel=1e-6
    )
    np.testing.assert_array_equal(other.validation.labels, Y[:4])
    np.testing.assert_array_equal(other.validation.logits(model.theta0), model.predict(model.theta0, X[:4]))
    np.testing.assert_array_equal(other.own.labels, Y[10:])
    assert other.own.unlabelled() is env.own.unlabelled() and len(other.own.features(0, None)) == 2
    assert other.own.taught(np.array([1]), np.array([5]))["samples"] == 2 + 1
    assert env_of(model, run, validation=(X[:0], Y[:0])).swapped is None  # on nothing nobody trains
    assert env_of(model, run_of(model)).swapped is None


def test_a_run_says_what_is_wrong_with_its_settling(model):
    with pytest.raises(UsageError, match=r"run\.settle: .*step.* is no setting, did you mean"):
        method_of(run_of(model, settle={"step": [1]}))
    with pytest.raises(UsageError, match=r"run\.settle: rate = -1\.0"):
        method_of(run_of(model, settle={"rate": -1.0}))
    with pytest.raises(UsageError, match="settling starts at a global model"):
        method_of(replace(run_of(model, settle={"optimiser": "adam"}), method="hsgd"))


def test_the_fleets_choice_goes_into_the_metrics():
    choice = Choice(100, 400, 0.5, 80, 75, 90, 9)
    assert isinstance(choice, Event)
    assert list(choice.to_metrics()) == ["kind", *(f.name for f in fields(Choice))]
    assert choice.to_sentence() == (
        "settling: 9 devices choose 100 steps, local model of 400 steps with weight 0.5: "
        "88.9 % right on validation samples, alone 83.3 %"
    )
    assert "no validation sample" in replace(choice, samples=0).to_sentence()


def test_runs_without_settling_are_written_as_before(model):
    plain_run = run_of(model)
    bytes_before = encode_run(plain_run)
    assert not any(name.encode() in bytes_before for name in LATER)
    assert decode_run(bytes_before) == plain_run
    settles = run_of(model, settle={"steps": (0, 5)}, augment={"noise": 0.1})
    assert decode_run(encode_run(settles)) == settles


# Augmentation ---------------------------------------------------------------------------------------------------
def test_an_augmented_gradient_is_that_of_augmented_samples(model):
    run = run_of(model, augment={"rotation": 0.3, "noise": 0.1})
    env, how, rows = env_of(model, run), Augment(rotation=0.3, noise=0.1), np.array([3, 0, 1])
    loss, slope = env.augmented(model.theta0, rows, np.random.default_rng(4))
    changed = augment(X[rows], how, np.random.default_rng(4))
    wanted = model.grad_fn(changed, Y[rows])(model.theta0, None)
    assert loss == wanted[0] and slope.tobytes() == wanted[1].tobytes()
    assert env_of(model, run_of(model)).augmented is None


def test_kept_copies_are_drawn_from_for_each_sample_of_a_step(model):
    run = run_of(model, augment={"rotation": 0.3, "noise": 0.1, "copies": 3}, seed=5)
    env, how, rows = env_of(model, run), Augment(rotation=0.3, noise=0.1, copies=3), np.array([3, 0, 1, 1, 2])
    loss, slope = env.augmented(model.theta0, rows, np.random.default_rng(4))
    copies = with_copies(X[:4], how, np.random.default_rng([5, 0, crc32(b"d"), plain.COPIES]))
    drawn = np.random.default_rng(4).integers(4, size=5) * 4 + rows
    wanted = model.grad_fn(copies[drawn], Y[rows])(model.theta0, None)
    assert loss == wanted[0] and slope.tobytes() == wanted[1].tobytes() and len({*(drawn // 4)}) > 1


def test_kept_copies_are_the_same_after_a_device_has_died_and_others_on_another(model):
    def losses(seed, whose):
        run = run_of(model, augment={"noise": 0.2, "copies": 2}, seed=seed)
        given = plain.for_device(replace(parts(model, run), whose=whose))
        return [given["augmented"](model.theta0, None, np.random.default_rng(k))[0] for k in range(3)]

    first = losses(5, "device d")
    assert first == losses(5, "device d") == losses(5, "client d")  # of a simulation
    assert not {*first} & {*losses(6, "device d"), *losses(5, "device e")}


def test_what_a_gradient_with_own_labels_holds_is_made_at_its_call_and_again_after_its_release(model, monkeypatch):
    made, trains = [], plain.trains
    monkeypatch.setattr(plain, "trains", lambda parts: made.append(len(parts.x)) or trains(parts))
    env = env_of(model, run_of(model, settle={"optimiser": "adam"}), unlabelled=(X[6:10], np.zeros(4, np.int64)))
    rows, labels = np.array([0, 2, 3]), np.array([5, 2, 5])
    made.clear()
    fields, others = env.own.taught(rows, labels), env.own.taught(rows[:1], labels[:1])
    assert fields["samples"] == 4 + 3 and others["samples"] == 4 + 1 and max(made) == 4  # nothing lies side by side yet
    loss, gradient = fields["grad_fn"](model.theta0, None)
    wanted = model.loss_grad(model.theta0, np.concatenate([X[:4], X[6:10][rows]]), np.concatenate([Y[:4], labels]))
    assert loss == pytest.approx(wanted[0], rel=1e-6)
    fields["grad_fn"](model.theta0, None)
    assert made.count(4 + 3) == 1  # kept from call to call
    env.own.release()
    again, same = fields["grad_fn"](model.theta0, None)
    assert made.count(4 + 3) == 2 and again == loss and same.tobytes() == gradient.tobytes()


def test_what_is_drawn_is_decided_by_run_round_node_purpose_and_step(model):
    env = env_of(model, run_of(model, augment={"noise": 0.2}))

    def losses(env, round, *purpose):
        slope = gradient(env, round, *purpose)
        return [slope(model.theta0, None)[0] for _ in range(3)]

    first = losses(env, 1, 2)
    assert first == losses(env, 1, 2) and len({*first}) == 3
    others = [
        losses(env, 2, 2),
        losses(env, 1, 3),
        losses(replace(env, me="e"), 1, 2),
        losses(replace(env, seed=9), 1, 2),
    ]
    assert len({x for one in [first, *others] for x in one}) == 15


def test_within_a_meta_step_the_same_rows_are_the_same_samples(model):
    env = env_of(model, run_of(model, augment={"noise": 0.2}))
    slope, rows = steady_gradient(env, 1), np.array([0, 2])
    assert slope(model.theta0, rows)[0] == slope(model.theta0, rows)[0] != slope(model.theta0, np.array([0, 1]))[0]
    assert steady_gradient(env, 2)(model.theta0, rows)[0] != slope(model.theta0, rows)[0]


def test_without_augmentation_gradients_are_those_of_before(model):
    env = env_of(model, run_of(model))
    assert gradient(env, 3, 1) is env.grad_fn and steady_gradient(env, 3) is env.grad_fn


def test_augmentation_that_does_not_fit_is_refused(model):
    with pytest.raises(UsageError, match=r"run\.augment: .*rotate"):
        augmentation_of(run_of(model, augment={"rotate": 1.0}))
    with pytest.raises(UsageError, match="method fedal trains on outputs"):
        augmentation_of(replace(run_of(model, augment={"noise": 1.0}), method="fedal"))


# Afterwards -----------------------------------------------------------------------------------------------------
@pytest.fixture
def device(tmp_path):
    made = Device("d", hospital="h", broker="mqtt://127.0.0.1:1", bundle=WRIST, directory=tmp_path / "state")
    made.train_on(Samples(X[:4], tuple(f"class-{y}" for y in Y[:4])))
    return made


def test_a_device_predicts_as_the_fleet_has_chosen(device, model):
    device.part.current = run_of(model, settle={"optimiser": "adam"})
    personal, local = (RNG.normal(0, 0.2, model.layout.size).astype(np.float32) for _ in range(2))
    kept = {"global": model.theta0, "personal": personal, "local": local}
    device.part.receive_event(7, Models(3, kept, Ensemble(0.25, (2, 5))))
    p = [log_probabilities(model.predict(theta, X), (2, 5)) for theta in (personal, local)]
    np.testing.assert_array_equal(device.log_probabilities(X), pooled(*p, 0.25))

    def labels(*how, **more):
        return [*device.predict(X, *how, **more).labels]

    assert labels() == [f"class-{c}" for c in pooled(*p, 0.25).argmax(1)]
    assert labels("local") == [f"class-{c}" for c in p[1].argmax(1)]
    assert labels("global") == [f"class-{c}" for c in model.predict(model.theta0, X).argmax(1)]
    assert labels(smooth=3) == [f"class-{c}" for c in smoothed(pooled(*p, 0.25), 3).argmax(1)]


def test_what_is_kept_outlives_the_process(device, model):
    device.part.current = run_of(model)
    kept = {"global": model.theta0, "personal": model.theta0, "local": model.theta0}
    device.part.receive_event(7, Models(3, kept, Ensemble(0.5, (1, 4))))
    assert kept_models.load(device.part.kept_path(device.part.current)).ensemble == Ensemble(0.5, (1, 4))
    device.part.receive_event(8, Models(3, kept))
    assert kept_models.load(device.part.kept_path(device.part.current)).ensemble is None


def test_the_parts_of_a_device_have_the_bundles_shape(device):
    with pytest.raises(UsageError, match=r"samples of shape \(3, 8\)"):
        device.train_on(Samples(X, ("a",) * 12), validation=Samples(X[:, :, :8].copy(), ("a",) * 12))
