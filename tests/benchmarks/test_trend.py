"""The guard against becoming slower: its ratios, intervals and table, and that it touches nothing of the user's."""

from __future__ import annotations

import subprocess
from math import exp, log, sqrt
from pathlib import Path
from statistics import stdev

import numpy as np
import pytest

from benchmarks import trend
from benchmarks.trend_runs import RUNS, UNITS, Unable, Used, start
from benchmarks.trend_table import (
    END,
    Ratio,
    Row,
    begin,
    compare,
    find_ratio,
    put_between,
    read_between,
    say_failures,
    write_table,
)

ROOT = Path(__file__).parents[2]


def test_a_ratio_is_the_geometric_mean_and_its_interval_is_students() -> None:
    today, earlier = [2.0, 3.0, 4.0], [1.0, 2.0, 2.0]
    found, logs = find_ratio(today, earlier), [log(2.0), log(1.5), log(2.0)]
    half = 4.303 * stdev(logs) / sqrt(3)  # quantile 0.975 of t with 2 degrees of freedom
    assert found.mean == pytest.approx((2.0 * 1.5 * 2.0) ** (1 / 3))
    assert (found.low, found.high) == pytest.approx((found.mean * exp(-half), found.mean * exp(half)))


def test_intervals_cover_the_true_ratio_in_19_of_20_cases() -> None:
    rng, covered, trials = np.random.default_rng(1), 0, 4000
    for _ in range(trials):
        weather = rng.lognormal(0, 1, 5)  # both trees meet the same in a block
        found = find_ratio(*(list(weather * rng.lognormal(m, 0.1, 5)) for m in (log(1.2), 0.0)))
        covered += found.low <= 1.2 <= found.high
    assert covered / trials == pytest.approx(0.95, abs=0.012)


def test_what_does_not_vary_has_no_width() -> None:
    found = find_ratio([3.0, 3.0], [2.0, 2.0])
    assert str(found) == "1.50"
    assert found.is_dearer


@pytest.mark.parametrize(("today", "earlier"), [([1.0], [1.0]), ([1.0, 0.0], [1.0, 1.0]), ([1.0, 1.0], [1.0])])
def test_ratios_of_too_little_are_refused(today: list[float], earlier: list[float]) -> None:
    with pytest.raises(ValueError):
        find_ratio(today, earlier)


@pytest.mark.parametrize(
    ("ratio", "dearer"),
    [(Ratio(1.3, 1.11, 1.5), True), (Ratio(1.3, 1.10, 1.5), False), (Ratio(1.05, 1.04, 1.06), False)],
)
def test_a_failure_is_an_interval_wholly_above_the_limit(ratio: Ratio, dearer: bool) -> None:
    rows = [Row("a step", 1.0, (None, ratio))]
    assert [line.startswith("a step: 1.30") for line in say_failures(rows, ["x", "y"])] == [True] * dearer


def test_the_table_has_a_row_for_each_figure_and_a_column_for_each_commit() -> None:
    by_tree = {"today": [2.0, 2.0], "x": [1.0, 1.0], "y": [None, None]}
    row = compare("a step", by_tree, "today", ["x", "y"])
    assert write_table([row], ["x", "y"], {"a step": "ms"}).splitlines() == [
        "| what it costs | today | by x | by y |",
        "| --- | --- | --- | --- |",
        "| a step | 2 ms | **2.00** | - |",
    ]


def test_a_table_is_put_between_the_marks_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first, second = begin("a.py"), begin("b.py: rows")
    page.write_text(f"before\n{first}\nold\n{END}\nbetween\n{second}\nold\n{END}\nafter\n")
    put_between(page, "new", "b.py: rows")
    put_between(page, "newer", "b.py: rows")
    assert page.read_text() == f"before\n{first}\nold\n{END}\nbetween\n{second}\n\nnewer\n\n{END}\nafter\n"
    assert read_between(page, "b.py: rows") == "newer"
    for damaged in (f"{END}\n{first}\n", f"{first}\n{second}\n{END}\n", f"{first}\n{END}\n{first}\n{END}\n"):
        page.write_text(damaged)
        with pytest.raises(ValueError, match="after it"):
            put_between(page, "new", "a.py")


def test_the_table_of_the_page_has_the_units() -> None:
    table = read_between(ROOT / trend.PAGE)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    assert rows
    for figure, today, *_ in rows:
        assert today.split()[1] == UNITS[figure]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of three commits on three days, with a change that is not committed."""

    def git(*words: str, day: int = 1) -> None:
        when = f"2026-01-0{day}T12:00:00Z"
        env = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(root), *who, *words], check=True, env=env, capture_output=True)

    root = tmp_path / "repository"
    root.mkdir()
    git("init", "-b", "main")
    for day in (1, 2, 3):
        (root / "file").write_text(str(day))
        git("add", "file")
        git("commit", "-m", str(day), day=day)
    (root / "file").write_text("not committed")
    monkeypatch.setattr(trend, "ROOT", root)
    return root


def test_commits_are_of_some_days_before_each_once(repository: Path) -> None:
    found = trend.choose_commits([])
    assert found == [trend.git("rev-parse", f"HEAD~{n}") for n in (1, 2)]
    assert trend.choose_commits(["HEAD~2"]) == [trend.git("rev-parse", "HEAD~2")]
    with pytest.raises(SystemExit, match="nothing-of-that-name"):
        trend.choose_commits(["nothing-of-that-name"])


def test_a_release_comes_first(repository: Path) -> None:
    trend.git("tag", "v1", "HEAD~2")
    assert trend.choose_commits([])[0] == trend.git("rev-parse", "HEAD~2")


@pytest.mark.parametrize("fails", [False, True])
def test_trees_are_those_of_the_commits_and_nothing_is_left_behind(repository: Path, fails: bool) -> None:
    commits = trend.choose_commits([])
    try:
        with trend.checked_out(commits, pytest.fail) as trees:
            read = [(tree / "file").read_text() for tree in trees.values()]
            paths = list(trees.values())[1:]
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert read == ["not committed", "2", "1"]
    assert not any(path.exists() for path in paths)
    assert trend.git("worktree", "list").count("\n") == 0
    assert (repository / "file").read_text() == "not committed"


def test_trees_take_turns_and_the_first_block_is_not_counted(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str]()

    def run(tree: Path, folder: Path) -> dict[str, float]:
        seen.append(tree.name)
        if tree.name == "b":
            raise Unable("it has no such command")
        return {"cost": float(len(seen))}

    monkeypatch.setattr(trend, "prepare", lambda tree, folder: None)
    monkeypatch.setitem(RUNS, "one", trend.RUNS["step"].__class__(run, {"cost": "s"}))
    trees, failed = {trend.TODAY: Path("a"), "earlier": Path("b"), "later": Path("c")}, list[str]()
    found = trend.measure(trees, ["one"], 2, lambda line: None, failed.append)
    assert failed == ["earlier cannot run one: it has no such command"]
    assert seen == ["a", "b", "c", "a", "c", "a", "c"]
    assert found == {"cost": {trend.TODAY: [4.0, 6.0], "earlier": [None, None], "later": [5.0, 7.0]}}


WAYS = {
    "Unable: it has no such command": Unable("it has no such command"),
    "IndexError: list index out of range": IndexError("list index out of range"),
    "KeyError: 'ours, normal'": KeyError("ours, normal"),
    "figures that are not above 0: {'cost': 0.0}": 0.0,
    "figures that are not above 0: {'cost': nan}": float("nan"),
}


@pytest.mark.parametrize("where", ["HEAD~1", "HEAD"])
@pytest.mark.parametrize("why", WAYS)
def test_a_tree_that_fails_is_named_and_the_others_go_on(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str, where: str
) -> None:
    """In the second counted block, after it had gone well: what was measured in the others is not lost."""
    failing = trend.git("rev-parse", where) if where != "HEAD" else trend.ROOT.name
    seen = dict[str, int]()

    def run(tree: Path, folder: Path) -> dict[str, float]:
        seen[tree.name] = seen.get(tree.name, 0) + 1
        if seen[tree.name] == 3 and failing.startswith(tree.name):
            if isinstance(way := WAYS[why], Exception):
                raise way
            return {"cost": way}
        return {"cost": 1.0 + seen[tree.name]}

    one = RUNS["step"].__class__
    monkeypatch.setattr(trend, "prepare", lambda tree, folder: None)
    for name in list(RUNS):
        monkeypatch.delitem(RUNS, name)
    monkeypatch.setitem(RUNS, "one", one(run, {"cost": "s"}))
    monkeypatch.setitem(RUNS, "two", one(lambda tree, folder: {"other": 2.0}, {"other": "s"}))
    for figure in ("cost", "other"):
        monkeypatch.setitem(UNITS, figure, "s")
    monkeypatch.setattr("sys.argv", ["trend.py", "--blocks", "3", "--against", "HEAD~1", "HEAD~2"])
    assert trend.main() == 2
    printed = capsys.readouterr()
    name = trend.TODAY if where == "HEAD" else failing[:8]
    assert f"cannot run one: {why.removeprefix('Unable: ')}" in printed.out and name in printed.out
    assert "| other | 2 s | 1.00 | 1.00 |" in printed.out
    assert ("| cost | 4 s | - | 1.00 |" in printed.out) == (where == "HEAD~1")
    assert trend.git("worktree", "list").count("\n") == 0


def test_a_commit_that_cannot_be_checked_out_is_named_and_left_out(repository: Path) -> None:
    gone, failed = "0" * 40, list[str]()
    kept = trend.git("rev-parse", "HEAD~1")
    real = trend.git

    def git(*words: str) -> str:
        return "1 Jan" if words[0] == "log" else real(*words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trend, "git", git)
        with trend.checked_out([gone, kept], failed.append) as trees:
            assert [name[:8] for name in trees] == [trend.TODAY[:8], kept[:8]]
    assert len(failed) == 1 and failed[0].startswith("00000000, 1 Jan cannot be checked out: ")


def test_what_a_benchmark_leaves_behind_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that it has started, and that has its pipes, lives on where only itself is killed."""
    monkeypatch.setattr("benchmarks.trend_runs.LONGEST", 1.0)
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    with pytest.raises(Unable, match="more than 1 s"):
        start(tmp_path, ["-c", f"{code}; time.sleep(600)"])


def test_processor_time_is_that_of_the_process_and_of_what_it_waited_for(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}], check=True); print('done')"
    found = start(tmp_path, ["-c", code])
    assert isinstance(found, Used)
    assert found.output == "done\n"
    assert 0.2 <= found.seconds < 2.0
    with pytest.raises(Unable, match="no such thing"):
        start(tmp_path, ["-c", "import sys; sys.exit('no such thing')"])


def test_every_tree_keeps_what_python_has_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a fresh checkout would compile its modules in each process, and look dearer than a tree that is used."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "fresh.py").write_text("")
    found = Path(start(tmp_path, ["-c", "import fresh; print(fresh.__cached__)"]).output.strip())
    assert found.is_file() and not found.is_relative_to(tmp_path)
