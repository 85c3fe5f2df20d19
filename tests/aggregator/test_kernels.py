"""The aggregator's torch kernels against their numpy twins."""

from dataclasses import fields

import numpy as np
import pytest

pytest.importorskip("torch")

from aggregator import kernels
from edge_sdk.algebra import lowrank, prox
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.shared.aggregation.server import low_rank
from tests.processors import PROCESSORS

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(6, 4), (4, 9), (96, 40), (1, 7)])
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("threshold", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("device", PROCESSORS)
def test_svt(device, shape, dtype, tolerance, threshold):
    x = RNG.normal(size=shape).astype(dtype)
    x.flags.writeable = False  # as a decoded message is
    mine, theirs = kernels.svt(x, threshold, device), prox.svt(x, threshold)
    assert [p.shape for p in mine] == [p.shape for p in theirs] and all(p.dtype == dtype for p in mine)
    assert np.allclose(mine[1], theirs[1], atol=tolerance)
    (a, s, b), (c, t, d) = mine, theirs
    assert np.allclose((a * s) @ b.T, (c * t) @ d.T, atol=tolerance)


def test_a_packed_model_is_the_same_within_rounding():
    layout = layout_of(("a", (8, 3, 3, 3), "conv"), ("b", (8,), "bias"), ("c", (20, 30), "linear"))
    x = RNG.normal(size=layout.size).astype(np.float32)
    packed, twin = low_rank(layout, x, 4.0), low_rank(layout, x, 4.0, kernels.svt)
    assert packed.ranks == twin.ranks and max(packed.ranks) > 0
    assert np.allclose(lowrank.unpack(layout, packed), lowrank.unpack(layout, twin), atol=2e-5)


def test_every_method_gets_what_it_has_room_for():
    for method in METHODS.values():
        given = kernels.kernels_for(method.env, "cpu")
        room = {field.name for field in fields(method.env)}
        assert set(given) == {"svt", "discriminator"} & room
        method.env(**given)
    assert "svt" in kernels.kernels_for(METHODS["fedslr"].env, "cpu")
    assert "discriminator" in kernels.kernels_for(METHODS["fedal"].env, "cpu")
    assert kernels.kernels_for(NodeEnv, "cpu") == {}


def test_a_device_that_is_not_here():
    with pytest.raises(UsageError, match="one of auto, cpu, cuda"):
        kernels.processor("tpu")
