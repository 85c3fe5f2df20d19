"""What each node of a replay is given of a data set: its own part, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of
from edge_sdk.data.patients import patients_of, rows_of
from edge_sdk.data.samples import Stored
from edge_sdk.errors import UsageError
from edge_sdk.replay import datasets
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.traces.synth import write_traces


def test_a_misspelt_option_of_data_is_not_taken_for_one_of_other_data():
    with pytest.raises(UsageError, match="data have no option device; perhaps devices; "):
        form_cohort("breast-cancer", 2, 0, {"device": 3})


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
    found = [row for p in parts.values() for part in (p.train, p.held_out, p.validation) for row in rows(part.x)]
    assert len(set(found)) == len(found) >= 564  # of 569: what does not divide is left over
    assert set.union(*({*p.train.labels} for p in parts.values())) == {"malignant", "benign"}
    sizes = [sum(len(getattr(p, key)) for p in parts.values()) for key in ("train", "held_out", "validation")]
    assert np.allclose(np.array(sizes) / sum(sizes), (0.6, 0.2, 0.2), atol=0.02)


def test_the_same_seed_gives_the_same_parts(tmp_path):
    def names(seed, where):
        parts = given(form_cohort("breast-cancer", 2, seed, {}), tmp_path / where)
        return [rows(samples_of(part).train.x) for part in parts.values()]

    assert names(1, "a") == names(1, "b") != names(2, "c")


def test_caps_and_global_judging(tmp_path):
    everybody = form_cohort("breast-cancer", 2, 1, {"devices": 2, "samples": 10, "tests": 20, "judge": "global"})
    parts = [samples_of(where) for where in given(everybody, tmp_path).values()]
    assert [(len(p.train), len(p.held_out), len(p.validation)) for p in parts] == [(10, 20, 4)] * 4
    assert len({tuple(rows(p.held_out.x)) for p in parts}) == 1  # all on the same ones
    whole = form_cohort("breast-cancer", 2, 1, {"judge": "global", "held_out": 0.3})
    sizes = {len(samples_of(where).held_out) for where in given(whole, tmp_path).values()}
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
            found = samples_of(parts[device])
            train, judged, chosen = found.train, found.held_out, found.validation
            theirs = patients.held_out[rows_of(patients.held_out_devices)[device]]
            others = patients.validation[rows_of(patients.validation_devices)[device]]
            assert len(others) and len(theirs)
            for x1, x2 in ((patients.train.x[mine], train.x), (theirs, judged.x), (others, chosen.x)):
                assert (x1 == known.x1[[patient[key] for key in rows(x2)]]).all()
            assert tuple(np.array(patients.train.labels)[mine]) == train.labels
        assert {*patients.devices} == {*devices}


def test_a_sample_takes_the_shape_that_a_model_wants(tmp_path):
    everybody = form_cohort("breast-cancer", 1, 0, {"devices": 1})
    tables = everybody.tables(tmp_path, lambda node: {"x": (3, 10)})
    found = samples_of(Stored(tables["h1-1"]["samples"]))
    assert found.train.x.shape[1:] == found.held_out.x.shape[1:] == found.validation.x.shape[1:] == (3, 10)


def test_without_a_validation_share_the_parts_are_the_two_of_before(tmp_path):
    everybody = form_cohort("breast-cancer", 2, 1, {"validation": 0})
    parts = [samples_of(where) for where in given(everybody, tmp_path).values()]
    assert all(p.validation is None for p in parts)
    assert sum(len(p.train) for p in parts) == len(datasets.hold_out(datasets.load("breast-cancer"), 0.2, 1)[0])


def test_a_trace_that_is_too_short_is_left_out_and_named(tmp_path):
    write_traces(tmp_path, devices=3, seed=3, minutes=2)
    short = (tmp_path / "synth-02.csv").read_text().splitlines()[:70]
    (tmp_path / "synth-02.csv").write_text("\n".join(short) + "\n")
    everybody = form_cohort(str(tmp_path), 2, 0, {})
    assert everybody.devices == ("synth-01", "synth-03")
    assert len(everybody.notes) == 1 and everybody.notes[0].startswith("warning: skipped synth-02: ")
    (tmp_path / "synth-01.csv").unlink()
    (tmp_path / "synth-03.csv").unlink()
    with pytest.raises(UsageError, match="synth-02"):
        form_cohort(str(tmp_path), 2, 0, {})


def test_who_lends_windows_is_named(tmp_path):
    write_traces(tmp_path, devices=3, seed=3, minutes=2)
    everybody = form_cohort(str(tmp_path), 2, 0, {"public": 20})
    lender = ({"synth-01", "synth-02", "synth-03"} - {*everybody.devices}).pop()
    assert everybody.notes == (f"{lender} lends its windows as public inputs, and is no device",)


@pytest.mark.parametrize(
    ("data", "options", "splits", "said"),
    [
        ("what", {}, False, "neither a folder of traces or samples nor a data set"),
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


def test_devices_read_traces_that_are_unlike_as_the_fleet_has_them(tmp_path):
    write_traces(tmp_path, devices=5, minutes=4, seed=3)
    files = {n: tmp_path / f"synth-0{n}.csv" for n in range(1, 6)}
    lines = {n: file.read_text().splitlines() for n, file in files.items()}
    swapped = (row.split(",") for row in lines[2])
    files[2].write_text(
        "\n".join(f"{t};{z};{x};{y};{what.title()};1" for t, x, y, z, what in swapped).replace(";1", ";B", 1)
    )
    files[3].write_text("\n".join([lines[3][0], *lines[3][1::2], "20"]))
    files[4].write_text("\n".join([lines[4][0], *(f"{row.split(',')[0]},1,1,1,walk" for row in lines[4][1:])]))
    files[5].write_text(
        "\n".join(row.rpartition(",")[0] + ("," if n else ",activity") for n, row in enumerate(lines[5]))
    )
    everybody = form_cohort(str(tmp_path), 1, 1, {"label_missing": "sit_chair"})
    notes = "\n".join(everybody.notes)
    assert everybody.devices == ("synth-01", "synth-02", "synth-03")
    for said in (
        "synth-02: ",
        "channel B left out",
        "16 Hz made 32 Hz",
        "synth-04: all channels are constant",
        "synth-05",
    ):
        assert said in notes
    for name, table in everybody.tables(tmp_path, lambda node: everybody.shapes).items():
        cut = Cut(**table)
        found = samples_of(cut)
        assert cut.channels == ("ax", "ay", "az") and found.train.x.shape[1:] == (3, 64) and len(found.held_out)
        assert {*found.train.labels, *found.held_out.labels} <= {*everybody.classes} and "sit_chair" not in cut.classes
        assert bool(found.told) == (name != "synth-01")
    with pytest.raises(UsageError, match="synth-0"):
        form_cohort(str(tmp_path), 1, 1, {"strict": True})
