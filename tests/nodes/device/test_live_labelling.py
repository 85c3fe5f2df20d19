"""A device that observes, in runs whose devices label their own windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.methods.settling import labelling
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.evaluation.evaluation import Models
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.run_env import parts_of
from edge_sdk.nodes.models.working_model import initial_model
from tests.nodes.device.test_app_defects import end_run
from tests.nodes.device.test_live_device import BEGAN, NAMES, device, make_run, observe_in_pieces

__all__ = ["device"]  # the fixture

SETTLE = {"optimiser": "adam", "label_times": 1}


def test_a_run_in_which_devices_label_has_their_windows_without_a_label(device: Device) -> None:
    observe_in_pieces(device, 120)
    device.label("walk", BEGAN, BEGAN + 20)
    device.label("sit", BEGAN + 20, BEGAN + 40)
    parts = parts_of(device.part, replace(make_run(device), settle=SETTLE), cancellable=False)
    assert parts.unlabelled is not None and parts.validation is not None
    loose, recording = parts.unlabelled
    assert len(loose) == len(recording) == device.count_windows()[""]
    assert len(parts.x) + len(parts.validation[0]) == sum(device.count_windows()[name] for name in NAMES)
    assert {*parts.y.tolist()} == {*parts.validation[1].tolist()} == {0, 1}
    own = device.part.env(replace(make_run(device), settle=SETTLE)).own
    assert own is not None and own.count == len(loose)
    device.live.end_run()
    assert not [path.name for path in device.live.directory.glob("*.np[yz]")]


def windows_of(device: Device, run: Run) -> tuple[bytes, bytes, bytes]:
    """The samples of a run: those with a label, their labels, those without one."""
    parts = parts_of(device.part, run, cancellable=False)
    assert parts.unlabelled is not None
    return np.array(parts.x).tobytes(), parts.y.tobytes(), np.array(parts.unlabelled[0]).tobytes()


def test_an_evaluation_between_two_halves_of_a_run_leaves_its_samples_as_they_are(device: Device) -> None:
    """A run that is held by day went on with other windows, and with labels that it had given to those of before."""
    observe_in_pieces(device, 120)
    device.label("walk", BEGAN, BEGAN + 20)
    device.label("sit", BEGAN + 20, BEGAN + 40)
    run = replace(make_run(device), settle=SETTLE)
    before = windows_of(device, run)
    device.label("walk", BEGAN + 40, BEGAN + 60)
    judged = Run(id="judge", seed=1, method="rollout", rounds=1, classes=NAMES, settings={"theta": "0" * 64})
    device.part.assemble(judged)
    assert windows_of(device, run) == before


def test_labels_that_a_device_gave_itself_stay_with_their_windows(device: Device) -> None:
    """After another run in between they were those of whatever windows were in the same places."""
    observe_in_pieces(device, 120)
    device.label("walk", BEGAN, BEGAN + 20)
    device.label("sit", BEGAN + 20, BEGAN + 40)
    run, settling = replace(make_run(device), settle=SETTLE), Settling(trees=5, label_thresholds=(0.1,), label_times=1)
    env = device.part.env(run)
    given = labelling.label(env, settling, device.part.model.theta0, 0)
    before = dict(zip([row.tobytes() for row in env.own.unlabelled()[given.rows]], given.labels.tolist(), strict=True))
    assert len(given.rows) > 20 and labelling.taught(env, given).self_labels is given
    device.unlabel(BEGAN, BEGAN + 10)
    device.label("walk", BEGAN + 80, BEGAN + 90)
    device.part.env(replace(run, id="other"))
    env = device.part.env(run)
    there = labelling.taught(env, given).self_labels
    rows = [row.tobytes() for row in env.own.unlabelled()]
    assert all(before.get(rows[at]) == label for at, label in zip(there.rows, there.labels.tolist(), strict=True))
    assert len(given.rows) > len(there.rows) == len({*before} & {*rows}) > 20


def test_other_runs_leave_them_where_they_are(device: Device) -> None:
    observe_in_pieces(device, 120)
    device.label("walk", BEGAN, BEGAN + 20)
    parts = parts_of(device.part, make_run(device), cancellable=False)
    assert parts.unlabelled is None and parts.validation is None and len(parts.x) == device.count_windows()["walk"]
    assert not [path.name for path in device.live.directory.glob("*unlabelled*")]


# Questions ------------------------------------------------------------------------------------------------------
def test_a_device_asks_for_stretches_that_a_label_answers(device: Device) -> None:
    observe_in_pieces(device, 240)
    device.label("walk", BEGAN, BEGAN + 60)
    found = device.questions(most=2)
    assert len(found) == 2 and all(0 < q.ended - q.began <= 30 for q in found)
    assert all(q.began > BEGAN + 58 for q in found)
    (first, p), (second, rest) = found[0].likeliest
    assert first != second and 1 >= p >= rest > 0
    for question in found:
        assert device.label("sit", question.began, question.ended)
    asked = {(q.began, q.ended) for q in device.questions(most=50)}
    assert asked and not asked & {(q.began, q.ended) for q in found}


def test_classes_without_names_are_not_told_by_numbers(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "1" and "0"."""
    monkeypatch.delitem(device.part.model.bundle.manifest, "class_names")
    device.part.working = initial_model("d1", device.part.model)
    observe_in_pieces(device, 120)
    assert [question.likeliest for question in device.questions(most=1)] == [()]


def test_after_a_run_the_likeliest_labels_are_named(device: Device) -> None:
    observe_in_pieces(device, 120)
    device.label("walk", BEGAN, BEGAN + 40)
    end_run(device, make_run(device), device.part.model.theta0)
    (first, p), (second, rest) = device.questions(most=1)[0].likeliest
    assert {first, second} <= {*NAMES} and first != second and 1 >= p >= rest > 0


def test_a_class_without_any_label_is_asked_about(device: Device) -> None:
    """A personal model that has settled rules it out: its windows were sure to be something else, and never asked."""
    observe_in_pieces(device, 120)
    device.label("walk", BEGAN, BEGAN + 40)
    end_run(device, make_run(device), device.part.model.theta0)
    working = device.part.working
    free = device.questions(most=3)
    models = {"personal": working.kept.models["personal"], "global": working.kept.models["personal"]}
    device.part.working = replace(working, kept=replace(working.kept, models=models, ensemble=Ensemble(classes=(0,))))
    assert device.part.working.predict(np.zeros((1, 3, 64), np.float32), None).probabilities[0, 1:].max() == 0
    assert device.questions(most=3) == free and all(len(question.likeliest) == 2 for question in free)


def test_classes_that_a_personal_model_rules_out_are_said(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    """It was never right on them, and nobody heard why."""
    caplog.set_level("INFO")
    run, theta = replace(make_run(device), classes=(*NAMES, "run", "fall")), device.part.model.theta0
    observe_in_pieces(device, 120)
    device.label("walk", BEGAN, BEGAN + 40)
    device.part.assemble(run)
    device.part.receive_event(1, Models(1, {"global": theta, "personal": theta}, Ensemble(classes=(0, 1))))
    assert "d1: the personal model of run r never says run, fall: nothing to train on has that label" in caplog.text


def test_another_spelling_of_a_class_is_that_class(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    """`Walk` was no class of a run that has `walk`, and its windows were left out."""
    observe_in_pieces(device, 120)
    device.label("Walk", BEGAN, BEGAN + 20)
    device.label("SIT", BEGAN + 20, BEGAN + 40)
    parts = parts_of(device.part, make_run(device), cancellable=False)
    counts = device.count_windows()
    assert len(parts.x) == counts["Walk"] + counts["SIT"] and {*parts.y.tolist()} == {0, 1}
    assert "left out" not in caplog.text


def test_who_has_observed_nothing_has_no_questions(device: Device) -> None:
    assert device.questions() == ()
    with pytest.raises(UsageError, match="most = 0, expected a number of questions"):
        device.questions(most=0)
