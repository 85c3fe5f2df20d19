"""Clients that are bootstrapped from the recorded devices of a folder of traces."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("torch", reason="the simulations of these tests need the aggregator")

from edge_sdk import cli
from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of
from edge_sdk.errors import UsageError
from edge_sdk.nodes.daemon.device_file import find_normaliser
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from edge_sdk.replay.reports import simulated, terminal
from edge_sdk.simulation.clients import bootstrap
from edge_sdk.simulation.clients.bootstrap import BootstrappedClients, choose_devices, find_blocks, resample
from edge_sdk.simulation.clients.clients import Clients
from edge_sdk.simulation.clients.numbered import make_tree
from tests.simulation.jobs import job_of, play
from tests.simulation.test_job import fail_after, model_of, without_times
from tests.simulation.threads import on_all, thread_ranks

PERSONS, SAMPLES, RATE = 3, 192, 32
BEGAN = datetime(2020, 1, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three persons, each with five recordings of two activities; no two samples of anybody are alike."""
    found = tmp_path_factory.mktemp("traces")
    for person in range(PERSONS):
        random = np.random.default_rng(person)
        lines = ["time,ax,ay,az,activity"]
        for recording in range(10):
            label, start = ("sit", "walk")[recording % 2], BEGAN + timedelta(minutes=recording)
            for i, v in enumerate(random.standard_normal((SAMPLES + 32 * person, 3)) + 2 * (recording % 2)):
                at = (start + timedelta(seconds=i / RATE)).isoformat(timespec="milliseconds")
                lines.append(f"{at},{v[0]:.6f},{v[1]:.6f},{v[2]:.6f},{label}")
        (found / f"p{person}.csv").write_text("\n".join(lines) + "\n")
    return found


WRIST = find_shipped_bundle("wrist.bundle")


def population(folder, clients, seed=3, hospitals=2):
    found = BootstrappedClients(form_cohort(str(folder), 1, seed, {}), make_tree(clients, hospitals), seed)
    found.use(found.files, [WRIST], {})
    return found


def recorded(folder, person):
    """The parts of a device of a replay."""
    cut = Cut(trace=folder / f"p{person}.csv", held_out=0.2, validation=0.2)
    return samples_of(cut, find_normaliser(WRIST))


def rows(x):
    return [row.tobytes() for row in x]


def sensed(x):
    """The single samples of windows (N, channels, window)."""
    return {sample.tobytes() for window in x for sample in window.T}


# What a client has ----------------------------------------------------------------------------------------------
def test_a_client_trains_on_a_resample_of_its_person_and_is_judged_on_what_that_one_held_out(folder):
    clients = population(folder, 8)
    assert clients.recorded == ("p0", "p1", "p2")
    drawn = [clients.data(name) for names in clients.tree.values() for name in names]
    for i, found in enumerate(drawn):
        person = recorded(folder, i % PERSONS)
        names = np.array(clients.cohort.classes)
        assert {*rows(found.train[0])} <= {*rows(person.train.x)}
        assert Counter(names[found.train[1]]) == Counter(person.train.labels)
        for mine, theirs in ((found.held_out, person.held_out), (found.validation, person.validation)):
            assert rows(mine[0]) == rows(theirs.x) and tuple(names[mine[1]]) == theirs.labels
    assert len({*rows(drawn[0].train[0])}) < len(drawn[0].train[0])  # some are there twice
    first, again = (rows(drawn[i].train[0]) for i in (0, PERSONS))
    assert first != again and first == rows(population(folder, 5000).data("c0000").train[0])
    assert first != rows(population(folder, 8, seed=4).data("c0").train[0])


def test_nobody_trains_on_what_anybody_is_judged_by(folder):
    """Also not on a part of it: neighbouring windows share samples."""
    clients = population(folder, 8)
    drawn = [clients.data(f"c{i}") for i in range(8)]
    trained = set.union(*(sensed(found.train[0]) for found in drawn))
    for found in drawn:
        assert not trained & sensed(found.held_out[0]) and not trained & sensed(found.validation[0])


def test_windows_are_drawn_in_blocks_of_one_recording():
    recording, y = np.repeat([0, 2, 3, 7], [10, 3, 8, 1]), np.repeat([1, 0, 1, 0], [10, 3, 8, 1])
    blocks = find_blocks(recording, y)
    assert {code: some.tolist() for code, some in blocks.items()} == {
        0: [[10, 13], [21, 22]],
        1: [[0, 8], [8, 10], [13, 21]],
    }
    found = [resample(blocks, np.random.default_rng(seed)) for seed in range(200)]
    assert {(len(drawn), int((y[drawn] == 0).sum())) for drawn in found} == {(22, 4)}
    starts = {0, 8, 10, 13, 21}
    for drawn in found:
        assert drawn[0] in starts and all(b == a + 1 or b in starts for a, b in pairwise(drawn.tolist()))
    share = np.bincount(np.concatenate(found), minlength=22) / 200
    assert len({drawn.tobytes() for drawn in found}) > 50 and share.min() > 0.3


def test_fewer_clients_than_persons_are_some_of_them(folder):
    names = tuple(f"p{i}" for i in range(20))
    found = [choose_devices(names, 5, seed) for seed in range(5)]
    assert len({*found}) > 1 and all(some == tuple(sorted({*some} & {*names})) and len(some) == 5 for some in found)
    assert choose_devices(names, 5, 0) == found[0] and choose_devices(names[::-1], 20, 0) == tuple(sorted(names))
    clients = population(folder, 2)
    assert len(clients.recorded) == 2 and "bootstrapped from 2 of 3 recorded devices" in clients.cohort.summary


def test_memory_does_not_grow_with_the_clients(folder, monkeypatch):
    """What is kept of a million is the windows of the persons, and copies up to a number of bytes."""
    clients = population(folder, 1000)
    drawn = [clients.data(f"c{i:03}") for i in range(0, 1000, 50)]
    assert len(clients.read) == PERSONS and clients.kept == 1024
    assert all(found.held_out[0] is drawn[i % PERSONS].held_out[0] for i, found in zip(range(3), drawn, strict=False))
    one = max(found.train[0].nbytes for found in drawn)
    for room, kept in ((10 * one, 10), (1, 1)):
        monkeypatch.setattr(bootstrap, "KEPT_BYTES", room)
        assert population(folder, 1000).kept == kept


# A simulation ---------------------------------------------------------------------------------------------------
def small(out, folder, clients=7, **more):
    run = {"options": {}, "rounds": 2, "settings": {"local_epochs": 1}, "data": str(folder), "method": "fedslr", **more}
    return job_of(out, clients=clients, cohort=min(3, clients), more={"save_every": 1e-9}, **run)


def test_two_ranks_and_a_run_that_went_on_come_to_the_same(tmp_path, folder, monkeypatch):
    with monkeypatch.context() as room:  # there is none: each client is made anew whenever it is asked
        room.setattr(bootstrap, "KEPT_BYTES", 1)
        held, env = [], Clients.env
        room.setattr(Clients, "env", lambda self, name: (env(self, name), held.append(len(self.envs)))[0])
        one = play(small(tmp_path / "one", folder))
    assert {*held} == {1}
    two = on_all(thread_ranks(2), lambda rank: play(small(tmp_path / "two", folder, resume=rank.number > 0), rank))
    assert [without_times(found) for found in two] == [without_times(one)] * 2
    with pytest.raises(RuntimeError):
        play(small(tmp_path / "again", folder), progress=fail_after(1))
    said = []
    again = play(small(tmp_path / "again", folder, resume=True), say=said.append)
    assert without_times(again) == without_times(one) and any("going on after" in text for text in said)
    assert model_of(tmp_path / "again") == model_of(tmp_path / "two") == model_of(tmp_path / "one")
    assert one["simulation"]["recorded"] == ["p0", "p1", "p2"] and len(one["devices"]) == 7
    assert "bootstrapped from 3 recorded devices" in simulated.section(one)
    assert "bootstrapped from 3 recorded devices" in terminal.summary(one)


def test_a_folder_that_has_changed_is_not_gone_on_with(tmp_path, folder):
    copy = shutil.copytree(folder, tmp_path / "traces")
    with pytest.raises(RuntimeError):
        play(small(tmp_path / "out", copy), progress=fail_after(1))
    (copy / "p2.csv").rename(copy / "p9.csv")
    with pytest.raises(UsageError, match=r"begun with recorded = \['p0', 'p1', 'p2'\], and not \['p0', 'p1', 'p9'\]"):
        play(small(tmp_path / "out", copy, resume=True))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shift", "0.1"], "--shift: a client has the features of the person"),
        (["--samples", "20"], "--samples is for a data set"),
        (["--method", "hsgd"], "a device has whole samples here"),
    ],
)
def test_what_only_a_data_set_has_is_refused(tmp_path, folder, options, said, capsys):
    assert cli.main(["simulate", str(folder), "--clients", "9", "--out", str(tmp_path / "out"), *options]) == 2
    assert said in capsys.readouterr().err
