"""What each node of a replay is given of a data set: its own part, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.patients import patients_of, rows_of
from edge_sdk.data.samples import Stored, samples_of
from edge_sdk.errors import UsageError
from edge_sdk.replay import datasets
from edge_sdk.replay.cohorts.form import form_cohort


def given(everybody, directory: Path):
    tables = everybody.tables(directory, lambda node: everybody.shapes)
    return {node: Stored(table["samples"]) for node, table in tables.items()}


def rows(x):
    return [row.tobytes() for row in x.reshape(len(x), -1)]


@pytest.mark.parametrize("deal", ["mixed", "iid", "classes=1", "dirichlet=0.5"])
def test_parts_do_not_overlap_and_nobody_is_judged_on_what_is_trained_on(tmp_path, deal):
    everybody = form_cohort("breast-cancer", 3, 1, {"devices": 2, "deal": deal})
    parts = {d: samples_of(where) for d, where in given(everybody, tmp_path).items()}
    assert [*parts] == [f"h{h}-{d}" for h in (1, 2, 3) for d in (1, 2)]
    found = [row for train, judged in parts.values() for row in rows(train.x) + rows(judged.x)]
    assert len(set(found)) == len(found) >= 567  # of 569: what does not divide is left over
    assert set.union(*({*train.labels} for train, _ in parts.values())) == {"malignant", "benign"}


def test_the_same_seed_gives_the_same_parts(tmp_path):
    def names(seed, where):
        parts = given(form_cohort("breast-cancer", 2, seed, {}), tmp_path / where)
        return [rows(samples_of(part)[0].x) for part in parts.values()]

    assert names(1, "a") == names(1, "b") != names(2, "c")


def test_caps_and_global_judging(tmp_path):
    everybody = form_cohort("breast-cancer", 2, 1, {"devices": 2, "samples": 10, "tests": 20, "judge": "global"})
    parts = [samples_of(where) for where in given(everybody, tmp_path).values()]
    assert [(len(train), len(judged)) for train, judged in parts] == [(10, 20)] * 4
    assert len({tuple(rows(judged.x)) for _, judged in parts}) == 1  # all on the same ones
    whole = form_cohort("breast-cancer", 2, 1, {"judge": "global", "held_out": 0.3})
    sizes = {len(samples_of(where)[1]) for where in given(whole, tmp_path).values()}
    assert sizes == {len(datasets.hold_out(datasets.load("breast-cancer"), 0.3, 1)[1])}


def test_hospital_and_device_hold_the_two_parts_of_the_same_patients(tmp_path):
    everybody = form_cohort("breast-cancer", 2, 1, {"devices": 3}, splits=True)
    table = datasets.load("breast-cancer")
    known = datasets.divide(datasets.standardise(table, datasets.hold_out(table, 0.2, 1)[0]))
    patient = {key: i for i, key in enumerate(rows(known.x2))}
    parts = given(everybody, tmp_path)
    for hospital, devices in everybody.tree.items():
        patients = patients_of(parts[hospital].samples)
        for device, mine in rows_of(patients.devices).items():
            train, judged = samples_of(parts[device])
            theirs = rows_of(patients.held_out_devices)[device]
            for x1, x2 in ((patients.train.x[mine], train.x), (patients.held_out[theirs], judged.x)):
                assert (x1 == known.x1[[patient[key] for key in rows(x2)]]).all()
            assert tuple(np.array(patients.train.labels)[mine]) == train.labels
        assert {*patients.devices} == {*devices}


def test_a_sample_takes_the_shape_that_a_model_wants(tmp_path):
    everybody = form_cohort("breast-cancer", 1, 0, {"devices": 1})
    tables = everybody.tables(tmp_path, lambda node: {"x": (3, 10)})
    train, judged = samples_of(Stored(tables["h1-1"]["samples"]))
    assert train.x.shape[1:] == judged.x.shape[1:] == (3, 10)


@pytest.mark.parametrize(
    ("data", "options", "splits", "said"),
    [
        ("what", {}, False, "neither a folder of traces nor a data set"),
        (".", {}, True, "data sets that are: breast-cancer, tabular, esr:PATH, mnist:PATH"),
        (".", {"deal": "iid"}, False, "--deal is for a data set"),
        ("tabular", {"held_out": 0.3, "stride": 4}, False, "--stride is for a folder of traces"),
        ("tabular", {"samples": -1}, False, "--samples -1"),
        ("tabular", {"deal": "classes=2", "devices": 1000}, False, "each has at least one"),
    ],
)
def test_what_cannot_be_had(data, options, splits, said):
    with pytest.raises(UsageError, match=said):
        form_cohort(data, 2, 0, options, splits)
