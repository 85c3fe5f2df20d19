"""A device's forest beside scikit-learn's extremely randomised trees: processor seconds to grow and to vote.

    python benchmarks/forest.py [--trees 100]

Samples are generated: so many features, of which a fifth tells classes apart. Both grow on one core, by the same
definition; accuracies are of as many samples that none of them has seen. The least of three times is printed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

SIZES = ((150, 250, 7), (600, 250, 7), (2500, 250, 7), (4000, 120, 14))
"""Samples, features, classes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trees", type=int, default=100, help="of each forest (100)")
    trees = parser.parse_args().trees
    heads = ("samples", "features", "classes", "grow s", "vote s", "of sklearn's", "right %")
    print(*(f"{head:>13}" for head in heads))
    for sizes in SIZES:
        print(*(f"{cell:>13}" for cell in (*sizes, *compare(*sizes, trees))))


def compare(count: int, features: int, classes: int, trees: int) -> list[str]:
    """Cells of a row of the table."""
    from sklearn.ensemble import ExtraTreesClassifier

    from edge_sdk.algebra.forest import grow, vote

    x, y = generate(2 * count, features, classes)
    seen, unseen, labels = x[:count], x[count:], y[:count]
    grown, forest = least(lambda: grow(seen, labels, classes, trees, np.random.default_rng(0)))
    voted, shares = least(lambda: vote(forest, unseen))
    fitted, peer = least(lambda: ExtraTreesClassifier(trees, random_state=0, n_jobs=1).fit(seen, labels))
    asked, theirs = least(lambda: peer.predict(unseen))
    right = ((found == y[count:]).mean() for found in (shares.argmax(1), theirs))
    of_peer = f"{grown / fitted:.1f} and {voted / asked:.1f}"
    return [f"{grown:.2f}", f"{voted:.3f}", of_peer, " and ".join(f"{100 * one:.1f}" for one in right)]


def generate(count: int, features: int, classes: int) -> tuple[Any, Any]:
    """Samples (count, features) float32 and their classes (count,)."""
    random = np.random.default_rng(0)
    y = random.integers(0, classes, count)
    middles = 0.8 * random.normal(size=(classes, features)) * (random.random(features) < 0.2)
    return (random.normal(size=(count, features)) + middles[y]).astype(np.float32), y


def least(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of the quickest of three times, and what came of it."""
    times, found = [], None
    for _ in range(3):
        start = time.process_time()
        found = work()
        times.append(time.process_time() - start)
    return min(times), found


if __name__ == "__main__":
    main()
