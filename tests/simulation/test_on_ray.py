"""Ranks that Ray starts: the same bytes as one process, also if one is killed; what is said when it cannot be."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="ranks find each other through torch.distributed")

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.simulation.processes import on_ray
from edge_sdk.simulation.processes.links import RankGone
from edge_sdk.simulation.processes.on_ray import Ends, Seat, find_seats
from edge_sdk.simulation.processes.ray_rank import RayRank, Said
from tests.simulation.test_job import ROOT, path_here
from tests.simulation.test_processes import OPTIONS, check_same


def ray_node(name: str, address: str, **resources: float) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": address, "Alive": True, "Resources": resources}


NODES = [ray_node("a", "10.0.0.2", CPU=2.0), ray_node("b", "10.0.0.1", CPU=1.0), ray_node("c", "10.0.0.3", CPU=4.0)]


def test_ranks_are_put_on_this_machine_first_and_then_in_the_order_of_addresses() -> None:
    assert [seat.node for seat in find_seats(NODES, 5, "c", False)] == ["c", "c", "c", "c", "b"]
    assert [seat.node for seat in find_seats(NODES, 4, "a", False)] == ["a", "a", "b", "c"]
    assert find_seats(NODES[::-1], 7, "c", False) == find_seats(NODES, 7, "c", False)


def test_machines_without_cores_have_no_rank() -> None:
    head = ray_node("head", "10.0.0.9")  # as those of a cluster that keep its books are started
    assert [seat.node for seat in find_seats([head, *NODES], 2, "head", False)] == ["b", "a"]


@pytest.mark.parametrize(("gpus", "ranks", "each"), [(1, 4, 0.25), (4, 4, 1.0), (6, 4, 1.0), (8, 4, 2.0), (0, 4, 0.0)])
def test_ranks_of_a_machine_share_its_gpus(gpus: int, ranks: int, each: float) -> None:
    nodes = [ray_node("a", "10.0.0.2", CPU=ranks, GPU=gpus)]
    assert find_seats(nodes, ranks, "a", True) == [Seat("a", each)] * ranks
    assert find_seats(nodes, ranks, "a", False) == [Seat("a", 0.0)] * ranks


def test_a_cluster_that_is_too_small_is_named() -> None:
    dead = {**ray_node("d", "10.0.0.4", CPU=64.0), "Alive": False}
    with pytest.raises(UsageError, match=r"--ray 8: Ray has 7 cores on 3 machines; each rank needs one"):
        find_seats([*NODES, dead], 8, "a", False)


def test_the_cause_is_told_and_not_who_has_missed_the_other() -> None:
    ended = Ends()
    ended.note(0, Said("gone", "rank 1 is gone: it has ended"))
    ended.note(1, Said("failed", "no space left"))
    with pytest.raises(AuscultError, match="no space left"):
        ended.raise_failure()


def test_who_misses_one_that_has_died_has_not_failed() -> None:
    ended = Ends()
    ended.note(0, Said("gone", "rank 1 is gone: it has ended"))
    ended.note_death(1, "killed")
    ended.raise_failure()
    assert ended.deaths == {1: "killed"}


def test_who_misses_one_that_lives_has_failed() -> None:
    ended = Ends()
    ended.note(0, Said("gone", "rank 1 is silent for 1800 s"))
    with pytest.raises(AuscultError, match="silent"):
        ended.raise_failure()


def test_a_failure_beside_a_death_is_told() -> None:
    """It would come again: starting all again does not help."""
    ended = Ends()
    ended.note_death(1, "killed")
    ended.note(0, Said("misused", "--cohort 9: of 8 clients"))
    with pytest.raises(UsageError, match="--cohort 9"):
        ended.raise_failure()


def print_some(options: object) -> None:
    print("one", options)
    print("two", end="")
    print(" and more\nwarning", file=sys.stderr)
    print("\nthe end", end="")


END = [Said("out", "two\n"), Said("out", "the end\n")]


def fail(error: BaseException) -> None:
    raise error


def play_here(play: Any, options: Any, directory: Path) -> list[Said]:
    before = os.getcwd()
    try:
        return list(RayRank().play(play, options, str(directory), {}))
    finally:
        os.chdir(before)


def test_what_a_rank_prints_comes_line_by_line(tmp_path: Path) -> None:
    said = play_here(print_some, 7, tmp_path)
    assert said == [Said("out", "one 7\n"), Said("err", " and more\n"), Said("err", "warning\n"), *END]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UsageError("so"), "misused"),
        (RankGone("so"), "gone"),
        (AuscultError("so"), "failed"),
        (OSError("so"), "failed"),
    ],
)
def test_a_rank_tells_why_it_ends(tmp_path: Path, error: Exception, kind: str) -> None:
    assert play_here(fail, error, tmp_path) == [Said(kind, "so")]


def test_a_machine_without_the_directory_of_the_command_is_told(tmp_path: Path) -> None:
    (said,) = play_here(print_some, 7, tmp_path / "none")
    assert said.kind == "failed" and "none" in said.text


def run(out: Path, *more: str, module: tuple[str, ...] = ("edge_sdk.cli",), **variables: str) -> tuple[int, str]:
    command = [sys.executable, "-m", *module, "simulate", *OPTIONS, "--out", str(out), *more]
    found = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**path_here(), **variables}, cwd=ROOT
    )
    return found.returncode, found.stdout


@pytest.mark.long
def test_a_rank_that_ray_started_and_that_is_killed_costs_its_current_round(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="it starts the ranks")
    code, said = run(tmp_path / "two", "--ray", "2", module=("tests.simulation.dying", "1", "5"))
    assert code == 0, said
    assert "rank 1 has died" in said
    found = re.search(r"going on after (\d+) answers of clients", said)
    assert found is not None and int(found[1]) >= 8 * 5, said  # so many were asked in each
    check_same(tmp_path / "two", tmp_path)


@pytest.mark.long
def test_what_a_rank_says_of_the_options_is_what_the_command_says(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="it starts the ranks")
    code, said = run(tmp_path / "two", "--ray", "2", "--set", "eta_l=-1")
    assert code == 2 and said.count("eta_l") == 1 and "Traceback" not in said, said


@pytest.mark.parametrize(
    ("more", "variables", "text"),
    [
        (("--ray", "0"), {}, "--ray 0: ranks, 1 or more"),
        (("--ray", "2"), {"WORLD_SIZE": "2"}, "torchrun has started 2 ranks already"),
        (("--ray", "2"), {"RAY_ADDRESS": "ray://head:10001"}, "run the command on a machine of the cluster"),
        (("--ray", "2"), {"RAY_ADDRESS": "nohost"}, "RAY_ADDRESS = nohost: HOST:PORT of a Ray cluster, or auto"),
        (("--ray", "2"), {"RAY_ADDRESS": "127.0.0.1:9"}, "RAY_ADDRESS = 127.0.0.1:9: Connection refused"),
    ],
)
def test_what_cannot_be_is_said_at_once(tmp_path: Path, more: Any, variables: dict[str, str], text: str) -> None:
    pytest.importorskip("ray", reason="it starts the ranks")
    code, said = run(tmp_path / "two", *more, **variables)
    assert code == 2 and text in said and "Traceback" not in said, said


def test_ranks_that_die_again_and_again_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    class Dying:
        def __init__(self, ray: Any, seats: Any) -> None:
            pass

        def play(self, play: Any, options: Any, attempt: int) -> dict[int, str]:
            starts.append(attempt)
            return {1: "killed", 2: "killed"}

    library = SimpleNamespace(
        nodes=lambda: [ray_node("a", "10.0.0.2", CPU=3.0)],
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "a"),
    )
    monkeypatch.setattr(on_ray, "find_ray", lambda: library)
    monkeypatch.setattr(on_ray, "joined", lambda ray, count: nullcontext())
    monkeypatch.setattr(on_ray, "Team", Dying)
    with pytest.raises(AuscultError, match=r"rank 1 has died \(killed\), and 1 more, after 3 restarts"):
        on_ray.play_on_ray(print_some, None, 3, False)
    assert starts == [0, 1, 2, 3]


@pytest.mark.long
def test_ranks_on_two_machines_of_a_cluster(tmp_path: Path) -> None:
    """Two of Ray's nodes, which are on this machine."""
    pytest.importorskip("ray", reason="it starts the ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    tokens = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    place = {"cwd": ROOT, "env": {**path_here(), **tokens}, "check": True, "stdout": subprocess.DEVNULL}
    ray = str(Path(sys.executable).with_name("ray"))
    subprocess.run([ray, "get-auth-token", "--generate"], **place)
    try:
        subprocess.run([ray, "start", "--head", "--port", port, "--num-cpus", "1", "--include-dashboard=0"], **place)
        subprocess.run([ray, "start", "--address", f"127.0.0.1:{port}", "--num-cpus", "1"], **place)
        code, said = run(tmp_path / "two", "--ray", "2", RAY_ADDRESS=f"127.0.0.1:{port}", **tokens)
        assert code == 0, said
        check_same(tmp_path / "two", tmp_path)
        code, said = run(tmp_path / "three", "--ray", "3", RAY_ADDRESS=f"127.0.0.1:{port}", **tokens)
        assert code == 2 and "--ray 3: Ray has 2 cores on 2 machines" in said, said
    finally:
        subprocess.run([ray, "stop"], **place)
