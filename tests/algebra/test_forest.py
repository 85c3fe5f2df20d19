"""Extremely randomised trees: their definition, beside scikit-learn's, and what is kept of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_sdk.algebra import forest
from edge_sdk.algebra.ensemble import Ensemble, combined, log_probabilities, voted
from edge_sdk.errors import UsageError


def clouds(rows=120, features=8, classes=3, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=rows)
    return (random.normal(0, 1.0, (rows, features)) + np.eye(classes, features)[y] * 2).astype(np.float32), y


def grown(seed=0, trees=20, **kinds):
    x, y = clouds(**kinds)
    return forest.grow(x, y, 3, trees, np.random.default_rng(seed)), x, y


def test_all_leaves_are_pure_so_each_tree_knows_its_own_samples():
    found, x, y = grown()
    assert np.array_equal(forest.vote(found, x), np.eye(3)[y])


def test_a_tree_asks_as_it_was_grown():
    """Each inner node parts its samples: none of its children is without a sample, and both add up to it."""
    found, x, _ = grown(trees=3)
    for root in range(3):
        inside = {root: np.arange(len(x))}
        while inside:
            node, rows = inside.popitem()
            below = int(found.below[node])
            if below == node:
                continue
            up = x[rows, found.feature[node]] > found.threshold[node]
            assert 0 < up.sum() < len(rows)
            inside |= {below: rows[~up], below + 1: rows[up]}


def test_the_same_generator_grows_the_same_forest():
    a, b = grown(5)[0], grown(5)[0]
    assert all(np.array_equal(getattr(a, k), getattr(b, k)) for k in ("feature", "threshold", "below", "label"))
    assert not np.array_equal(a.threshold[:20], grown(6)[0].threshold[:20])


def test_it_is_as_good_as_scikit_learns():
    ensemble = pytest.importorskip("sklearn.ensemble")
    ours, theirs = [], []
    for seed in range(5):
        x, y = clouds(rows=400, seed=seed)
        ours.append(
            (
                forest.vote(forest.grow(x[:80], y[:80], 3, 50, np.random.default_rng(seed)), x[80:]).argmax(1) == y[80:]
            ).mean()
        )
        other = ensemble.ExtraTreesClassifier(50, random_state=seed).fit(x[:80], y[:80])
        theirs.append((other.predict(x[80:]) == y[80:]).mean())
    assert np.mean(ours) > np.mean(theirs) - 0.02


@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 6), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_any_samples_give_a_forest_that_outlives_a_file(rows, features, trees, seed):
    random = np.random.default_rng(seed)
    x = random.integers(0, 3, (rows, features)).astype(np.float32)  # many are the same, with other labels
    y = random.integers(0, 3, rows)
    found = forest.grow(x, y, 3, trees, random)
    again = forest.unpack(forest.pack(found))
    assert np.array_equal(forest.vote(again, x), forest.vote(found, x))
    assert np.allclose(forest.vote(found, x).sum(1), 1)
    for row in range(rows):
        same = y[(x == x[row]).all(1)]
        assert {*np.flatnonzero(forest.vote(found, x[row : row + 1])[0])} <= {*same}


def literal(x, y, classes, trees, random):
    """The same, node by node as the definition says it; it draws for a whole level at a time, as `grow` does."""
    level, found, first = [np.arange(len(x))] * trees, [], 0

    def impurity(rows):
        counts = np.bincount(y[rows], minlength=classes)
        return len(rows) - (counts**2).sum() / max(len(rows), 1)

    def tried(rows, best, feature, share):
        values = x[rows, feature]
        low, high = values.min(), values.max()
        cut = low + np.float32(share) * (high - low)
        both = impurity(rows[values > cut]) + impurity(rows[values <= cut])
        return (both / len(rows), feature, cut) if cut < high and both / len(rows) < best[0] else best

    while level:
        best = [(np.inf, 0, np.float32(0))] * len(level)
        mixed = [len(np.unique(y[rows])) > 1 for rows in level]
        tries = [None] * int(np.ceil(np.sqrt(x.shape[1])))
        for feature in [*tries, *range(x.shape[1])]:
            undecided = [is_mixed and (feature is None or best[i][0] == np.inf) for i, is_mixed in enumerate(mixed)]
            if feature is not None and not any(undecided):
                break
            features = random.integers(0, x.shape[1], len(level)) if feature is None else [feature] * len(level)
            shares = random.random(len(level))
            for i, rows in enumerate(level):
                if undecided[i]:
                    best[i] = tried(rows, best[i], features[i], shares[i])
        following = []
        for i, (rows, (least, feature, cut)) in enumerate(zip(level, best, strict=True)):
            splits = least < np.inf
            below = first + len(level) + len(following) if splits else first + i
            found.append((feature, cut, below, np.bincount(y[rows]).argmax()))
            following += [rows[x[rows, feature] <= cut], rows[x[rows, feature] > cut]] if splits else []
        first, level = first + len(level), following
    return [np.array(column) for column in zip(*found, strict=True)]


@pytest.mark.parametrize(("rows_at_once", "done"), [(2**13, 0.25), (16, 0.25), (16, 0.0), (2**13, 1.0)])
def test_it_grows_as_the_definition_says_to_the_bit(rows_at_once, done, monkeypatch):
    """In pieces of any size, and whenever nodes that are decided are left out."""
    monkeypatch.setattr(forest, "ROWS", rows_at_once)
    monkeypatch.setattr(forest, "DONE", done)
    x, y = clouds(rows=60, features=11)
    x[:, 2], x[:, 3], x[20:30] = 1, np.round(x[:, 3]), x[5]  # one value, few values, equal samples of several classes
    found = forest.grow(x, y, 3, 4, np.random.default_rng(3))
    for mine, literally in zip(
        (found.feature, found.threshold, found.below, found.label),
        literal(x, y, 3, 4, np.random.default_rng(3)),
        strict=True,
    ):
        assert np.array_equal(mine, literally)


@pytest.mark.parametrize(("features", "classes", "kinds"), [(128, 128, ("i1", "i1")), (129, 129, ("i2", "i2"))])
def test_its_whole_numbers_take_no_more_bytes_than_they_need(features, classes, kinds):
    """Nodes are what a device keeps of a forest, and it keeps several."""
    x = np.zeros((classes, features), np.float32)
    x[:, -1] = np.arange(classes)  # nothing else tells the samples apart
    grown = forest.grow(x, np.arange(classes), classes, 3, np.random.default_rng(0))
    assert (grown.feature.dtype, grown.label.dtype) == kinds
    assert (grown.feature.max(), grown.label.max()) == (features - 1, classes - 1)
    back = forest.unpack(forest.pack(grown))
    assert (back.feature.dtype, back.label.dtype) == kinds and forest.vote(back, x).argmax(1).tolist() == [
        *range(classes)
    ]


def test_a_forest_of_nothing_is_refused():
    with pytest.raises(UsageError, match="at least one of each"):
        forest.grow(np.zeros((0, 3)), np.zeros(0, int), 2, 5, np.random.default_rng(0))


@pytest.mark.parametrize("damage", ["short", "nan", "upward", "class", "trees"])
def test_a_damaged_vector_is_refused(damage):
    vector = forest.pack(grown()[0])
    nodes = (len(vector) - 2) // 4
    if damage == "short":
        vector = vector[:-1]
    elif damage == "nan":
        vector[5] = np.nan
    elif damage == "upward":
        vector[2 + 2 * nodes + nodes // 2] = 0  # a child that lies above its node: a walk would never end
    elif damage == "class":
        vector[-1] = 99
    else:
        vector[0] = 0
    with pytest.raises(UsageError, match="a forest of"):
        forest.unpack(vector)
    assert forest.unpack(np.zeros(0, np.float32)) is None


def test_an_ensemble_mixes_by_logarithms_and_rules_out_what_a_device_does_not_know():
    found, x, _ = grown()
    logits = np.random.default_rng(1).normal(size=(len(x), 4))
    ensemble = Ensemble(0.25, (0, 2), forest.pack(found))
    mixed = combined(ensemble, logits, lambda: pytest.fail("the local model is not asked"), lambda: x)
    own, votes = log_probabilities(logits, (0, 2)), voted(forest.log_votes(found, x), 4, (0, 2))
    assert np.allclose(mixed[:, [0, 2]], (0.75 * own + 0.25 * votes)[:, [0, 2]])
    assert np.isneginf(mixed[:, [1, 3]]).all()
