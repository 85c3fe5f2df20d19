"""Features of windows: each by its definition, one window at a time; and the network's, which are the same."""

from itertools import pairwise

import numpy as np
import pytest

from edge_sdk.algebra.window_features import bands, feature_names, window_features


def by_definition(window):
    """Features of one window (channels, samples), in plain words, by name."""
    channels, samples = window.shape
    sensors = {str(i): window[i] for i in range(channels)}
    sensors |= {f"mag{k}": np.sqrt(sum(window[3 * k + a] ** 2 for a in range(3))) for k in range(channels // 3)}
    found = {}
    for name, z in sensors.items():
        spectrum = np.abs(np.fft.rfft(z - z.mean()))
        found |= {f"mean_{name}": z.mean(), f"std_{name}": z.std(), f"min_{name}": z.min(), f"max_{name}": z.max()}
        found |= {f"q{q}_{name}": np.percentile(z, q) for q in (10, 25, 50, 75, 90)}
        found |= {f"step_mean_{name}": np.abs(np.diff(z)).mean(), f"step_std_{name}": np.diff(z).std()}
        found[f"dominant_{name}"] = spectrum.argmax() / (samples // 2)
        found |= {f"band_{a}_{b}_{name}": spectrum[a:b].mean() for a, b in bands(samples)}
    for i in range(channels):
        for j in range(i):
            found[f"corr_{i}_{j}"] = np.corrcoef(window[i], window[j])[0, 1]
    return found


SHAPES = [(3, 64), (6, 50), (1, 178), (4, 33), (2, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_features_are_what_their_names_say(shape):
    x = np.random.default_rng(0).normal(size=(5, *shape)).astype(np.float32)
    found, names = window_features(x), feature_names(*shape)
    assert found.shape == (5, len(names)) and len({*names}) == len(names) and found.dtype == np.float32
    for row, window in zip(found, x.astype(np.float64), strict=True):
        expected = by_definition(window)
        assert expected.keys() == {*names}
        assert np.allclose(row, [expected[name] for name in names], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("samples", [4, 5, 16, 64, 178, 1000])
def test_bands_cover_the_spectrum_once(samples):
    edges = bands(samples)
    assert edges[0][0] == 1 and edges[-1][1] == samples // 2 + 1
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in pairwise(edges))


def test_a_sensor_that_is_off_has_finite_features():
    assert np.isfinite(window_features(np.zeros((2, 6, 64), np.float32))).all()


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_the_network_of_the_zoo_sees_the_same(shape):
    torch = pytest.importorskip("torch")
    from edge_sdk.models.zoo.features import WindowFeatures

    x = np.random.default_rng(1).normal(size=(20, *shape)).astype(np.float32)
    seen = WindowFeatures(*shape)(torch.tensor(x)).numpy()
    assert np.allclose(seen, window_features(x), rtol=1e-4, atol=2e-5)
