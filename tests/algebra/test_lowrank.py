"""Layers as matrices, packing into factors, counting, and factorised execution."""

import numpy as np
import pytest

from edge_sdk.algebra import lowrank, prox
from edge_sdk.algebra.lowrank import DENSE, Packed
from edge_sdk.algebra.vectors import Slot, layout_of
from edge_sdk.methods.shared.aggregation.server import low_rank

RNG = np.random.default_rng(0)
LAYOUT = layout_of(
    ("conv2", (4, 3, 3, 2), "conv"),
    ("conv2.bias", (4,), "bias"),
    ("conv1", (5, 4, 3), "conv"),
    ("norm", (5,), "norm"),
    ("conv3", (2, 3, 2, 3, 2), "conv"),
    ("gru", (6, 4), "recurrent"),
    ("words", (10, 3), "embedding"),
    ("linear", (7, 5), "linear"),
    ("other", (3, 3), "other"),
)
SHAPES = {"conv2": (12, 6), "conv1": (5, 12), "conv3": (4, 18), "gru": (6, 4), "words": (10, 3), "linear": (7, 5)}


def slot(name):
    return next(s for s in LAYOUT.slots if s.name == name)


def theta(dtype=np.float64):
    return RNG.normal(size=LAYOUT.size).astype(dtype)


def test_which_layers_have_a_matrix_form():
    assert {s.name: lowrank.matrix_shape(s) for s in lowrank.matrix_slots(LAYOUT)} == SHAPES


@pytest.mark.parametrize("name", SHAPES)
def test_R8_matrix_form_round_trip(name):
    s = slot(name)
    w = RNG.normal(size=s.shape)
    m = lowrank.matrix(s, w)
    assert m.shape == SHAPES[name]
    assert lowrank.tensor(s, m).shape == s.shape
    assert (lowrank.tensor(s, m) == w).all() and np.isclose(np.linalg.norm(m), np.linalg.norm(w))


def test_the_entries_of_the_matrix_form():
    """W[(o, a), (c, b)] = w[o, c, a, b]."""
    s = slot("conv2")
    w = RNG.normal(size=s.shape)
    m = lowrank.matrix(s, w)
    for o, c, a, b in np.ndindex(s.shape):
        assert m[o * 3 + a, c * 2 + b] == w[o, c, a, b]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_round_trip(dtype):
    w = theta(dtype)
    packed = lowrank.dense(LAYOUT, w)
    packed.check(LAYOUT)
    assert packed.ranks == (DENSE,) * 6 and packed.values.size == LAYOUT.size
    assert lowrank.unpack(LAYOUT, packed).tobytes() == w.tobytes()


@pytest.mark.parametrize("threshold", [0.0, 1.0, 2.0, 3.0, 50.0])
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_factors_rebuild_what_the_prox_gives(threshold, dtype, tolerance):
    w = theta(dtype)
    packed = low_rank(LAYOUT, w, threshold)
    packed.check(LAYOUT)
    rebuilt = lowrank.unpack(LAYOUT, packed)
    assert packed.values.dtype == rebuilt.dtype == dtype
    for s in LAYOUT.slots:
        expected = LAYOUT.view(w, s)
        if s.name in SHAPES:
            expected = lowrank.tensor(s, prox.nuclear(lowrank.matrix(s, expected), threshold))
        assert np.allclose(LAYOUT.view(rebuilt, s), expected, atol=tolerance)


def test_the_smaller_form_travels_and_the_count_is_exact():
    w = theta()
    packed = low_rank(LAYOUT, w, 2.0)
    total = 0
    for s, rank in zip(lowrank.matrix_slots(LAYOUT), packed.ranks, strict=True):
        kept = prox.svt(lowrank.matrix(s, LAYOUT.view(w, s)), 2.0)[1].size
        a, b = SHAPES[s.name]
        assert rank == (kept if kept * (a + b) < a * b else DENSE)
        total += min(kept * (a + b), a * b)
    total += 4 + 5 + 9
    assert packed.values.size == lowrank.floats(LAYOUT, packed.ranks) == total < LAYOUT.size
    assert DENSE in packed.ranks and max(packed.ranks) >= 1


def test_rank_zero_costs_nothing():
    packed = low_rank(LAYOUT, theta(), 1e6)
    assert packed.ranks == (0,) * 6 and packed.values.size == 18
    assert np.count_nonzero(lowrank.unpack(LAYOUT, packed)) == 18


def test_factors_are_balanced():
    u, v = lowrank.balanced(prox.svt(RNG.normal(size=(6, 4)), 0.5))
    assert np.allclose(u.T @ u, v.T @ v)


def test_break_even_ranks_of_resnet18():
    """Section 2.6 of the specification: the largest rank that pays."""
    cases = {
        (64, 3, 3, 3): 8, (64, 64, 3, 3): 95, (128, 64, 3, 3): 127, (128, 128, 3, 3): 191, (256, 128, 3, 3): 255,
        (256, 256, 3, 3): 383, (512, 256, 3, 3): 511, (512, 512, 3, 3): 767, (128, 64, 1, 1): 42, (256, 128, 1, 1): 85,
        (512, 256, 1, 1): 170, (10, 512): 9, (100, 512): 83, (200, 512): 143,
    }  # fmt: skip
    for shape, largest in cases.items():
        s = Slot("w", shape, 0, "conv" if len(shape) == 4 else "linear")
        assert lowrank.pays(s, largest) and not lowrank.pays(s, largest + 1)


def resnet18(classes=10):
    """The paper's model for CIFAR, as a layout: 11.17 M parameters, 9,600 of them in norms."""
    tensors, inner = [("stem", (64, 3, 3, 3), "conv"), ("stem.norm", (2, 64), "norm")], 64
    for stage, out in enumerate((64, 128, 256, 512)):
        for block in range(2):
            at = f"{stage}.{block}"
            tensors += [(f"{at}.a", (out, inner, 3, 3), "conv"), (f"{at}.a.norm", (2, out), "norm")]
            tensors += [(f"{at}.b", (out, out, 3, 3), "conv"), (f"{at}.b.norm", (2, out), "norm")]
            if inner != out:
                tensors += [(f"{at}.short", (out, inner, 1, 1), "conv"), (f"{at}.short.norm", (2, out), "norm")]
            inner = out
    return layout_of(*tensors, ("head", (classes, 512), "linear"))


def test_the_papers_counts():
    layout = resnet18()
    assert layout.size == 11_173_952 and resnet18(100).size == 11_220_032
    assert sum(s.size for s in layout.slots if s.kind == "norm") == 9600
    floats = lowrank.floats(layout, (DENSE,) * len(lowrank.matrix_slots(layout)))
    gigabytes = floats * 4 * 2 * 10 * 1000 / 1e9  # both directions, 10 devices, 1000 rounds
    assert round(gigabytes, 2) == 893.92
    assert round(gigabytes / 2, 2) == 446.96  # the dense up-link of FedSLR


def test_ranks_also_where_a_layer_travelled_dense():
    w = theta()
    packed = low_rank(LAYOUT, w, 1.0)
    found = lowrank.ranks(LAYOUT, packed)
    expected = {n: prox.svt(lowrank.matrix(slot(n), LAYOUT.view(w, slot(n))), 1.0)[1].size for n in SHAPES}
    assert found == expected and DENSE in packed.ranks


@pytest.mark.parametrize(
    "ranks, size, says",
    [
        ((DENSE,) * 5, LAYOUT.size, "5 ranks, the model has 6 layers"),
        ((7, *[DENSE] * 5), LAYOUT.size, "rank 7 of a 12 x 6 layer"),
        ((-2, *[DENSE] * 5), LAYOUT.size, "rank -2"),
        ((DENSE,) * 6, LAYOUT.size - 1, f"these ranks take \\({LAYOUT.size},\\)"),
        ((0,) * 6, 19, "these ranks take \\(18,\\)"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(ranks, size, says):
    with pytest.raises(ValueError, match=says):
        Packed(ranks, np.zeros(size)).check(LAYOUT)


def test_tiers_with_other_sums_agree_on_float32():
    """U V^T is rounded once from float64, so neither order of summation nor BLAS shows."""
    u, v = RNG.normal(size=(40, 30)).astype(np.float32), RNG.normal(size=(50, 30)).astype(np.float32)
    order = RNG.permutation(30)
    assert lowrank.product(u, v).tobytes() == lowrank.product(u[:, order], v[:, order]).tobytes()


def test_a_model_that_many_read_is_unpacked_once_and_cannot_be_written_to():
    w = np.random.default_rng(0).standard_normal(LAYOUT.size).astype(np.float32)
    packed = lowrank.dense(LAYOUT, w)
    found = lowrank.unpack_shared(LAYOUT, packed)
    assert found.tobytes() == w.tobytes() and lowrank.unpack_shared(LAYOUT, packed) is found
    with pytest.raises(ValueError, match="read-only"):
        found += 1
    other = layout_of(*((f"other.{s.name}", s.shape, s.kind) for s in LAYOUT.slots))
    assert lowrank.unpack_shared(other, packed) is not found
