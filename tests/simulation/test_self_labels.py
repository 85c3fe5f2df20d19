"""Devices that label their own windows, in a simulation: as in a replay of the same traces."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the model of these data is compiled with it")

from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import unlabelled_of
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.nodes.kernels.labels import wants_unlabelled
from edge_sdk.replay.metrics.scores import NAMES
from edge_sdk.replay.planning.bundles import compile_network
from edge_sdk.replay.traces.synth import write_traces
from edge_sdk.replay.tuning import memory
from edge_sdk.simulation.clients import bootstrap, population
from tests.simulation.jobs import job_of, no_kernels, play

SETTLE = {
    "optimiser": "adam", "batch": 0, "steps": [0, 5], "local_steps": [5], "trees": 10, "copies": 0, "statistics": True,
    "label_times": 2, "label_every": 1, "label_thresholds": [0.5], "label_precision": 0.2,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("traces")
    write_traces(found, devices=4, seed=1, minutes=3.0)
    return found


def job(folder: Path, out: Path, settle=SETTLE, **more):
    classes = len(load_folder(folder)[0].classes)
    bundle = compile_network("features", ["--input", "3,64", "--classes", str(classes)], 0, print)
    given = {"method": "fedavg", "settings": {"batch": 0}, "rounds": 3, "bundle": (bundle,), "settle": settle}
    given |= {"options": {"labelled": 6.0}} | more
    return job_of(out, data=str(folder), **given)


@pytest.mark.parametrize("more", [{}, {"uploads": {"bits": 4}, "robust": {"rule": "trimmed-mean"}}], ids=["", "robust"])
def test_devices_of_a_replay_label_as_they_do_there(folder: Path, tmp_path: Path, more) -> None:
    fleet = memory.prepare(job(folder, tmp_path / "b", **more).replay, no_kernels, print)
    assert fleet.unlabelled.keys() == fleet.samples.keys()
    expected = memory.play(fleet, {"batch": 0}).devices
    result = play(job(folder, tmp_path / "a", **more))
    found = {d["device"]: d["validation_accuracy"] for d in result["devices"]}
    assert found == {n: {NAMES.get(m, m): a for m, a in each.items()} for n, each in expected.items()}
    taken = [line for line in result["curve"] if line["kind"] == "self-labels"]
    assert [line["round"] for line in taken] == [1, 2] and taken[0]["threshold"]


def test_windows_without_a_label_change_what_devices_reach(folder: Path, tmp_path: Path, monkeypatch) -> None:
    whole = play(job(folder, tmp_path / "a"))
    monkeypatch.setattr(population, "unlabelled_of", lambda *_: None)
    none = play(job(folder, tmp_path / "b"))
    (chosen,) = [line for line in none["curve"] if line["kind"] == "settling"]
    assert chosen["devices"] == 4 and whole["accuracy"] != none["accuracy"]


def test_nobody_reads_them_in_a_run_that_does_not_want_them(folder: Path, tmp_path: Path, monkeypatch) -> None:
    def refuse(*_):
        raise AssertionError("read")

    for module in (population, bootstrap, memory):
        monkeypatch.setattr(module, "unlabelled_of", refuse)
    settle = {key: value for key, value in SETTLE.items() if not key.startswith(("label", "statistics"))}
    plain = job(folder, tmp_path / "a", settle)
    assert (
        not wants_unlabelled(plain.replay.as_run(())) and not memory.prepare(plain.replay, no_kernels, print).unlabelled
    )
    assert play(plain)["accuracy"]


def test_bootstrapped_clients_have_those_of_their_device(folder: Path, tmp_path: Path) -> None:
    from edge_sdk.simulation.runs.plan import prepare

    made = prepare(job(folder, tmp_path / "a", clients=5, options={"labelled": 6.0}), print)
    name, table = next(iter(made.population.tables.items()))  # type: ignore[attr-defined]
    client = next(c for some in made.population.tree.values() for c in some)
    own = unlabelled_of(Cut(**table))
    found = made.population.data(client).unlabelled
    assert name == made.recorded[0] and own is not None and found is not None and len(found[0]) == len(own)
