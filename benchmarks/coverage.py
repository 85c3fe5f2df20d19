"""How often the 95 % interval of a mean over few devices holds the true mean: `python benchmarks/coverage.py`.

Differences between two models are drawn from a normal distribution, with the true mean 0; a percentile bootstrap of so
few of them is known to be too narrow (T. C. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015).
"""

from __future__ import annotations

import argparse

import numpy as np

from edge_sdk.replay.metrics.statistics import bootstrap


def coverage(devices: int, trials: int, seed: int = 0) -> float:
    """Share of trials whose interval holds the true mean."""
    random = np.random.default_rng([seed, devices])
    ends = [bootstrap(random.normal(size=devices), seed) for _ in range(trials)]
    return sum(low <= 0 <= high for low, high in ends) / trials


def main() -> None:
    """Prints a line for each number of devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    options = parser.parse_args()
    for devices in (3, 5, 9, 14, 30):
        print(f"{devices:3} devices: {100 * coverage(devices, options.trials):.0f} %", flush=True)


if __name__ == "__main__":
    main()
