"""A guard against becoming slower: this working tree beside earlier commits, in turns, as ratios with intervals.

    python benchmarks/trend.py [--against COMMIT ...] [--blocks 5] [--only WORD ...] [--write]

Each earlier commit is checked out into a folder of its own, which is removed at the end, however it ends; this working
tree is only read. All are run by this Python with the packages that it has. In each block every tree runs every short
benchmark once, so that what else the machine does meets them alike; a first block is not counted. What is measured is
processor time, which other work disturbs less than the clock on the wall, memory at its peak, and bytes. A ratio is
today's figure by the earlier one's: above 1, it has become dearer. Its interval (95 %, Student's t over the logarithms
of the blocks' ratios) wholly above 1.10 is a failure, and the exit code is 1. A tree that cannot be checked out, or in
which a benchmark fails, is named, has no such ratio, and the others go on; the exit code is 2 then. `--write` puts the
table, with date and machine, into docs/speed.md, unless this tree itself has failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.trend_runs import RUNS, UNITS, Unable, prepare
from benchmarks.trend_table import compare, is_complete, put_between, say_failures, write_table

ROOT = Path(__file__).parents[1]
DAYS = 1, 2, 3, 4
"""Days between this commit and the earlier ones, along first parents; the first is the last release, where one is
tagged."""
TODAY = "this working tree"
PAGE = "docs/speed.md"


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def choose_commits(asked: Sequence[str]) -> list[str]:
    """Full names of the commits that are asked for, or of a release and three that are some days older."""
    if asked:
        return [git("rev-parse", "--verify", f"{name}^{{commit}}") for name in asked]
    now, tag = int(git("log", "-1", "--format=%ct")), git("tag", "--merged", "HEAD", "--sort=-creatordate")
    found = [git("rev-parse", f"{tag.split()[0]}^{{commit}}")] if tag else []
    for days in DAYS[len(found) :]:
        found.append(git("rev-list", "-1", "--first-parent", f"--before={now - days * 86_400}", "HEAD"))
    return [commit for commit in dict.fromkeys(found) if commit]


@contextmanager
def checked_out(commits: Sequence[str], fail: Callable[[str], None]) -> Iterator[dict[str, Path]]:
    """The trees of these commits, by their short names, and this one. Their folders are removed at the end.

    Args:
        fail: told of a commit that cannot be checked out; it is left out.
    """
    folder = Path(tempfile.mkdtemp(prefix="auscult-trend-"))
    try:
        trees = {TODAY: ROOT}
        for commit in commits:
            name = f"{commit[:8]}, {git('log', '-1', '--format=%cd', '--date=format:%d %b', commit).lstrip('0')}"
            try:
                git("worktree", "add", "--detach", str(folder / commit[:8]), commit)
            except SystemExit as why:
                fail(f"{name} cannot be checked out: {why}")
            else:
                trees[name] = folder / commit[:8]
        yield trees
    finally:
        for tree in folder.iterdir():
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["git", "-C", str(ROOT), "worktree", "prune"], capture_output=True)


Figures = dict[str, dict[str, list[float | None]]]
"""Name of a figure -> tree -> what was measured in each block; None: it cannot be run there."""


def measure(
    trees: Mapping[str, Path], runs: Sequence[str], blocks: int, say: Callable[[str], None], fail: Callable[[str], None]
) -> Figures:
    """Run all short benchmarks in all trees, in turns.

    Args:
        say: told what goes on.
        fail: told of a tree in which one has failed: it is not run there any more.
    """
    found, cannot = Figures(), set[tuple[str, str]]()
    with tempfile.TemporaryDirectory() as folder:
        try:
            prepare(ROOT, Path(folder))
        except Unable as why:
            raise SystemExit(f"the data for all trees cannot be made: {why}") from None
        for block in range(-1, blocks):
            for name in runs:
                for tree, path in trees.items():
                    started, figures = time.monotonic(), dict[str, float | None].fromkeys(RUNS[name].units)
                    try:
                        if (name, tree) not in cannot:
                            figures |= RUNS[name].measure(path, Path(folder))
                    except Unable as why:
                        fail(f"{tree} cannot run {name}: {why}")
                        cannot.add((name, tree))
                    for figure, value in figures.items() if block >= 0 else ():
                        found.setdefault(figure, {}).setdefault(tree, []).append(value)
                    say(f"block {block + 1} of {blocks}: {name}, {tree}: {time.monotonic() - started:.0f} s")
    return found


def describe_machine() -> str:
    """Processor, cores and Python, for people."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", nargs="+", default=[], metavar="COMMIT", help="(default: of 1 to 4 days before)")
    parser.add_argument("--blocks", type=int, default=5, help="counted blocks, 2 or more (5)")
    parser.add_argument("--only", nargs="+", choices=tuple(RUNS), default=tuple(RUNS), help="(all)")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE}")
    args = parser.parse_args()
    if args.blocks < 2:
        parser.error("an interval takes two blocks or more")
    if args.write and args.only != tuple(RUNS):
        parser.error("the pages have all figures: --write goes without --only")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the folders are removed
    failed = list[str]()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def fail(line: str) -> None:
        failed.append(line)
        say(line)

    with checked_out(choose_commits(args.against), fail) as trees:
        found = measure(trees, args.only, args.blocks, say, fail)
        earlier = [tree for tree in trees if tree != TODAY]
    for name in (name for name, by_tree in found.items() if not is_complete(by_tree[TODAY])):
        fail(f"{TODAY} has not given a figure in every block: {name}")
    rows = [compare(name, by_tree, TODAY, earlier) for name, by_tree in found.items() if is_complete(by_tree[TODAY])]
    table = write_table(rows, earlier, UNITS)
    about = f"{time.strftime('%d %B %Y').lstrip('0')}, {args.blocks} blocks in turns, {describe_machine()}."
    print(table, about, sep="\n\n")
    if args.write and len(rows) == len(found):
        put_between(ROOT / PAGE, f"{table}\n\n{about}")
    dearer = say_failures(rows, earlier)
    print(*failed, *dearer, sep="\n")
    return 2 if failed else 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())
