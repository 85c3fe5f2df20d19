"""What ranks exchange, each with all others, in sizes for which there was room before and in larger ones.

python -m torch.distributed.run --nproc-per-node 3 -m tests.simulation.exchanging
"""

from __future__ import annotations

import numpy as np

from edge_sdk.simulation.processes.ranks import find_ranks


def main() -> None:
    ranks = find_ranks()
    every = range(ranks.count)
    for size in (3, 5000, 100_000, 0):
        assert ranks.gather(bytes([ranks.number]) * (size + ranks.number)) == [bytes([k]) * (size + k) for k in every]
    own = np.arange(70_000) * (ranks.number + 1)
    before = own.copy()
    assert np.array_equal(ranks.add(own), np.arange(70_000) * sum(k + 1 for k in every))
    assert np.array_equal(own, before)
    assert ranks.tell(f"rank {ranks.number}".encode()) == b"rank 0"
    ranks.close()


if __name__ == "__main__":
    main()
