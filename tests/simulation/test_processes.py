"""Ranks as processes that torchrun starts: the same bytes as one process, also where one is killed."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="ranks exchange through torch.distributed")

from aggregator.kernels import kernels_for
from tests.simulation.jobs import job_of, play
from tests.simulation.test_job import ROOT, model_of, path_here, without_times

pytestmark = pytest.mark.long
ROUNDS = 40
OPTIONS = ["breast-cancer", "--method", "fedslr", "--clients", "40", "--cohort", "8", "--rounds", str(ROUNDS)]
OPTIONS += ["--hospitals", "2", "--samples", "20", "--seed", "3", "--settings", "stated", "--save-every", "0"]


def launch(out: Path, *options: str, module: tuple[str, ...] = ("edge_sdk.cli",)) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", *module, "simulate"]
    command += [*OPTIONS, "--out", str(out)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=path_here(), cwd=ROOT
    )


def finish(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate()  # no limit: ranks whose peer is silent give up by themselves
    assert process.returncode == 0, text
    return text


def check_same(out: Path, tmp_path: Path) -> None:
    one = play(job_of(tmp_path / "one", clients=40, cohort=8, rounds=ROUNDS), kernels=kernels_for)
    found = json.loads((out / "result.json").read_text())
    assert without_times(found) == without_times(json.loads(json.dumps(one)))
    assert model_of(out) == model_of(tmp_path / "one") and found["simulation"]["ranks"] == 2


@pytest.mark.parametrize("count", ["2", "3"])
def test_ranks_exchange_what_each_gives(count: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
    command += ["-m", "tests.simulation.exchanging"]
    finish(
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=path_here(), cwd=ROOT
        )
    )


def test_two_processes(tmp_path: Path) -> None:
    finish(launch(tmp_path / "two", "--standalone", "--nproc-per-node", "2"))
    check_same(tmp_path / "two", tmp_path)


def test_two_agents(tmp_path: Path) -> None:
    """As on two machines, each of which has one process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = ("--master-addr", "127.0.0.1", "--master-port", str(free.getsockname()[1]))
    agents = [launch(tmp_path / "two", "--nnodes", "2", "--node-rank", str(i), *place) for i in range(2)]
    for agent in agents:
        finish(agent)
    check_same(tmp_path / "two", tmp_path)


def test_a_rank_that_is_killed_costs_its_current_round(tmp_path: Path) -> None:
    """Rounds that were over are not played again, by any rank, and the result is the same."""
    out, over = tmp_path / "two", 5
    options = ("--standalone", "--nproc-per-node", "2", "--max-restarts", "2")
    said = finish(launch(out, *options, module=("tests.simulation.dying", "1", str(over))))
    found = re.search(r"going on after (\d+) answers of clients", said)
    assert found is not None and int(found[1]) >= 8 * over, said  # so many were asked in each
    check_same(out, tmp_path)
