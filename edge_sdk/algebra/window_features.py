"""Features of sensor windows: what an engineer writes down first of a channel. The network is models/zoo/features.py.

A window is (channels, samples). Each channel, and the magnitude of each 3-axis sensor (channels 0 to 2, 3 to 5, ...),
has these features:

mean, std, min, max            moments and range                                                        LEVELS
q10, q25, q50, q75, q90        quantiles, linear between order statistics                               QUANTILES
step_mean, step_std            mean of |x[i + 1] - x[i]|, standard deviation of x[i + 1] - x[i]
dominant                       share of the Nyquist frequency at which the spectrum is largest, 0 to 1
band_a_b                       mean amplitude of the spectrum without its mean, from bin a up to bin b  bands()

Each two channels have their correlation (corr_i_j). Bin k of a window of t samples at rate r is k r / t Hz: bands get
wider by half from one to the next, so their number follows the window's length and their frequencies its rate.

Sources: D. Anguita et al., "A Public Domain Dataset for Human Activity Recognition Using Smartphones", ESANN 2013 (the
561 features of UCI HAR: moments, quantiles, correlations, energies of bands); O. D. Lara and M. A. Labrador, "A Survey
on Human Activity Recognition using Wearable Sensors", IEEE Comm. Surveys & Tutorials 15 (2013), table III.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]

QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90)
EPSILON = 1e-6
"""Added to a standard deviation that is divided by: a sensor that is off has none."""


def bands(samples: int) -> tuple[tuple[int, int], ...]:
    """Bands of the spectrum of a window of so many samples: [first bin, last bin + 1), each half as wide again."""
    edges, most = [1, 2, 3, 4], samples // 2 + 1
    while edges[-1] < most:
        edges.append(edges[-1] + max(1, edges[-1] // 2))
    edges = [e for e in edges if e < most] + [most]
    return tuple(pairwise(edges))


def quantile_weights(samples: int) -> npt.NDArray[np.float64]:
    """Q (samples, quantiles): sorted values @ Q are the quantiles, linear between the two nearest order statistics."""
    weights = np.zeros((samples, len(QUANTILES)))
    for column, share in enumerate(QUANTILES):
        low = int(share * (samples - 1))
        part = share * (samples - 1) - low
        weights[low, column] += 1 - part
        weights[min(low + 1, samples - 1), column] += part
    return weights


def fourier_weights(samples: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """cos, sin (samples, bins): the real and the imaginary part of the spectrum of a window, as products."""
    angle = 2 * np.pi * np.outer(np.arange(samples), np.arange(samples // 2 + 1)) / samples
    return np.cos(angle), np.sin(angle)


def band_weights(samples: int) -> npt.NDArray[np.float64]:
    """B (bins, bands): amplitudes @ B are the means over bands."""
    weights = np.zeros((samples // 2 + 1, len(bands(samples))))
    for column, (first, end) in enumerate(bands(samples)):
        weights[first:end, column] = 1 / (end - first)
    return weights


def pairs(channels: int) -> tuple[tuple[int, int], ...]:
    """Each two channels, the later one first."""
    return tuple((i, j) for i in range(channels) for j in range(i))


def magnitudes(x: Floats) -> Floats:
    """(N, channels // 3, samples): lengths of the vectors of each three channels."""
    n, channels, samples = x.shape
    groups = x[:, : channels - channels % 3].reshape(n, channels // 3, 3, samples)
    return np.asarray(np.sqrt((groups**2).sum(2)))


def window_features(x: Floats) -> npt.NDArray[np.float32]:
    """Features of windows.

    Args:
        x: (N, channels, samples), at least 4 samples.

    Returns:
        (N, number of features), in the order of `feature_names`.
    """
    _, channels, samples = x.shape
    z = np.concatenate([x.astype(np.float64), magnitudes(x.astype(np.float64))], 1)
    mean = z.mean(2)
    centred = z - mean[:, :, None]
    std = np.sqrt((centred**2).mean(2))
    step = np.diff(z, axis=2)
    amplitude = np.abs(np.fft.rfft(centred, axis=2))
    levels = [mean, std, z.min(2), z.max(2), *np.moveaxis(np.sort(z, axis=2) @ quantile_weights(samples), 2, 0)]
    steps = [np.abs(step).mean(2), step.std(2)]
    spectrum = [amplitude.argmax(2) / (samples // 2), *np.moveaxis(amplitude @ band_weights(samples), 2, 0)]
    unit = centred / (std[:, :, None] + EPSILON)
    together = [(unit[:, i] * unit[:, j]).mean(1)[:, None] for i, j in pairs(channels)]
    return np.concatenate([*levels, *steps, *spectrum, *together], 1).astype(np.float32)


def feature_names(channels: int, samples: int) -> tuple[str, ...]:
    """Names of the features: "std_2" of channel 2, "q50_mag0" of the first 3-axis sensor's magnitude, "corr_2_0"."""
    sensors = [*map(str, range(channels)), *(f"mag{k}" for k in range(channels // 3))]
    kinds = [
        "mean",
        "std",
        "min",
        "max",
        *(f"q{round(100 * q)}" for q in QUANTILES),
        "step_mean",
        "step_std",
        "dominant",
    ]
    kinds += [f"band_{first}_{end}" for first, end in bands(samples)]
    return tuple(f"{kind}_{s}" for kind in kinds for s in sensors) + tuple(f"corr_{i}_{j}" for i, j in pairs(channels))
