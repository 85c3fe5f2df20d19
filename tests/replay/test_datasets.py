"""Data sets by name, their division between hospital and device, and who holds which samples."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.algebra.metrics import classification
from edge_sdk.errors import UsageError
from edge_sdk.replay import datasets
from edge_sdk.replay.datasets import clinical, load, prepare
from edge_sdk.replay.datasets.partition import deal_group, deal_labels, deal_mixed, deal_rows, match_tests
from edge_sdk.replay.datasets.table import hold_out

DATA = Path(os.environ.get("AUSCULT_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))


def brought(name):
    path = DATA / name
    return pytest.param(path, marks=pytest.mark.skipif(not path.exists(), reason=f"{name} is not in {DATA}"))


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


# Reading --------------------------------------------------------------------------------------------------------
def test_breast_cancer_ships():
    table = load("breast-cancer")
    assert table.x.shape == (569, 30) and table.x.dtype == np.float32 and table.classes == ("malignant", "benign")
    assert np.bincount(table.y).tolist() == [212, 357]
    assert np.isclose(table.x[0, 0], 17.99) and np.isclose(table.x[:, 3].max(), 2501)
    train, test = prepare("breast-cancer")
    assert train.x1.shape == (456, 15) and train.x2.shape == (456, 15) and len(test) == 113
    assert np.abs(train.x1.mean(0)).max() < 1e-5 and np.abs(train.x2.std(0) - 1).max() < 1e-5


def test_generated_table_has_the_structure_that_it_says():
    table = load("tabular")
    assert table.x.shape == (2000, 76) and 0.25 < table.y.mean() < 0.45
    truth = classification.auc(table.y == 1, table.truth)
    assert truth > 0.9 and abs(table.truth.mean() - table.y.mean()) < 0.03
    assert clinical.generate_table(50, seed=1).x.tobytes() == clinical.generate_table(50, seed=1).x.tobytes()
    bigger = clinical.generate_table(20_000)
    x1, x2 = clinical.halve_features(bigger.x)
    signs = np.where(np.arange(6) % 2, -1.0, 1.0)
    areas = [classification.auc(bigger.y == 1, x[:, :6] @ signs) for x in (x1, x2)]
    both = classification.auc(bigger.y == 1, x1[:, :6] @ signs + x2[:, :6] @ signs)
    assert max(areas) + 0.05 < both < classification.auc(bigger.y == 1, bigger.truth) - 0.01
    rest = np.abs(np.corrcoef(np.c_[x1[:, 6:], bigger.y].T)[-1, :-1]).max()
    assert rest < np.abs(np.corrcoef(np.c_[x1[:, :6], bigger.y].T)[-1, :-1]).min()


def test_esr_layout(tmp_path):
    signal = np.arange(5 * 4097).reshape(5, 4097).astype(np.int16)
    table = load(f"esr:{npz(tmp_path / 'eeg.npz', signal=signal, set=np.array(list('ZONFS')))}")
    assert table.x.shape == (115, 178) and np.bincount(table.y).tolist() == [23] * 5
    assert (table.x[24] == signal[1, 178:356]).all() and table.source[24] == 1
    whole = datasets.divide(table)
    assert whole.x1.shape == whole.x2.shape == (115, 89, 1) and (whole.x2[0, :, 0] == signal[0, 89:178]).all()


def test_images_frame_and_crop(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (7, 28, 28), np.uint8)
    path = npz(tmp_path / "m.npz", x_train=x[:5], y_train=np.arange(5), x_test=x[5:], y_test=np.arange(2))
    table = load(f"mnist:{path}")
    whole = datasets.divide(table)
    assert whole.x1.shape == (7, 1, 22, 22) and whole.x2.shape == (7, 1, 15, 20)
    assert np.allclose(whole.x1[3, 0], x[3, 3:25, 3:25] / 255) and np.allclose(
        whole.x2[3].ravel()[:84], x[3, :3].ravel() / 255
    )
    assert [r.tolist() for r in hold_out(table)] == [[0, 1, 2, 3, 4], [5, 6]]
    other = {"train_images": x[:5], "train_labels": np.arange(5)[:, None]}
    medical = npz(tmp_path / "o.npz", **other, test_images=x[5:], test_labels=np.arange(2)[:, None])
    assert load(f"mnist:{medical}").x.tobytes() == table.x.tobytes()


def test_colour_images(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    path = npz(tmp_path / "c.npz", x_train=x[:2], y_train=np.arange(2), x_test=x[2:], y_test=np.zeros(1, int))
    table = load(f"cifar10:{path}")
    assert table.x.shape == (3, 3, 32, 32) and np.isclose(table.x[1, 2, 4, 5], x[1, 4, 5, 2] / 255)
    with pytest.raises(UsageError, match="no division"):
        datasets.divide(table)


@pytest.mark.parametrize("path", [brought("bonn_eeg.npz")])
def test_the_real_eeg_makes_the_papers_groups(path):
    table = load(f"esr:{path}")
    assert len(table) == 9200 and np.bincount(table.y).tolist() == [1840] * 5
    train, test = hold_out(table)
    assert len(test) == 1840 and not {*table.source[train]} & {*table.source[test]}
    groups = deal_mixed(table.y[train], 10, 700 / 920)
    counts = np.array([np.bincount(table.y[train][g], minlength=5) for g in groups])
    assert {len(g) for g in groups} == {736} and counts.sum(0).tolist() == [1472] * 5
    pairs = [tuple(np.flatnonzero(row >= 280).tolist()) for row in counts]
    assert sorted(pairs) == list(combinations(range(5), 2))
    assert counts[counts >= 280].max() <= 282 and counts[counts < 280].max() <= 65  # 176 of three others


@pytest.mark.parametrize("path", [brought("mnist.npz")])
def test_the_real_digits(path):
    table = load(f"mnist:{path}")
    train, test = hold_out(table)
    assert (len(train), len(test)) == (60000, 10000)
    groups = deal_mixed(table.y[train], 10, 3000 / 3458)
    shares = [np.sort(np.bincount(table.y[train][g]) / len(g))[-2:].sum() for g in groups]
    assert {len(g) for g in groups} == {6000} and np.mean(shares) > 0.8


@pytest.mark.parametrize(
    "spec, why",
    [
        ("diabetes", "there are breast-cancer, tabular"), ("esr", "esr:PATH"), ("esr:/nowhere.npz", "no NPZ file"),
        ("tabular:x", "takes no path"), ("breast-cancer:/nowhere.csv", "no table"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_refused(spec, why):
    with pytest.raises(UsageError, match=why):
        load(spec)


def test_files_that_are_something_else_are_refused(tmp_path):
    with pytest.raises(UsageError, match="has no array signal"):
        load(f"esr:{npz(tmp_path / 'a.npz', other=np.zeros(3))}")
    short = npz(tmp_path / "b.npz", signal=np.zeros((2, 100)), set=np.array(["Z", "S"]))
    with pytest.raises(UsageError, match=r"expected \(2, 4094 or more\)"):
        load(f"esr:{short}")
    wrong = npz(tmp_path / "c.npz", signal=np.zeros((2, 4097)), set=np.array(["Z", "X"]))
    with pytest.raises(UsageError, match="set 'X'"):
        load(f"esr:{wrong}")
    pickled = npz(tmp_path / "d.npz", signal=np.array([object()]), set=np.array(["Z"]))
    with pytest.raises(UsageError, match="no NPZ file that can be read"):
        load(f"esr:{pickled}")
    (tmp_path / "e.csv").write_text("2,30,a,b\n1,2,0\n")
    with pytest.raises(UsageError, match="says 2 samples"):
        load(f"breast-cancer:{tmp_path / 'e.csv'}")


# Who holds what -------------------------------------------------------------------------------------------------
def test_held_out_by_source_or_by_sample():
    table = clinical.generate_table(200)
    for by in ("source", "sample"):
        train, test = hold_out(table, 0.25, by=by)
        assert sorted([*train, *test]) == list(range(200)) and abs(len(test) - 50) <= 1
        assert abs(table.y[test].mean() - table.y.mean()) < 0.02
    with pytest.raises(UsageError, match="held out"):
        hold_out(table, 1.0)


@pytest.mark.parametrize(
    "groups, classes, majority", [(10, 5, 0.76), (4, 2, 0.5), (3, 6, 0.9), (7, 11, 0.87), (5, 3, 0.0)]
)
def test_mixed_groups(groups, classes, majority):
    y = np.random.default_rng(1).choice(classes, 2000, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    parts = deal_mixed(y, groups, majority)
    assert {len(p) for p in parts} == {2000 // groups}
    everything = np.concatenate(parts)
    assert len({*everything.tolist()}) == len(everything)
    assert [p.tolist() for p in deal_mixed(y, groups, majority)] == [p.tolist() for p in parts]


def test_mixed_groups_have_their_majority_where_there_is_enough():
    y = np.repeat(np.arange(6), 300)
    parts = deal_mixed(y, 3, 0.8)
    for p in parts:
        assert np.sort(np.bincount(y[p], minlength=6))[-2:].sum() >= 0.8 * 600


@pytest.mark.parametrize("labels", [3, 6, 10])
def test_diverse_devices_hold_so_many_labels(labels):
    y = np.random.default_rng(2).integers(0, 10, 5000)
    parts = deal_labels(y, 100, labels)
    assert sorted(np.concatenate(parts).tolist()) == list(range(5000))
    assert {len({*y[p].tolist()}) for p in parts} == {labels}
    with pytest.raises(UsageError, match="to be held"):
        deal_labels(y, 3, 2)


def test_dealt_to_devices():
    rows = np.arange(10)
    assert [p.tolist() for p in deal_group(rows, 3)] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert [len(p) for p in deal_group(rows, 10)] == [1] * 10
    with pytest.raises(UsageError, match="at least one"):
        deal_group(rows, 11)


def test_divisions_of_nothing_are_refused():
    with pytest.raises(UsageError, match="no division"):
        deal_mixed(np.zeros(5, int), 6, 0.5)


# Dealing --------------------------------------------------------------------------------------------------------
LABELS = np.arange(600) % 6


@pytest.mark.parametrize("rule", ["iid", "classes=2", "dirichlet=0.3", "mixes=0.3", "mixed"])
def test_every_rule_deals_each_sample_at_most_once(rule):
    shared = deal_rows(LABELS, rule, 3, 4, 0.5, seed=2)
    assert [len(devices) for devices in shared] == [4, 4, 4]
    rows = np.concatenate([rows for devices in shared for rows in devices])
    assert len(np.unique(rows)) == len(rows) == 600
    again = deal_rows(LABELS, rule, 3, 4, 0.5, seed=2)
    assert all((a == b).all() for d, e in zip(shared, again, strict=True) for a, b in zip(d, e, strict=True))


def test_rules_mean_what_they_say():
    def kinds(rule):
        return [len(np.unique(LABELS[r])) for devices in deal_rows(LABELS, rule, 3, 4, 0.0) for r in devices]

    assert kinds("classes=2") == [2] * 12
    assert min(kinds("iid")) == min(kinds("mixed")) == 6
    assert np.mean(kinds("dirichlet=0.1")) < np.mean(kinds("dirichlet=1000")) == 6


def test_mixes_are_of_one_size_and_closer_to_uniform_the_larger_alpha_is():
    """FedAL's split: a draw of Dir(alpha) over the labels for each device, without replacement."""

    def apart(alpha):
        parts = [r for devices in deal_rows(LABELS, f"mixes={alpha}", 2, 4, 0.0, seed=1) for r in devices]
        assert {len(rows) for rows in parts} == {75} and len(np.unique(np.concatenate(parts))) == 600
        return np.mean([np.abs(np.bincount(LABELS[rows], minlength=6) / 75 - 1 / 6).sum() for rows in parts])

    distances = [apart(alpha) for alpha in (0.1, 1, 5, 1000)]
    assert distances == sorted(distances, reverse=True) and distances[-1] < 0.25 * distances[0]
    left_over = deal_rows(LABELS, "mixes=1", 1, 7, 0.0)[0]
    assert {len(rows) for rows in left_over} == {85}


def test_a_device_is_judged_on_its_own_mix():
    parts = [r for devices in deal_rows(LABELS, "dirichlet=0.5", 2, 3, 0.0) for r in devices]
    judged = match_tests(LABELS, LABELS[:300], parts)
    assert len(np.unique(np.concatenate(judged))) == 300
    for mine, tests in zip(parts, judged, strict=True):
        half = np.bincount(LABELS[mine], minlength=6) / 2
        assert np.abs(np.bincount(LABELS[:300][tests], minlength=6) - half).max() <= 1


@pytest.mark.parametrize(
    "rule", ["classes", "classes=2.5", "classes=9", "dirichlet=-1", "dirichlet=x", "even", "classes=1"]
)
def test_a_rule_that_is_none(rule):
    with pytest.raises(UsageError):
        deal_rows(LABELS, rule, 1, 2, 0.0)


def test_too_few_samples_for_the_devices():
    with pytest.raises(UsageError, match="each has at least one"):
        deal_rows(LABELS, "iid", 100, 7, 0.0)
