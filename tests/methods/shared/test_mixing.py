"""Mixing matrices: doubly stochastic, connected over a window, and how fast they shrink disagreement."""

from itertools import combinations

import numpy as np
import pytest

from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.consensus import mixing
from tests.methods.shared.mixing_matrices import first_b, is_connected

RANDOM = np.random.default_rng(5)
NAMES = ["a", "b", "c", "d", "e"]


def off(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_first_b_is_symmetric_doubly_stochastic_and_idempotent(size):
    a = mixing.check_matrix(first_b(NAMES, NAMES[-size:]))
    assert (a == a.T).all() and off(a @ a, a) < 1e-15
    z = RANDOM.normal(size=(5, 7))
    assert off((a @ z).sum(0), z.sum(0)) < 1e-14
    assert (np.delete(a @ z, range(5 - size, 5), 0) == z[: 5 - size]).all()


@pytest.mark.parametrize("graph", ["complete", "identity", "ring", "a~b, b~c,c~d , a~e"])
@pytest.mark.parametrize("members", [NAMES, ["a", "c", "d"], ["b"]])
def test_every_graph_gives_a_doubly_stochastic_matrix(graph, members):
    a = mixing.check_matrix(mixing.matrix(graph, NAMES, members))
    assert a.shape == (len(members),) * 2 and (a.diagonal() > 0).all()


def test_metropolis_weights():
    a = mixing.metropolis(["a", "b", "c"], [("a", "b"), ("b", "c")])
    assert off(a, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]]) < 1e-15
    assert off(mixing.metropolis(["a", "b"], mixing.ring(["a", "b"])), 0.5) == 0


@pytest.mark.parametrize("a, why", [
    (np.ones((2, 3)) / 3, "shape (2, 3)"), (np.array([[2.0, -1], [-1, 2]]), "entry -1"),
    (np.array([[1.0, 0], [1, 0]]), "column 0 sums to 2"), (np.array([[0.5, 0.4], [0.5, 0.6]]), "row 1 sums to 1.1"),
    (np.array([[np.nan, 1], [1, 0]]), "entry"),
])  # fmt: skip
def test_the_validator_refuses(a, why):
    with pytest.raises(UsageError) as error:
        mixing.check_matrix(a)
    assert why in str(error.value)


def test_connectivity_over_a_window():
    pairs = [first_b(NAMES, pair) for pair in (["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"])]
    assert is_connected(pairs) and not is_connected(pairs[:3])
    assert not is_connected([first_b(NAMES, [n]) for n in NAMES])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_random_subsets_shrink_the_disagreement_by_exactly_this(size):
    """E sum ||z_n - zbar||^2 shrinks by (N - B) / (N - 1): with B = 1 not at all."""
    z = RANDOM.normal(size=(5, 3))
    spread = lambda z: np.square(z - z.mean(0)).sum()  # noqa: E731
    after = [spread(first_b(NAMES, V) @ z) for V in combinations(NAMES, size)]
    assert np.isclose(np.mean(after) / spread(z), (5 - size) / 4, atol=1e-13)
