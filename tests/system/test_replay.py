"""The main job as a user runs it: generated traces, processes, an embedded broker, a report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.traces.synth import write_traces
from tests import warm
from tests.system.refusals import refused

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("traces")
    write_traces(directory, devices=3, seed=3, minutes=2.0, overwrite=True)
    return directory


def auscult(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = warm.auscult(*arguments)
    assert done.returncode == code, f"code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def replayed(traces: Path, out: Path, *more: object) -> dict[str, Any]:
    fixed = ("--plain", "--hospitals", 2, "--rounds", 2, "--seed", 5, "--out", out, "--json")
    found: dict[str, Any] = json.loads(auscult("replay", traces, *fixed, *more).stdout)
    return found


@pytest.fixture(scope="module")
def result(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    out = tmp_path_factory.mktemp("run") / "out"
    return replayed(traces, out), out


def test_the_json_tells_everything(result: tuple[dict[str, Any], Path]) -> None:
    found, out = result
    rows = {"alone", "alone_trees", "alone_linear", "pooled"}
    assert set(found["accuracy"]) == {"local", "global", "personalised"} | rows
    assert set(found["auc"]) == {"global", "personalised"}
    assert all(0 <= value <= 1 for value in found["accuracy"].values())
    assert [d["device"] for d in found["devices"]] == ["synth-01", "synth-02", "synth-03"]
    assert all(d["samples"] > 0 and d["held_out"] > 0 and d["peak_memory_mb"] > 20 for d in found["devices"])
    assert found["data"]["generated"] is True
    assert found["seconds"] > 0 and found["memory"]["device_peak_mb"] > 20
    assert found["model"]["parameters"] == 77518 and set(found["model"]["ranks"]) == set(found["model"]["full_ranks"])
    rounds = [line for line in found["curve"] if line["kind"] == "round"]
    assert [(line["round"], line["devices"]) for line in rounds] == [(1, 3), (2, 3)]
    assert found == json.loads((out / "result.json").read_text())


def test_the_test_part_is_judged_once_and_rounds_by_validation(result: tuple[dict[str, Any], Path]) -> None:
    found, _ = result
    assert all(d["validation"] > 0 for d in found["devices"])
    for line in found["curve"][:-2]:
        assert not [name for name in line.get("sums", {}) if name.startswith("test_")]
    final = next(line for line in found["curve"] if line.get("final"))
    tested = final["sums"]["test_global_accuracy"] / final["sums"]["test_devices"]
    assert tested == pytest.approx(found["accuracy"]["global"])
    assert set(found["validation_accuracy"]) == {"global", "personalised"}
    known = final["sums"]["global_accuracy"] / final["sums"]["devices"]
    assert known == pytest.approx(found["validation_accuracy"]["global"])


def test_statistics_are_those_of_the_devices(result: tuple[dict[str, Any], Path]) -> None:
    found, out = result
    models = found["statistics"]["all"]["models"]
    neighbours = ["alone_linear", "alone_trees", "alone"]
    assert [*models] == ["majority", "local", "local_fleet", *neighbours, "global", "personalised", "pooled"]
    kinds = found["neighbours"]["kinds"]
    assert models["alone"] == models[kinds[found["neighbours"]["chosen"]]["row"]] and "local_fleet" in str(kinds)
    for name in ("local", "global", "personalised"):
        assert models[name]["accuracy"] == pytest.approx(found["accuracy"][name])
    for d in found["devices"]:
        assert d["metrics"]["global"]["accuracy"] == pytest.approx(d["accuracy"]["global"])
        assert "confusion" not in d and d["local"]["chosen_by"] == "device"
        own = json.loads((out / "devices" / d["device"] / "result.json").read_text())
        assert sum(map(sum, own["confusion"]["test"]["personal"])) == d["held_out"]
        assert {(t["optimiser"], t["steps"]) for t in own["alone"]} >= {("adam", 25), ("sgd", 400)}
    difference = found["statistics"]["all"]["against_local"]["personalised"]
    assert difference["low"] <= difference["mean"] <= difference["high"]


def test_two_runs_are_compared(result: tuple[dict[str, Any], Path]) -> None:
    """A run against itself: no difference anywhere."""
    found = json.loads(auscult("compare", result[1], result[1] / "result.json", "--json").stdout)
    assert [run["method"] for run in found["runs"]] == ["fedslr", "fedslr"]
    (differences,) = found["differences"].values()
    assert {d["mean"] for d in differences.values()} == {0.0} and "personalised" in differences
    assert "personalised" in auscult("compare", result[1]).stdout


@pytest.mark.long
def test_several_seeds_at_once_and_a_trace_that_is_too_short(traces: Path, tmp_path: Path) -> None:
    some = tmp_path / "some"
    some.mkdir()
    for name in ("synth-01", "synth-02"):
        (some / f"{name}.csv").write_bytes((traces / f"{name}.csv").read_bytes())
    lines = (traces / "synth-03.csv").read_text().splitlines()[:70]
    (some / "short.csv").write_text("\n".join(lines) + "\n")
    more = ("--plain", "--method", "fedavg", "--rounds", 1, "--seeds", 2, "--confusion")
    done = auscult("replay", some, "--hospitals", 1, "--seed", 5, "--out", tmp_path / "out", "--json", *more)
    found = json.loads(done.stdout)
    assert "seed 6: warning: skipped short: " in done.stderr
    assert found["seeds"] == [5, 6] and [run["seed"] for run in found["runs"]] == [5, 6]
    assert found == json.loads((tmp_path / "out" / "result.json").read_text())
    first = json.loads((tmp_path / "out" / "seed-5" / "result.json").read_text())
    assert first == found["runs"][0]
    means = [run["accuracy"]["global"] for run in found["runs"]]
    assert found["statistics"]["all"]["models"]["global"]["accuracy"]["mean"] == pytest.approx(sum(means) / 2)
    assert sum(map(sum, first["devices"][0]["confusion"]["local"])) == first["devices"][0]["held_out"]


def test_bytes_are_those_of_the_models_that_travelled(result: tuple[dict[str, Any], Path]) -> None:
    """Up: each device a dense model in each round, and little else. Down: a model in each round and the final one."""
    found, dense = result[0]["bytes"], 77518 * 4
    assert 1 <= found["device_to_hospital"] / (3 * 2 * dense) <= 1.05
    assert 1 <= found["hospital_to_device"] / (3 * 3 * dense) <= 1.05
    assert 1 <= found["hospital_to_aggregator"] / (2 * 2 * dense) <= 1.05
    shown = [line["bytes_so_far"] for line in result[0]["curve"]]  # from ledgers that may be a moment old
    assert shown == sorted(shown) and shown[-1] <= sum(found.values())


def test_the_final_model_is_a_file_of_named_arrays(result: tuple[dict[str, Any], Path]) -> None:
    found, _ = result
    with np.load(found["model"]["file"], allow_pickle=False) as arrays:
        assert sum(arrays[name].size for name in arrays.files) == 77518


def test_the_report_needs_nothing_else(result: tuple[dict[str, Any], Path]) -> None:
    page = (result[1] / "report.html").read_text()
    assert "http://" not in page and "https://" not in page and "<script" not in page
    assert "synth-03" in page and "personalised" in page and "generated" in page and "<svg" in page


def test_metrics_are_json_lines(result: tuple[dict[str, Any], Path]) -> None:
    lines = [json.loads(line) for line in (result[1] / "metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["round", "round", "evaluation", "finished"]
    assert [line["number"] for line in lines] == sorted({line["number"] for line in lines})


@pytest.mark.long
def test_same_seed_same_result_over_another_broker(
    result: tuple[dict[str, Any], Path], traces: Path, tmp_path: Path
) -> None:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed (apt install mosquitto)")
    with Mosquitto() as broker:
        again = replayed(traces, tmp_path / "again", "--no-local-only", "--broker", broker.url)
    assert again["broker"] == broker.url
    for one, other in zip(result[0]["devices"], again["devices"], strict=True):
        assert one["accuracy"]["global"] == other["accuracy"]["global"]
        assert one["accuracy"]["personalised"] == other["accuracy"]["personalised"]
    first, second = Path(result[0]["model"]["file"]), Path(again["model"]["file"])
    with np.load(first) as a, np.load(second) as b:
        assert all(a[name].tobytes() == b[name].tobytes() for name in a.files)


@pytest.mark.long
def test_fedavg_on_another_layout_of_traces(tmp_path: Path) -> None:
    """Other window, two channels, another label column: a model is compiled for them."""
    rng, directory = np.random.default_rng(0), tmp_path / "traces"
    directory.mkdir()
    for device in "ab":
        rows = ["time,x,y,state"]
        for bout in range(6):
            for i in range(100):
                state = ("rest", "move")[bout % 2]
                x, y = rng.normal(size=2) * (0.1 if state == "rest" else 1.0)
                rows.append(f"{bout * 60 + i / 32:.4f},{x:.4f},{y:.4f},{state}")
        (directory / f"{device}.csv").write_text("\n".join(rows) + "\n")
    more = ("--method", "fedavg", "--settings", "paper", "--label", "state", "--window", 32, "--stride", 16)
    found = replayed(directory, tmp_path / "out", *more, "--set", "eta_l=0.05")
    assert found["method"] == "fedavg" and set(found["accuracy"]) == {"local", "global"}
    assert found["settings"] == {"eta_l": 0.05}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--method", "fedprox"), "method = 'fedprox'; perhaps fedper; there are:"),
        (("--set", "eta_q=3"), "eta_q is no setting, did you mean eta_l or eta_g?"),
        (("--set", "eta_g=-1"), "eta_g = -1"),
        (("--hospitals", 0), "--hospitals 0: at least 1"),
        (("--label", "what"), "what"),
        (("--rounds", 0), "rounds = 0"),
        (("--broker", "http://x"), "expected mqtt://"),
        (("--broker", "mqtt://broker.example"), "plain text would leave this machine"),
        (("--method", "hsgd"), "data sets that are: breast-cancer, tabular, esr:PATH, mnist:PATH"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    traces: Path, tmp_path: Path, arguments: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "replay", traces, "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out" / "logs").exists()


@pytest.mark.long
def test_a_replay_that_was_killed_goes_on_to_the_same_model(traces: Path, tmp_path: Path) -> None:
    """kill -9 after the first round: nodes end with their parent, and --resume plays what is left."""
    fixed = [traces, "--plain", "--hospitals", 2, "--rounds", 6, "--seed", 5, "--no-local-only"]
    out = tmp_path / "out"
    command = [sys.executable, "-m", "edge_sdk.cli", "replay", *map(str, fixed), "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        for line in killed.stdout:
            if line.split()[:2] == ["1", "3"]:
                killed.kill()
    assert not (out / "result.json").exists()
    changed = auscult("replay", *fixed, "--out", out, "--resume", "--set", "eta_l=0.01", code=2)
    assert "begun with settings = {'eta_l': 0.05" in changed.stderr
    found = json.loads(auscult("replay", *fixed, "--out", out, "--resume", "--json").stdout)
    assert found["gradients"] is None, "what devices had computed before the kill is counted nowhere"
    assert [line["round"] for line in found["curve"] if line["kind"] == "round"] == [1, 2, 3, 4, 5, 6]
    whole = json.loads(auscult("replay", *fixed, "--out", tmp_path / "whole", "--json").stdout)
    with np.load(found["model"]["file"]) as a, np.load(whole["model"]["file"]) as b:
        assert all(a[name].tobytes() == b[name].tobytes() for name in a.files)
    assert json.loads(auscult("replay", *fixed, "--out", out, "--resume", "--json").stdout) == found
