"""Replays of reconstructed windows: generated falls, refusals before a process starts, scores, neighbours, a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra.metrics.reconstruction import score_sums, scores_of
from edge_sdk.cli import main
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import store_samples
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.replay.anomalies import compared, tables
from edge_sdk.replay.anomalies.neighbours import look_for_detectors
from edge_sdk.replay.anomalies.scores import FIGURES, score_anomalies, summarise_anomalies, with_reconstruction_errors
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.planning.bundles import network_of, size_options
from edge_sdk.replay.traces.falls import RATE, write_fall_traces
from edge_sdk.replay.values.asked import check_asked
from tests.layers import check_refused, check_same_bytes, save_bundle
from tests.reconstructions import NAMES, SHAPE, WAVES, compile_waves, draw, samples

pytest.importorskip("torch", reason="a bundle is compiled here")


@pytest.fixture(scope="module")
def falls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of generated traces, and in it a bundle for windows of 3 channels and 32 samples."""
    from torch import nn

    folder = tmp_path_factory.mktemp("falls") / "traces"
    write_fall_traces(folder, devices=3, minutes=9)
    net = nn.Sequential(nn.Flatten(), nn.Linear(96, 8), nn.Linear(8, 96), nn.Unflatten(1, (3, 32)))
    save_bundle(folder / "flat.bundle", net, "flat", (3, 32), "mean_squared_error", WAVES)
    return folder


# The generator --------------------------------------------------------------------------------------------------
def test_weight_is_gone_where_a_fall_begins_and_a_tremor_is_quick(tmp_path: Path) -> None:
    write_fall_traces(tmp_path, devices=6, minutes=8)
    lightest, quick = list[float](), {"tremor": list[float](), "": list[float]()}
    for file in sorted(tmp_path.glob("*.csv")):
        trace = read_trace(file)
        assert trace.channels == ("ax", "ay", "az") and trace.rate_hz == pytest.approx(RATE, rel=1e-3)
        names = np.array([*trace.classes, ""])[trace.codes]
        assert 0 < (names != "").mean() < 0.25, "rare"
        runs = np.flatnonzero(names[1:] != names[:-1]) + 1
        for part in np.split(np.arange(len(names)), runs):
            name, x = names[part[0]], trace.values[part].astype(float)
            if name == "fall":
                lightest.append(float(np.linalg.norm(x[:8], axis=1).min()))
            elif len(part) > 4 * RATE:
                power = np.square(np.abs(np.fft.rfft(x - x.mean(0), axis=0))).sum(1)
                at = np.fft.rfftfreq(len(part), 1 / RATE)
                quick[name].append(float(power[(at > 3.5) & (at < 6.5)].sum() / power.sum()))
    assert len(lightest) >= 3 and np.median(lightest) < 0.6
    assert np.median(quick["tremor"]) > 2 * np.median(quick[""])


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    check_same_bytes(write_fall_traces, tmp_path, "falls-01.csv")


# What is in the data --------------------------------------------------------------------------------------------
def test_a_cohort_of_windows(falls: Path) -> None:
    asked = {"task": "reconstruction", "abnormal": "fall,tremor", "window": 32}
    found = form_cohort(str(falls), 2, 0, asked)
    assert found.classes == ("normal", "fall", "tremor") and found.step == pytest.approx(1.0)
    options = size_options((3, 32), found)
    assert options[2:6] == ["--task", "reconstruction", "--quantile", "0.99"] and "--channels=ax,ay,az" in options
    assert found.signal is not None and found.signal.normalise(np.zeros((1, 3, 32), np.float32)).shape == (1, 3, 32)
    bare = form_cohort(str(falls), 2, 0, {"task": "reconstruction"})
    assert bare.classes == ("normal",) and bare.task is not None and bare.task.kind == "reconstruction"
    with pytest.raises(UsageError, match="--abnormal crash: no such label; the data have fall, tremor"):
        form_cohort(str(falls), 2, 0, asked | {"abnormal": "fall,crash"})
    with pytest.raises(UsageError, match="each name once"):
        form_cohort(str(falls), 2, 0, asked | {"abnormal": "fall,Fall"})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--quantile", "0.5"), "--quantile 0.5: bundle flat predicts the window itself"),
        (("--abnormal", "fall", "--quantile", "2"), "quantile = 2.0, expected a share between 0 and 1"),
        (("--task", "reconstruction", "--target", "ax"), "leave --target, --labels, --labelled and --ask out"),
        (("--labelled", "5"), "leave --target, --labels, --labelled and --ask out"),
        (("--settle", "steps=[0]"), "task reconstruction: run.settle chooses by right and wrong outputs"),
        (("--augment", "scale=0.1"), "task reconstruction: a changed window would be compared with itself"),
        (("--days", "2", "--settle", "steps=[0]"), "task reconstruction: run.settle chooses by right"),
        (("--method", "fedal", "--public", "32"), "task reconstruction: method fedal"),
    ],
)
def test_what_does_not_fit_is_said_before_a_process_starts(
    falls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], words: str
) -> None:
    check_refused(falls, tmp_path / "out", ("--window", "32", *more), words, capsys)


@pytest.mark.usefixtures("compiled_here")
def test_options_of_anomalies_need_the_task(falls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--abnormal and --quantile are of anomalies: say --task reconstruction"):
        form_cohort(str(falls), 1, 0, {"abnormal": "fall"})
    out = ("--out", str(tmp_path / "out"), "--plain", "--method", "fedavg", "--hospitals", "1")
    assert main(["replay", str(falls), "--task", "reconstruction", "--bundle", "wrist", *out]) == 2
    assert "task reconstruction: a window is (3, 64), and the module returns" in capsys.readouterr().err


def test_samples_that_are_ready_are_reconstructed_too(tmp_path: Path) -> None:
    for name in "ab":
        store_samples(tmp_path / f"{name}.npz", samples(40, 2), samples(20, 5), samples(20, 0))
    found = form_cohort(str(tmp_path), 1, 0, {"task": "reconstruction", "abnormal": "spike"})
    assert found.classes == NAMES and found.shapes == {"x": SHAPE} and found.step == 0 and found.signal is None
    assert size_options(SHAPE, found)[2:] == ["--task", "reconstruction", "--quantile", "0.99"]


def test_data_sets_are_reconstructed_too_and_other_commands_say_who_does(falls: Path) -> None:
    found = form_cohort("breast-cancer", 1, 0, {"task": "reconstruction", "abnormal": "malignant", "devices": 2})
    assert found.classes == ("normal", "malignant") and network_of(found.task, 1) == "autoencoder-dense"
    assert network_of(found.task, 2) == "autoencoder" and network_of(None, 2) == "wrist"
    with pytest.raises(UsageError, match="no such label; the data have benign, malignant"):
        form_cohort("breast-cancer", 1, 0, {"task": "reconstruction", "abnormal": "none"})
    with pytest.raises(UsageError, match="the data are read for classes: `auscult replay --task reconstruction` takes"):
        check_asked(read_bundle(falls / "flat.bundle"), None)


# Scores ---------------------------------------------------------------------------------------------------------
def sums_of(seed: int, scale: float) -> dict[str, float]:
    random = np.random.default_rng(seed)
    abnormal = np.arange(100) >= 80
    errors = scale * random.lognormal(abnormal * 2.0, 0.5)
    return {"samples": 100.0, **score_sums(errors, abnormal, scale * 3), "variance": 80.0}


def result_of(chosen: str = "pca", step: float = 2.0) -> dict[str, Any]:
    written = []
    for k, name in enumerate("abcd"):
        test = {"mean": sums_of(k, 2), "local": sums_of(k, 0.5), "global": sums_of(k, 0.3), "personal": sums_of(k, 0.1)}
        more = {"hospital": "h", "samples": 5, "held_out": 100, "newcomer": name == "d"}
        written.append({"device": name, "sums": {"test": test}, **more})
    distance = {n: v for n, v in sums_of(1, 9).items() if n not in ("error", "variance")}
    rows = {d["device"]: {"alone": d["sums"]["test"]["local"], "alone_distance": distance} for d in written}
    devices = score_anomalies(written, rows, step)
    told = {"state": "computed", "on": "windows", "chosen": chosen, "components": 8, "pooled": {"chosen": "pca"}}
    run = Run(id="r", method="fedavg", classes=NAMES)
    found = {"devices": devices, "anomalies": summarise_anomalies(devices, run, WAVES, step), "neighbours": told}
    return {**found, "method": "fedavg", "seed": 0, "bytes": {"device_to_hospital": 1e6}}


def test_devices_weigh_the_same_and_all_windows_together_are_told_beside() -> None:
    found = result_of()["anomalies"]
    own = [scores_of(sums_of(k, 0.1)) for k in range(3)]
    personal, together = found["models"]["personalised"], found["together"]["personalised"]
    assert personal["error"] == pytest.approx(np.mean([one.error for one in own])), "newcomers are not in it"
    assert personal["auroc"] == pytest.approx(np.mean([one.auroc for one in own])) and together["abnormal"] == 60
    assert personal["alarms_per_day"] == pytest.approx(personal["alarms"] * 43_200)
    assert found["models"]["alone_distance"]["error"] is None and found["models"]["alone_distance"]["auroc"] > 0.9
    against = found["against"]["alone"]["personalised"]
    assert against["mean"] < 0 and against["high"] < 0 and against["worse"] == 0 and against["devices"] == 3
    assert result_of(step=0.0)["anomalies"]["models"]["global"]["alarms_per_day"] is None, "nobody knows the rate"
    assert list(found["models"])[:3] == ["mean", "local", "alone_distance"]


def test_tables_say_error_and_auroc_and_who_wins() -> None:
    result = result_of()
    said = tables.verdict(result)
    assert said.startswith("Joining pays: mean error of the personal models 0.1") and "AUROC, means over" in said
    assert "alone (8 principal components)" in said and "accuracy" not in said
    assert "alone (network)" in tables.verdict(result_of("network"))
    shown = tables.device_table(result)
    assert "d *" in shown and "* joined the finished run" in shown and "AUROC" in shown
    assert "+-" in tables.model_table(result) and "alarms a day" in tables.model_table(result)


def test_lines_of_metrics_get_errors() -> None:
    line = {"kind": "round", "round": 1, "sums": {"devices": 2.0, "global_reconstruction_error": 0.5}}
    assert with_reconstruction_errors(line, WAVES)["errors"] == {"global": {"window": 0.25}}
    assert with_reconstruction_errors(line, None) is line


def test_runs_are_compared_by_paired_errors_and_not_with_others() -> None:
    one, other = result_of(), result_of()
    for d in other["devices"]:
        d["anomalies"]["global"]["error"] += 0.1
    found = compared.compare_anomalies({"one": one, "other": other})
    assert found["differences"]["other"]["global"]["mean"] == pytest.approx(0.1)
    assert found["differences"]["other"]["personalised"]["mean"] == 0
    table = compared.comparison_table(json.loads(json.dumps(found)))
    assert "AUROC" in table and "other, global: +0.1" in table and "accuracy" not in table
    with pytest.raises(UsageError, match="one is judged by errors of reconstructed windows, labels is not"):
        compared.check_comparable({"one": one, "labels": {"labels": {}}})


def test_the_neighbours_find_what_can_be_found() -> None:
    pytest.importorskip("sklearn", reason="neighbours are of scikit-learn")
    parts = {}
    for k, name in enumerate("abc"):
        x, chosen, test = draw(80, k), samples(40, 4, k + 9), samples(100, 30, k + 18)
        truths = [(p.x, WAVES.truths(p.labels, NAMES, name, p.x)) for p in (chosen, test)]
        parts[name] = ((x, x), *truths)
    local = {"validation": {"local": {"error": 1e9}}, "test": {"local": {"samples": 1.0}}}
    written = [{"device": name, "sums": local, "newcomer": False} for name in parts]
    told, rows = look_for_detectors(WAVES, lambda n: parts[n], written, 40, 0, lambda text: None)  # type: ignore[arg-type, return-value]
    assert told["chosen"] == "pca" and told["samples"] == 120 and told["kinds"]["network"]["error"] == 3e9
    for found in rows.values():
        assert {*found} == {"alone", "alone_pca", "alone_distance", "pooled"} and found["alone"] == found["alone_pca"]
        assert scores_of(found["alone_pca"]).error < 0.01 and "error" not in found["alone_distance"]  # type: ignore[operator]
        assert scores_of({"error": 0.0, **found["alone_distance"]}).auroc > 0.9  # type: ignore[operator]

    def without_abnormal(name: str) -> Any:
        train, (x, y), test = parts[name]
        return train, (x[~y["abnormal"]], y[~y["abnormal"]]), test

    assert any(parts[name][1][1]["abnormal"].any() for name in parts)
    _, others = look_for_detectors(WAVES, without_abnormal, written, 40, 0, lambda text: None)
    assert others == rows, "nothing is chosen by what somebody calls abnormal, no threshold either"


# A whole run ----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("warm_nodes")
def test_a_replay_over_a_broker(falls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    fixed = (
        "replay",
        str(falls),
        "--bundle",
        str(falls / "flat.bundle"),
        "--window",
        "32",
        "--abnormal",
        "fall,tremor",
    )
    more = ("--hospitals", "1", "--method", "ditto", "--rounds", "2", "--plain", "--out", str(out))
    assert main([*fixed, *more]) == 0
    told = capsys.readouterr().out
    assert "`global` and `personal` are mean squared errors of windows" in told and "AUROC" in told
    assert "accuracy" not in told
    result = json.loads((out / "result.json").read_text())
    found = result["anomalies"]
    assert result["classes"] == ["normal", "fall", "tremor"] and found["task"]["quantile"] == 0.9
    assert {"mean", "local", "alone_pca", "alone_distance", "alone", "global", "personalised", "pooled"} == {
        *found["models"]
    }
    held_out = sum(d["held_out"] for d in result["devices"])
    for scores in found["together"].values():
        assert scores["normal"] + scores["abnormal"] == held_out and scores["abnormal"] > 0
    final = next(line for line in result["curve"] if line.get("final"))
    assert final["errors"]["test_personal"]["window"] == pytest.approx(
        found["models"]["personalised"]["error"], rel=1e-4
    ), "what the fleet adds up is what its devices have"
    page = (out / "report.html").read_text()
    assert "Error over rounds" in page and "Error per device" in page
    assert main(["compare", str(out), str(out)]) == 0
    assert "AUROC" in capsys.readouterr().out
    assert main(["compare", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "anomalies"


def test_the_networks_of_the_zoo_are_for_the_task(tmp_path: Path) -> None:
    path = tmp_path / "autoencoder.bundle"
    assert main(["bundle", "compile", "autoencoder", "--input", "2,20", "--search", "0", "-o", str(path)]) == 0
    assert read_bundle(path).task.kind == "reconstruction" and read_bundle(path).task != WAVES
    assert read_bundle(compile_waves(tmp_path / "waves.bundle")).manifest["output"] == [*SHAPE]


def test_several_seeds_are_one_table_with_devices_at_their_means(tmp_path: Path) -> None:
    """Two devices in two seeds; a device counts once, with its mean error."""
    from edge_sdk.replay.anomalies.scores import summarise_anomaly_seeds

    def one_seed(seed: int, own: tuple[float, float], alone: tuple[float, float]) -> dict[str, Any]:
        every = {"global": own, "alone": alone}
        devices = [
            {"device": name, "newcomer": False, "anomalies": {m: {"error": e[k]} for m, e in every.items()}}
            for k, name in enumerate("ab")
        ]
        models = {m: dict.fromkeys(FIGURES) | {"error": sum(e) / 2} for m, e in every.items()}
        kept = {"task": {"kind": "reconstruction"}, "step": 1.0, "devices": 2, "models": models, "newcomers": {}}
        return {"seed": seed, "devices": devices, "anomalies": {**kept, "together": models}}

    found = summarise_anomaly_seeds([one_seed(0, (1.0, 3.0), (2.0, 2.0)), one_seed(1, (2.0, 4.0), (2.0, 6.0))])
    assert found["models"]["global"]["error"] == 2.5 and found["models"]["global"]["auroc"] is None
    against = found["against"]["alone"]["global"]
    assert (against["mean"], against["devices"], against["worse"]) == (-0.5, 2, 0)
    assert found["spread"]["global"] == pytest.approx(np.std([2.0, 3.0], ddof=1))
