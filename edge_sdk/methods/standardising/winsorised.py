"""Winsorised statistics: a robust rule for sums of features, so that one bad device does not move everybody's scale.

Of each feature, a child's mean is moved to at most `REACH` times the median deviation from the median of all means, and
its standard deviation to between 1 / `RATIO` and `RATIO` times the median one; means of squares follow from both, so
what comes out are moments of some samples again. Where nobody is far away, nothing is changed, to the bit.

Each child has one vote for the median. With one or two of them there is no majority, and their sums stay as they are.

Source: J. W. Tukey, "The Future of Data Analysis", Annals of Mathematical Statistics 33 (1962), winsorising; F. R.
Hampel, "The Influence Curve and its Role in Robust Estimation", JASA 69 (1974), the median deviation.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edge_sdk.methods.shared.aggregation.exact import split
from edge_sdk.methods.standardising.equations import UNIT, moments
from edge_sdk.methods.standardising.messages import FeatureSums

REACH = 4.0
"""Median deviations from the median up to which a mean counts as it is: 2.7 standard deviations of normal ones."""
RATIO = 4.0
"""Times the median standard deviation up to which one counts as it is, and down to which."""
MAJORITY = 3
"""Children with which there is one."""
USUAL = 4
"""Children from which on a hospital does this in a run without a rule, too: of three, the median deviation is the
smaller of two gaps, and honest ones are often four times that away."""


def winsorised(sums: Mapping[str, FeatureSums], least: int = MAJORITY) -> dict[str, FeatureSums]:
    """The sums of each child, with its moments within reach of those of the others; of as many devices as before.

    Of fewer than `least` children they stay as they are.
    """
    names = sorted(sums)
    if len(names) < least:
        return dict(sums)
    told = np.stack([moments(sums[n].high, sums[n].low, sums[n].devices) for n in names])  # (children, 2, F)
    kept = within_reach(told)
    found = {}
    for name, before, after in zip(names, told, kept, strict=True):
        devices = sums[name].devices
        changed = (before != after).any(0)
        rows = np.concatenate([after[0], UNIT * after[1]]) * devices
        high, low = (
            np.where(np.tile(changed, 2), new, old)
            for new, old in zip(split(rows), (sums[name].high, sums[name].low), strict=True)
        )
        found[name] = FeatureSums(high, low, devices)
    return found


def within_reach(told: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Means and means of squares (children, 2, F), with what is far away moved; what is not is returned as it is."""
    mean, square = told[:, 0], told[:, 1]
    centre = np.median(mean, 0)
    reach = REACH * np.median(np.abs(mean - centre), 0)
    spread = np.sqrt(np.maximum(square - mean**2, 0))
    usual = np.median(spread, 0)
    near = np.clip(mean, centre - reach, centre + reach)
    wide = np.clip(spread, usual / RATIO, usual * RATIO)
    moved = (near != mean) | (wide != spread)
    return np.stack([near, np.where(moved, near**2 + wide**2, square)], 1)
