"""The aggregator's torch discriminator against its numpy twin."""

import numpy as np
import pytest

pytest.importorskip("torch")

from aggregator import discriminator as torch_twin
from edge_sdk.methods.fedal import discriminator as numpy_twin
from tests.processors import PROCESSORS

RNG = np.random.default_rng(0)


def problem(dtype, devices=10, batch=32, classes=10, hidden=(32, 256)):
    widths = (classes, *hidden, devices)
    w = numpy_twin.initial(RNG, widths, dtype)
    f = (3 * RNG.normal(size=(devices * batch, classes))).astype(dtype)
    w.flags.writeable = f.flags.writeable = False  # as decoded messages are
    return w, widths, f, np.repeat(np.arange(devices), batch)


@pytest.mark.parametrize("device", PROCESSORS)
@pytest.mark.parametrize("hidden", [(32, 256), (32, 265), (7,), ()], ids=str)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 2e-5)], ids=["double", "single"])
@pytest.mark.parametrize("away", [(), (2, 7)], ids=["all", "some"])
def test_twins(away, dtype, tolerance, hidden, device):
    w, widths, f, who = problem(dtype, hidden=hidden)
    there = ~np.isin(np.arange(10), away)
    rows = there[who]
    f, who = f[rows], who[rows]
    mine, kernels = numpy_twin.KERNELS, torch_twin.kernels(device)
    a, b = (k.ascent(w, widths, f, who, there, 2.0) for k in (mine, kernels))
    assert a.dtype == b.dtype == dtype and np.abs(a - b).max() < tolerance
    (u, g, right), (v, h, caught) = (k.feedback(w, widths, f, who, there, 2.0) for k in (mine, kernels))
    assert np.abs(u - v).max() < tolerance and np.abs(g - h).max() < tolerance
    assert g.dtype == h.dtype == dtype and (right != caught).sum() <= (0 if dtype == np.float64 else 1)
