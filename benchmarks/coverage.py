"""How often the 95 % interval of a mean over few devices holds the true mean: `python benchmarks/coverage.py`.

Differences between two models are drawn from a normal distribution, or from one with a long tail (exponential), with
the true mean 0. Beside the interval that tables have (Student's t) stands the percentile bootstrap (B. Efron, 1979),
which is known to be too narrow for few (T. C. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edge_sdk.replay.metrics.statistics import mean_interval

Floats = npt.NDArray[np.float64]

RESAMPLES = 2_000


def percentile_bootstrap(values: Floats, random: np.random.Generator) -> tuple[float, float]:
    """The middle 95 % of means of as many values, drawn with replacement."""
    means = values[random.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def coverage(draw: Callable[[int], Floats], interval: Callable[[Floats], tuple[float, float]], trials: int) -> float:
    """Share of trials whose interval holds the true mean, 0. `draw`: the values of a trial."""
    ends = [interval(draw(trial)) for trial in range(trials)]
    return sum(low <= 0 <= high for low, high in ends) / trials


def main() -> None:
    """Prints a line for each number of devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    options = parser.parse_args()
    print("           of normal differences             of a long tail")
    print("devices    Student's t   percentiles         Student's t   percentiles")
    for devices in (3, 5, 9, 14, 30):
        random = np.random.default_rng([0, devices])
        draws = (lambda _: random.normal(size=devices)), (lambda _: random.exponential(size=devices) - 1)  # noqa: B023
        kinds = mean_interval, lambda values: percentile_bootstrap(values, random)  # noqa: B023
        found = [100 * coverage(draw, kind, options.trials) for draw in draws for kind in kinds]
        print("{:7} {:12.0f} % {:11.0f} % {:18.0f} % {:11.0f} %".format(devices, *found), flush=True)


if __name__ == "__main__":
    main()
