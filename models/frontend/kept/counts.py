"""Values of a count in search of one from which another result follows: those that a module's code speaks of.

What happens at every hundredth call, or after five thousand, has that number in the code or in an attribute.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

from torch import nn

from edge_sdk.models.frontend.kept.snapshots import list_constants, take_snapshot

COUNTS = (0, 1, 2, 3, 10, 100, 1000, 10_000, 1_000_000)
NEAR = (-2, -1, 0, 1)
"""A count may be raised before or after it is read."""
LARGEST, MOST, FEW = 10_000_000, 240, 6


def find_counts(net: nn.Module) -> tuple[int, ...]:
    """COUNTS, and numbers near those in the code of a module and its attributes, near their doubles and products.

    There are at most MOST of them, those of the code first; products only where the numbers are FEW.
    """
    found = take_snapshot(net, copied=False)
    code = set[int]().union(*(list_constants(f.__code__) for f in found.functions.values()))
    plain = {v for path, v in found.values.items() if type(v) is int and len(path) == 2}
    named = [*sorted(code), *sorted(plain), *(v for v in found.values.values() if type(v) is int)]
    numbers = [*dict.fromkeys(abs(n) for n in named if 3 < abs(n) <= LARGEST)]
    products = [a * b for a, b in combinations_with_replacement(numbers, 2)] if len(numbers) <= FEW else []
    near = [m + d for n in numbers for m in (n, 2 * n) for d in NEAR] + [n + d for n in products for d in NEAR]
    return tuple(dict.fromkeys([*COUNTS, 4, 5, 6, *(n for n in near if n <= LARGEST)]))[:MOST]
