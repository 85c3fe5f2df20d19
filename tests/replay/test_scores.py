"""From what devices have written to metrics, groups and differences."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.methods.settling.method import Choice
from edge_sdk.replay.metrics.scores import choose_for_fleet, find_trial, score_devices, summarise
from edge_sdk.replay.reports.choices import choice_lines, describe_choice
from edge_sdk.replay.result import find_areas, find_choice

CLASSES = ("a", "b")


def trial(optimiser: str, steps: int, correct: int, right: int) -> dict:
    """A way of training alone that gets so many of 5 samples of each class right."""
    return {
        "optimiser": optimiser, "steps": steps, "validation_correct": correct,
        "test": [[right, 5 - right], [5 - right, right]], "accuracy": right / 5,
    }  # fmt: skip


def device(name: str, alone: list, validation: int | None = 4, classes: int = 2, **right: int) -> dict:
    matrices = {model: [[n, 5 - n], [5 - n, n]] for model, n in right.items()}
    return {
        "device": name,
        "classes": classes,
        "validation": validation,
        "labels": {"a": 3, "b": 7},
        "accuracy": {model: n / 5 for model, n in right.items()},
        "validation_accuracy": {"personal": 0.5},
        "confusion": {"test": matrices, "validation": {}},
        "alone": alone,
    }


def test_the_fleet_s_choice_is_by_sums_and_a_device_s_by_its_own():
    first = [trial("adam", 25, 3, 1), trial("adam", 50, 2, 2), trial("sgd", 25, 0, 0), trial("sgd", 50, 0, 0)]
    other = [trial("adam", 25, 0, 3), trial("adam", 100, 4, 4), trial("sgd", 25, 0, 0), trial("sgd", 100, 1, 0)]
    assert choose_for_fleet([first, other]) == ("adam", 100)
    assert find_trial(first, "adam", 100)["steps"] == 50, "a device that trains less in the run trains less alone"
    one, two = score_devices([device("d", first, personal=4), device("e", other, personal=2)], CLASSES)
    assert one["accuracy"] == {"personalised": 0.8, "local": 0.2} and two["accuracy"]["local"] == 0.8
    assert one["local"] == {
        "own": {"optimiser": "adam", "steps": 25},
        "fleet": {"optimiser": "adam", "steps": 50},
        "chosen_by": "device",
    }
    assert one["metrics"]["local_fleet"]["accuracy"] == 0.4
    assert one["metrics"]["majority"]["accuracy"] == 0.5 and one["recall"]["majority"] == {"a": 0.0, "b": 1.0}
    assert one["confusion"]["personalised"] == [[4, 1], [1, 4]]
    assert "alone" not in one and one["validation_accuracy"] == {"personalised": 0.5}


def test_the_local_model_of_settling_has_a_name_of_its_own():
    settled = device("d", [trial("adam", 25, 3, 1)], personal=4, local=5) | {"alone_accuracy": 0.2}
    settled["validation_accuracy"] |= {"local": 0.75}
    (one,) = score_devices([settled], CLASSES)
    assert one["accuracy"] == {"personalised": 0.8, "mixed_in": 1.0, "local": 0.2}
    assert one["metrics"]["local"]["accuracy"] == 0.2 and one["metrics"]["mixed_in"]["accuracy"] == 1.0
    assert one["confusion"]["mixed_in"] == [[5, 0], [0, 5]] and one["confusion"]["local"] == [[1, 4], [4, 1]]
    assert one["validation_accuracy"] == {"personalised": 0.5, "mixed_in": 0.75}
    line = {"kind": "evaluation", "final": True, "auc": {"test_local": 0.75, "test_personal": 0.5}}
    assert find_areas([line]) == {"mixed_in": 0.75, "personalised": 0.5}


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ((200, 0, 0.0), "200 steps from the shared model, without a local one"),
        ((0, 0, 0.0), "0 steps: the shared model as it is"),
        ((0, 400, 1.0), "weight 1: the personalised model is training alone, 400 steps"),
        ((25, 100, 0.5), "25 steps from the shared model, mixed by weight 0.5 with a local model of 100 steps"),
        ((0, 1, 0.25), "the shared model as it is (0 steps), mixed by weight 0.25 with a local model of 1 step"),
    ],
)
def test_what_the_fleet_has_chosen_is_said_in_words(chosen, said):
    choice = Choice(*chosen, correct=7, local_correct=5, samples=9, devices=3)
    found = find_choice([{"kind": "round"}, choice.to_metrics(), {"kind": "finished"}])
    assert describe_choice(found) == f"{said} (7 of 9 validation samples right, training alone 5)"
    assert choice_lines([{"seed": 1, "chosen": found}, {"seed": 2, "chosen": None}]) == [
        f"seed 1: {describe_choice(found)}"
    ]
    assert find_choice([{"kind": "finished"}]) is None and choice_lines([{"seed": 1, "chosen": None}]) == []


def test_of_equal_choices_adam_and_fewer_steps_go_first():
    assert choose_for_fleet([[trial(o, n, 3, 1) for o in ("adam", "sgd") for n in (25, 50)]]) == ("adam", 25)
    assert choose_for_fleet([]) is None


def test_a_device_without_validation_samples_takes_the_fleet_s_choice():
    seen = [trial("adam", 25, 1, 1), trial("adam", 50, 3, 2)]
    blind = [trial("adam", 25, 0, 5), trial("adam", 50, 0, 4)]
    _, found = score_devices([device("d", seen, personal=1), device("e", blind, validation=0, personal=1)], CLASSES)
    assert found["local"]["chosen_by"] == "all" and found["accuracy"]["local"] == 0.8


def test_groups_and_differences():
    alone = [trial("adam", 25, 3, 2)]
    devices = score_devices(
        [device("d", alone, personal=4), device("e", alone, personal=1), device("f", alone, classes=1, personal=5)],
        CLASSES,
    )
    found = summarise(devices)
    assert found["all"]["devices"] == 3 and found["two_classes"]["devices"] == 2
    assert found["two_classes"]["models"]["personalised"]["accuracy"] == pytest.approx(0.5)
    assert [*found["all"]["models"]] == ["majority", "local", "local_fleet", "personalised"]
    difference = found["all"]["against_local"]["personalised"]
    assert difference["mean"] == pytest.approx((0.4 - 0.2 + 0.6) / 3)
    assert difference["worse"] == difference["worse_by_a_point"] == pytest.approx(1 / 3) and difference["devices"] == 3
    half = 4.3027 * np.std([0.4, -0.2, 0.6], ddof=1) / 3**0.5
    assert difference["low"] == pytest.approx(0.8 / 3 - half, abs=1e-4)
    assert 0.8 / 3 + half > 1 and difference["high"] == 1.0
    assert {*found["all"]["against_local_fleet"]} == {"personalised"}


def test_without_a_validation_part_training_alone_has_an_accuracy_and_no_matrix():
    plain = device("d", [], validation=None, personal=4)
    plain["alone_accuracy"] = 0.6
    (found,) = score_devices([plain], CLASSES)
    assert found["metrics"]["local"] == {"accuracy": 0.6} and found["local"] == {}
    group = summarise([found])["all"]
    assert group["against_local"]["personalised"]["mean"] == pytest.approx(0.2)
    assert "local_fleet" not in group["models"] and group["against_local_fleet"] == {}


def test_a_model_that_no_device_can_judge_alone_has_no_statistics():
    """A split model: there are accuracies, and no matrices."""
    split = device("d", [], validation=None) | {"confusion": {}, "accuracy": {"global": 0.7}}
    assert summarise(score_devices([split], CLASSES)) == {}
