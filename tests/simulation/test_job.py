"""Whole simulations: against runs in memory and replays, killed and resumed, on processes, from the command line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the model of these data is compiled with it")

from edge_sdk import cli
from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.replay.metrics.scores import NAMES
from edge_sdk.replay.nodes.node_files import CLOUD
from edge_sdk.replay.planning.bundles import compile_network
from edge_sdk.replay.reports.simulated import comparison_lines
from edge_sdk.replay.tuning.memory import make_envs
from edge_sdk.replay.tuning.memory import play as play_in_memory
from edge_sdk.replay.tuning.memory import prepare as prepare_in_memory
from edge_sdk.simulation.processes.ranks import TorchRanks
from edge_sdk.simulation.runs.commands import share_kernels
from tests.simulation.jobs import job_of, no_kernels, play
from tests.simulation.threads import on_all, thread_ranks

ROOT = Path(__file__).parents[2]
TIMES = ("time", "clock")


def without_times(result):
    """All of a result that is the same whenever and however often interrupted it is made."""
    curve = [{key: value for key, value in line.items() if key not in TIMES} for line in result["curve"]]
    return {key: result[key] for key in ("accuracy", "statistics", "devices", "bytes", "auc")} | {"curve": curve}


def model_of(out: Path):
    with np.load(out / "model.npz") as file:
        return {name: file[name].tobytes() for name in file}


@pytest.mark.parametrize("method", ["fedslr", "fedavg"])
def test_devices_of_a_replay_reach_what_they_reach_there(tmp_path, method):
    """What the tuner plays is what a replay plays (tests/replay/test_tune.py, tests/system/test_tune.py)."""
    job = job_of(tmp_path / "a", method=method, settle={"optimiser": "adam", "steps": [0, 5], "local_steps": [5]})
    fleet = prepare_in_memory(job_of(tmp_path / "b", method=method, settle=job.replay.settle).replay, no_kernels, print)
    expected = play_in_memory(fleet, {}).devices
    found = {d["device"]: d for d in play(job)["devices"]}
    for name, accuracies in expected.items():
        assert found[name]["validation_accuracy"] == {NAMES.get(m, m): a for m, a in accuracies.items()}
    assert make_envs(fleet, fleet.run).keys() - {CLOUD} == {*found, "hospital-1", "hospital-2"}


@pytest.mark.parametrize("method", ["fedslr", "hsgd"])
def test_killed_it_goes_on_where_it_was(tmp_path, method):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = play(job_of(whole, clients=40, cohort=8, method=method))
    command = [sys.executable, "-m", "tests.simulation.jobs", str(killed), method, "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=path_here()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
        process.send_signal(signal.SIGKILL)
    said = []
    found = play(job_of(killed, clients=40, cohort=8, method=method, resume=True), say=said.append)
    assert without_times(found) == without_times(expected) and model_of(killed) == model_of(whole)
    assert any("going on after" in text for text in said)
    lines = [json.loads(text) for text in (killed / "metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == [line["kind"] for line in found["curve"]]


def path_here():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_a_resumed_simulation_must_be_the_one_that_was_begun(tmp_path):
    with pytest.raises(RuntimeError):
        play(job_of(tmp_path, clients=40, cohort=8, more={"save_every": 1e-9}), progress=fail_after(3))
    with pytest.raises(UsageError, match=r"it was begun with shift = 0\.0, and not 0\.1"):
        play(job_of(tmp_path, clients=40, cohort=8, resume=True, more={"shift": 0.1}))
    latest = json.loads((tmp_path / "checkpoint.json").read_text())["number"]
    path = tmp_path / f"checkpoint-{latest}-0.bin"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(AuscultError, match="damaged"):
        play(job_of(tmp_path, clients=40, cohort=8, resume=True))


def fail_after(rounds):
    def progress(line):
        if line["round"] == rounds:
            raise RuntimeError

    return progress


def test_ranks_share_no_file_and_come_to_the_same(tmp_path):
    one = play(job_of(tmp_path / "one", clients=40, cohort=8))
    two = on_all(
        thread_ranks(2),
        lambda rank: play(job_of(tmp_path / "two", clients=40, cohort=8, resume=rank.number > 0), rank),
    )
    assert [without_times(found) for found in two] == [without_times(one)] * 2
    assert model_of(tmp_path / "two") == model_of(tmp_path / "one")
    assert (tmp_path / "two" / "rank-1" / "clients").is_dir() and two[0]["simulation"]["ranks"] == 2


def test_results_over_torch(monkeypatch):
    """One process; that two do the same is `test_torchrun`, which takes longer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    ranks = TorchRanks()
    try:
        assert ranks.gather(b"one") == [b"one"] and ranks.gather(b"") == [b""]
        for data in (bytes(range(256)) * 1000, b"two"):  # more than there was room for, and less again
            assert ranks.gather(data) == [data]
        values = np.array([2**62, -1], np.int64)
        assert (ranks.add(values) == values).all() and (ranks.number, ranks.count) == (0, 1)
    finally:
        ranks.close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"clients": 2, "hospitals": 3}, "each hospital has at least one client"),
        ({"clients": 40, "cohort": 41}, "--cohort 41: there are 40 clients"),
        ({"clients": 40, "options": {"deal": "mixed"}}, "with --clients one of iid"),
        ({"more": {"shift": 0.5}}, "--shift is for clients that draw"),
        ({"more": {"deadline": 0.0}}, "--deadline 0.0: seconds, above 0"),
        ({"clients": 40, "newcomers": ("c01",)}, "--newcomers"),
        ({"clients": 40, "data": "tests"}, "--samples is for a data set, and tests is none"),
    ],
)
def test_what_cannot_be_simulated_is_said_before_anything_begins(tmp_path, more, said):
    with pytest.raises(UsageError, match=said):
        play(job_of(tmp_path, **more))


def test_a_method_that_asks_everybody_meets_a_cohort(tmp_path):
    """FedAL draws nobody; in a simulation only so many are there in a round."""
    job = job_of(tmp_path, clients=40, cohort=8, method="fedal", rounds=2, settings={"tau": 1, "public_batch": 16})
    lines = [line for line in play(job)["curve"] if line["kind"] == "round"]
    assert [line["devices"] for line in lines] == [8, 8]


@pytest.fixture(scope="module")
def networks():
    """Bundles of two MLPs, with 8 and 12 hidden units."""
    sizes = ["--input", "30", "--classes", "2"]
    return tuple(compile_network("mlp", [*sizes, "--arg", f"hidden=({width},)"], 7, print) for width in (8, 12))


@pytest.mark.parametrize("method", ["fedal", "fedslr-b+fedal"])
def test_clients_with_networks_of_their_own(tmp_path, method, networks):
    """Companions, and the devices of FedAL, may have others than the run's: alone, on two ranks, and resumed."""
    options = {"samples": 20, "public": 40}
    more = {"clients": 40, "cohort": 16, "method": method, "rounds": 3, "options": options}
    more["bundle"] = networks
    expected = play(job_of(tmp_path / "one", **more))
    two = on_all(thread_ranks(2), lambda rank: play(job_of(tmp_path / "two", **more, resume=rank.number > 0), rank))
    with pytest.raises(RuntimeError):
        play(job_of(tmp_path / "again", **more | {"more": {"save_every": 1e-9}}), progress=fail_after(2))
    resumed = play(job_of(tmp_path / "again", **more, resume=True))
    assert [without_times(found) for found in (*two, resumed)] == [without_times(expected)] * 3
    assert expected["simulation"]["records"] > 0


@pytest.mark.parametrize("method", ["fedslr", "fedal"])
def test_heavy_steps_that_ranks_share_change_no_bit(tmp_path, method):
    """With the kernels of the command, which are torch's."""
    more = {"clients": 40, "cohort": 16, "method": method, "rounds": 3, "options": {"samples": 20, "public": 40}}
    one, two = (
        on_all(
            thread_ranks(count),
            lambda rank, out=tmp_path / str(count): play(
                job_of(out, **more, resume=rank.number > 0), rank, kernels=share_kernels("full", rank)
            ),
        )
        for count in (1, 2)
    )
    assert [without_times(found) for found in two] == [without_times(one[0])] * 2


# On the command line --------------------------------------------------------------------------------------------
def test_where_nothing_takes_time_the_bytes_alone_are_told():
    reached = {"model": "global", "target": 0.5, "clock": 0.0, "bytes": 2_400_000}
    instant, slow = (
        {"name": name, "reached": [reached | {"clock": clock}]} for name, clock in (("a", 0.0), ("b", 90.0))
    )
    lines = comparison_lines([instant])
    assert lines[1] == "reached after what was sent" and lines[-1].endswith(" 2.4 MB")
    assert comparison_lines([instant, slow])[-1].split()[2:] == ["0.00", "/", "2.4", "MB", "0.03", "/", "2.4", "MB"]


def test_a_sweep_and_its_comparison(tmp_path, capsys):
    command = "simulate breast-cancer --method fedavg --clients 30 --cohort 6 --rounds 4 --samples 20 --seed 3 "
    command += "--no-neighbours"  # tests/replay/test_neighbours.py has them
    given = [
        *command.split(),
        "--out",
        str(tmp_path),
        "--evaluate-every",
        "1",
        "--behave",
        "work=60",
        "--behave",
        "spread=1",
        "--target",
        "0.6",
    ]
    assert cli.main([*given, "--sweep", "deadline=60,600", "--sweep", "behave.slow=0,0.5"]) == 0
    text = capsys.readouterr().out
    names = [f"deadline={d},behave.slow={s}" for d in (60, 600) for s in (0, 0.5)]
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in names]
    assert "reached after hours of the virtual clock / what was sent" in text and all(name in text for name in names)
    clocks = [result["simulation"]["clock"] for result in results]
    assert clocks[0] == clocks[1] == 4 * 60 and clocks[2] < clocks[3] <= 4 * 600
    reached = results[2]["simulation"]["reached"]
    assert reached[0]["target"] == 0.6 and 0 < reached[0]["clock"] <= clocks[2] and reached[0]["bytes"] > 0
    assert "On the virtual clock" in (tmp_path / names[0] / "report.html").read_text()
    assert cli.main(["compare", *(str(tmp_path / name) for name in names[:2])]) == 0


def test_several_ranks_must_be_told_where(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(["simulate", "breast-cancer"]) == 2
    assert "--out: name a directory" in capsys.readouterr().err


def test_what_is_printed(tmp_path, capsys):
    command = f"simulate breast-cancer --method fedavg --rounds 2 --devices 2 --hospitals 2 --seed 3 --out {tmp_path}"
    assert cli.main([*command.split(), "--json"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["simulation"]["clients"] == 4 and "4 devices in 2 hospitals" in found.err
    assert cli.main([*command.split(), "--resume"]) == 0
    text = capsys.readouterr().out
    assert "this simulation is over" in text and "peak memory" in text
