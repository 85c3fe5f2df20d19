"""The strongest neighbour: chosen on validation and never on the test, on a generated fleet; and what is said of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="trees and linear models are scikit-learn's")

from edge_sdk.data.augment import Augment
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.split import split
from edge_sdk.data.traces.windows import cut_windows
from edge_sdk.replay.metrics.scores import ALONE, describe_pairs, score_devices, summarise
from edge_sdk.replay.neighbours import find, fitted
from edge_sdk.replay.neighbours.candidates import LINEAR, NETWORK, TREES, list_candidates
from edge_sdk.replay.neighbours.features import features_of, kind_of_features
from edge_sdk.replay.neighbours.find import FoundNeighbours, Question, find_neighbours
from edge_sdk.replay.neighbours.holders import Holder, draw_devices, pool_samples
from edge_sdk.replay.neighbours.look import NeighbourSource, look_round
from edge_sdk.replay.neighbours.rows import choose_alone, describe_neighbours, find_own_network, rows_of
from edge_sdk.replay.neighbours.told import merge_neighbours
from edge_sdk.replay.reports.verdict import titles_of, verdict
from edge_sdk.replay.traces.synth import write_traces

CLASSES = 12


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted, "TREES", 15)


@lru_cache(maxsize=1)
def fleet() -> tuple[Holder, ...]:
    """Three generated persons, each with three parts."""
    with TemporaryDirectory() as folder:
        write_traces(Path(folder), devices=3, seed=7, minutes=4)
        traces = load_folder(Path(folder))
    found = []
    for trace in traces:
        train, test = split(cut_windows(trace, 64, 32), 0.3)
        train, validation = split(train, 0.3)
        found.append(Holder(trace.name, *((w.x.astype(np.float32), w.y) for w in (train, validation, test))))
    return tuple(found)


def look(holders: tuple[Holder, ...], how: Augment | None = None) -> FoundNeighbours:
    pool = pool_samples([h.train for h in holders if not h.newcomer], 3)
    return find_neighbours(Question(holders, pool, CLASSES, how=how or Augment(), seed=3))


def shuffled(holder: Holder) -> Holder:
    x, y = holder.test
    return replace(holder, test=(x, np.random.default_rng(1).permutation(y)))


def written(holder: Holder) -> dict:
    return {"device": holder.name, "alone": [], "confusion": {}}


def test_the_labels_of_the_test_change_no_choice_and_no_guess() -> None:
    one, other = look(fleet()), look(tuple(map(shuffled, fleet())))
    assert choose_alone(one, None) == choose_alone(other, None)
    for found, again in ((one.alone, other.alone), (one.pooled, other.pooled)):
        assert {k: (c.candidate, c.right) for k, c in found.items()} == {
            k: (c.candidate, c.right) for k, c in again.items()
        }
        assert all((found[k].test[h.name] == again[k].test[h.name]).all() for k in found for h in fleet())
    everybody = [written(h) for h in fleet()]
    assert rows_of(one, None, everybody, CLASSES) != rows_of(other, None, everybody, CLASSES), "only what is counted"


def test_what_is_chosen_is_the_sum_over_validation_samples() -> None:
    found = look(fleet())
    kind, right = choose_alone(found, None)
    assert {*right} == {TREES, LINEAR} and right[kind] == max(right.values()) > 0.6 * found.samples
    wrong = tuple(replace(h, validation=(h.validation[0], (h.validation[1] + 1) % CLASSES)) for h in fleet())
    assert max(choose_alone(look(wrong), None)[1].values()) < 0.3 * found.samples
    best = max(right.values()) + 1
    assert choose_alone(found, ("local_fleet", best))[0] == NETWORK, "a network that the devices trained alone competes"
    assert choose_alone(found, ("local_fleet", best - 1))[0] == kind, "of equals the first"


def test_a_device_predicts_only_the_classes_that_it_knows() -> None:
    one = fleet()[0]
    single = one.train[1] == one.train[1][0]
    poor = replace(one, train=(one.train[0][single], one.train[1][single]))
    found = look((poor, *fleet()[1:]))
    for kind in (TREES, LINEAR):
        assert {*found.alone[kind].test[poor.name]} == {one.train[1][0]}
        for h in fleet()[1:]:
            assert {*found.alone[kind].test[h.name]} <= {*h.train[1]}


def test_without_validation_samples_it_is_the_trees_and_the_report_says_that_nothing_chose_them() -> None:
    blind = tuple(replace(h, validation=(h.validation[0][:0], h.validation[1][:0])) for h in fleet())
    found = look(blind)
    told = describe_neighbours(found, None, 3, 0.0) | {"state": "computed"}
    assert (
        told["chosen"] == TREES and told["samples"] == 0 and told["kinds"][TREES]["setting"] == "at least 1 in a leaf"
    )
    assert "nothing to choose by" in verdict(result_of(told, [0.1, 0.2, 0.3], [0.8, 0.8, 0.8]))


def test_newcomers_choose_nothing_and_are_not_pooled() -> None:
    *others, last = fleet()
    late = replace(last, newcomer=True)
    wrong = replace(late, validation=(late.validation[0], np.zeros_like(late.validation[1])))
    one, other = look((*others, late)), look((*others, wrong))
    assert one.samples == sum(len(h.validation[1]) for h in others) and one.pool == sum(len(h.train[1]) for h in others)
    assert choose_alone(one, None) == choose_alone(other, None) and late.name in one.alone[TREES].test


def test_copies_are_tried_where_the_run_augments() -> None:
    windows, plain = fleet()[0].train[0], Augment(mixup=0.2)
    assert not any(one.copies for one in list_candidates(windows, plain)), "mixed samples have no label of their own"
    assert sum(one.copies for one in list_candidates(windows, Augment(noise=0.1))) == 5
    few = tuple(replace(h, train=(h.train[0][::8], h.train[1][::8])) for h in fleet())
    assert look(few, Augment(noise=0.1)).alone.keys() == {TREES, LINEAR}


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (np.zeros((2, 3, 64), np.float32), "features"),
        (np.zeros((2, 30), np.float32), "values"),
        (np.zeros((2, 3, 32, 32), np.float32), "pixels"),
        (np.zeros((2, 3, 64, 64), np.float32), ""),
        (np.zeros((2, 12), np.int64), ""),
    ],
)
def test_what_samples_are_described_by(x: np.ndarray, kind: str) -> None:
    assert kind_of_features(x) == kind and (not kind or len(features_of(x)) == 2)


@pytest.mark.parametrize("shape", [(3, 64), (30,), (1, 8, 8)])
def test_a_device_without_validation_and_test_samples_has_no_row(shape: tuple[int, ...]) -> None:
    """As of one that was dealt a single sample, which it trains on."""
    found = features_of(np.zeros((0, *shape), np.float32))
    assert len(found) == 0 and found.shape[1:] == features_of(np.zeros((2, *shape), np.float32)).shape[1:]


def test_of_many_devices_some_are_drawn() -> None:
    names = tuple(f"d{i}" for i in range(50))
    some = draw_devices(names, 10, 3)
    assert len(some) == 10 and some == draw_devices(names, 10, 3) and {*some} < {*names}
    assert draw_devices(names, 50, 3) == names


def test_a_network_that_settling_has_trained_counts_as_the_one_alone() -> None:
    device = {
        "device": "d",
        "alone": [],
        "confusion": {"test": {"local": [[3]]}, "validation": {"local": [[2, 1], [0, 4]]}},
    }
    assert find_own_network([device]) == ("mixed_in", 6)
    assert find_own_network([]) is None and find_own_network([{**device, "confusion": {}}]) is None


# What is said ---------------------------------------------------------------------------------------------------
TOLD = {"state": "computed", "on": "features", "chosen": TREES, "samples": 9, "devices": 3, "of": 3}
TOLD |= {"pooled": {"chosen": LINEAR}}


def result_of(told: dict, ours: list[float], alone: list[float]) -> dict:
    against = {"personalised": describe_pairs(ours, alone)}
    return {"neighbours": told, "statistics": {"all": {f"against_{ALONE}": against}}}


def test_the_sentence_says_who_wins() -> None:
    begin = "Training alone is better here: trees on features reach 80.0 %, the personal models 70.0 % (-10.0 ["
    assert verdict(result_of(TOLD, [0.65, 0.7, 0.75], [0.76, 0.8, 0.84])).startswith(begin)
    assert "; 3 of 3 devices worse by more than a point" in verdict(result_of(TOLD, [0.6] * 3, [0.7] * 3))
    network = {**TOLD, "chosen": NETWORK}
    joined = verdict(result_of(network, [0.9] * 3, [0.7] * 3))
    assert joined.startswith("Joining pays: the personal models reach 90.0 %, alone a network reaches 70.0 % (+20.0")
    assert verdict(result_of(TOLD, [0.6, 0.8, 0.7], [0.7] * 3)).startswith("Nobody clearly wins here: trees")
    assert verdict(result_of(TOLD, [0.9], [0.7])).startswith("2 devices or fewer are too few")
    assert verdict({"statistics": {}}) == "", "a result of before says nothing"


def test_without_a_neighbour_no_win_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = NeighbourSource(parts=lambda name: 1 / 0, written=[], fleet=[], bundle=Path("none"), classes=2)
    said = verdict({"neighbours": look_round(source, 0, 3, print)["told"]})
    assert "left out (--no-neighbours)" in said and "nothing is said" in said
    said = verdict({"neighbours": look_round(replace(source, split=True), 9, 3, print)["told"]})
    assert said.startswith("No neighbour is defined here, because each sample is divided")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    said = verdict({"neighbours": look_round(source, 9, 3, print)["told"]})
    assert "was not computed" in said and "pip install 'auscult[replay]'" in said and "nothing is said" in said


def test_several_seeds_say_all_that_they_have_chosen() -> None:
    both = merge_neighbours([TOLD, {**TOLD, "chosen": LINEAR}])
    assert both["samples"] == 18 and titles_of({"neighbours": both})[ALONE] == (
        "alone (trees on features or linear model on features)"
    )
    assert merge_neighbours([TOLD, {"state": "missing"}]) == {"state": "missing"}


# In a run -------------------------------------------------------------------------------------------------------
def test_a_simulation_begins_its_report_with_who_wins(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the model of these data is compiled with it")
    from edge_sdk.replay.reports.page import make_page
    from edge_sdk.replay.reports.terminal import device_table
    from tests.simulation.jobs import job_of, play

    write_traces(tmp_path / "traces", devices=3, seed=7, minutes=4)
    more = {"data": tmp_path / "traces", "options": {}, "rounds": 1, "neighbours": 3}
    result = play(job_of(tmp_path / "out", method="fedavg", **more))
    said = verdict(result)
    assert said.startswith("Training alone is better here: ")
    assert make_page(result).partition("<body>")[2].startswith(f"<p class='verdict'><b>{said}</b></p>")
    models = result["statistics"]["all"]["models"]
    assert {"alone_network", "alone_linear", "alone_trees", "alone", "pooled", "global"} <= {*models}
    told = result["neighbours"]
    assert models["alone"] == models[told["kinds"][told["chosen"]]["row"]]
    assert "   alone " in device_table(result).splitlines()[0]


def test_rows_are_in_groups_and_differences(tmp_path: Path) -> None:
    device = {
        "device": "d", "classes": 2, "validation": 4, "labels": {"a": 3, "b": 7}, "alone": [],
        "accuracy": {"personal": 0.5}, "validation_accuracy": {}, "confusion": {"test": {"personal": [[1, 1], [1, 1]]}},
    }  # fmt: skip
    from edge_sdk.replay.neighbours.rows import add_rows

    (found,) = add_rows(score_devices([device], ("a", "b")), {"d": {ALONE: [[2, 0], [1, 1]]}}, ("a", "b"))
    group = summarise([found])["all"]
    assert [*group["models"]] == ["majority", "alone", "personalised"] and {*group["against_alone"]} == {"personalised"}
    assert group["against_alone"]["personalised"]["mean"] == pytest.approx(-0.25)
    assert found["accuracy"]["alone"] == 0.75


def test_who_waits_is_told_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said, clock = list[str](), iter([4.0, 9.0, 18.0, 27.0, 36.0])
    monkeypatch.setattr(find.time, "monotonic", lambda: next(clock))
    progress = find.SearchProgress(said.append, 3, began=0.0, told=0.0)
    for done in (0, 1, 2, 2, 3):
        progress.tell(done)
    assert said == [
        "  2 of 3 devices after 18 s; some 9 s for the others, then all data in one place",
        "  3 of 3 devices after 36 s; now all data in one place",
    ]
