"""What checks and figures of the loop cost: the empty loop of benchmarks/wire.py without each, in turns with the whole.

    python benchmarks/wire.py --without WORD ... [--sizes 10x10k] [--blocks 3]

Words are those of PARTS. A part is replaced by nothing in all processes, so that only its cost is seen: this is for
measuring, a node without it is not what we promise. Figures are milliseconds of processor time for each round.
"""

from __future__ import annotations

import importlib
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

Replaced = Mapping[str, Callable[..., Any]]
PARTS: Mapping[str, Replaced] = {
    "checksums": {"delivery.storage.checksums:checksum": lambda data: 1},
    "finite": {"wire.codec.bodies:check_finite": lambda array, code, hint="": None},
    "quotas": {
        "delivery.session:Session.has_room": lambda self, src, size: True,
        "live.membership.rate_limit:Frequency.admits": lambda self, peer, size, now: True,
        "live.membership.rate_limit:Frequency.give_back": lambda self, peer: None,
    },
    "counters": {
        "delivery.roles.counters:Counters.count": lambda self, name, by=1: None,
        "delivery.roles.counters:Counters.count_traffic": lambda self, direction, peer, size: None,
    },
    "mark": {"delivery.storage.log_check:WritingMark.note": lambda self, writing: None},
    "waiting": {"live.membership.waiting_log:WaitingLog.look": lambda self, *_, **__: None},
}
"""Word -> function of edge_sdk, or method of one of its classes -> what stands in for it."""
ABOUT = {
    "checksums": "of each row, record and body",
    "finite": "that each number is finite",
    "quotas": "bytes and messages that a peer may have waiting, and send in a second",
    "counters": "bytes, messages and refusals for each peer",
    "mark": "that a transaction is under way, for the next process",
    "waiting": "who is waited for",
}


@contextmanager
def without(word: str) -> Iterator[None]:
    """A part is replaced by nothing, in this process and in those that it forks."""
    with ExitStack() as undo:
        for place, nothing in PARTS[word].items():
            replace(place, nothing, undo)
        yield


def replace(place: str, nothing: Callable[..., Any], undo: ExitStack) -> None:
    """Replace a function wherever it was imported to, or a method of a class."""
    module, _, names = place.partition(":")
    home: Any = importlib.import_module(f"edge_sdk.{module}")
    *outer, name = names.split(".")
    for each in outer:
        home = getattr(home, each)
    was = getattr(home, name)
    homes = [home] if outer else [m for m in list(sys.modules.values()) if getattr(m, name, None) is was]
    for each in homes:
        setattr(each, name, nothing)
        undo.callback(setattr, each, name, was)


def compare(measure: Callable[[], Mapping[str, Any]], words: Sequence[str], blocks: int) -> str:
    """A table: milliseconds of processor time of a round with everything, and what each part takes of it.

    Args:
        measure: plays the loop; has "parent_cpu_ms" and "child_cpu_ms".
    """
    found: dict[str, list[tuple[float, float]]] = {word: [] for word in ("", *words)}
    for _ in range(blocks):
        for word in found:
            with without(word) if word else ExitStack():
                row = measure()
            found[word].append((row["parent_cpu_ms"], row["child_cpu_ms"]))
    lines = ["| part | at the parent, ms | at a child, ms |", "|---|---|---|", line_of("everything", found[""])]
    for word in words:  # differences within a block, which saw the same weather
        less = [(a - c, b - d) for (a, b), (c, d) in zip(found[""], found[word], strict=True)]
        lines.append(line_of(f"{word}: {ABOUT[word]}", less))
    return "\n".join(lines)


def line_of(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    above, below = (statistics.median(side) for side in zip(*pairs, strict=True))
    return f"| {name} | {above:.2f} | {below:.2f} |"
