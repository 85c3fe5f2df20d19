"""Fuzzes a reader, guided by the lines that its inputs reach. In an environment that has atheris (`make fuzz`):

    python -m tests.fuzz TARGET [--minutes 2] [--corpus .fuzz-corpus]

What it has learnt is kept in CORPUS/TARGET, and the next call goes on there. It ends with 0 when the time is over; an
input at which anything but this project's own errors comes out ends it at once, and lies in CORPUS as TARGET-crash-...;
so does one that takes more than 10 s or 1 GiB of memory. `python -m tests.fuzz TARGET --input FILE` tries it again.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["edge_sdk", "aggregator", "msgpack"]):
    from edge_sdk.errors import AuscultError
    from tests.fuzz.targets import TARGETS, Target


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    words.add_argument("target", choices=sorted(TARGETS))
    words.add_argument("--minutes", type=float, default=2.0)
    words.add_argument("--corpus", type=Path, default=Path(".fuzz-corpus"))
    words.add_argument("--input", type=Path, help="try this one input, and show what comes out")
    return words.parse_args()


def run(target: Target, name: str, folder: Path, minutes: float) -> None:
    """Does not return: libFuzzer ends the process."""
    (corpus := folder / name).mkdir(parents=True, exist_ok=True)
    for k, seed in enumerate(target.seeds()):
        (corpus / f"seed-{k}").write_bytes(seed)

    def one(data: bytes) -> None:
        with contextlib.suppress(AuscultError):
            target.check(data)

    words = [f"-max_total_time={round(60 * minutes)}", "-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *words, f"-artifact_prefix={folder}/{name}-", str(corpus)], one)
    atheris.Fuzz()


def main() -> None:
    said = options()
    target = TARGETS[said.target]
    if said.input:
        return target.check(said.input.read_bytes())
    return run(target, said.target, said.corpus, said.minutes)


if __name__ == "__main__":
    main()
