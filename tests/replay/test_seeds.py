"""Several seeds: run side by side, ended together, and summed up over devices."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from edge_sdk import cli
from edge_sdk.errors import UsageError
from edge_sdk.replay import seeds
from edge_sdk.replay.cohorts.cohort import count_nodes
from edge_sdk.replay.comparison import FinishedRun, compare_runs, comparison_table, read_run, read_runs
from edge_sdk.replay.nodes.processes import ProcessError
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.planning.resume import was_begun
from edge_sdk.replay.reports import seeds_page
from edge_sdk.replay.reports.compare_page import differences_table, gains
from edge_sdk.replay.reports.sections import name_settings
from edge_sdk.replay.reports.tables import confusion_tables, statistics_table


def result(seed: int, local: list[float], personal: list[float], method: str = "fedslr") -> dict:
    def metrics(value: float) -> dict[str, float]:
        return {"accuracy": value, "macro_f1": value / 2, "balanced_accuracy": value}

    devices = [
        {"device": f"d{i}", "classes": 1 + (i > 0), "metrics": {"local": metrics(a), "personalised": metrics(b)}}
        for i, (a, b) in enumerate(zip(local, personal, strict=True))
    ]
    return {
        "method": method, "rounds": 3, "hospitals": 1, "data": {"name": "x"}, "settings": {}, "seed": seed,
        "accuracy": {"local": sum(local) / len(local), "personalised": sum(personal) / len(personal)},
        "bytes": {"up": 1e6 * seed}, "seconds": 2.0, "statistics": {}, "devices": devices,
    }  # fmt: skip


def test_a_device_counts_with_its_mean_over_the_seeds():
    found = seeds.summarise_seeds([result(1, [0.5, 0.5], [0.7, 0.4]), result(2, [0.5, 0.7], [0.9, 0.4])])
    assert found["seeds"] == [1, 2] and found["bytes"] == {"up": 1.5e6}
    assert found["accuracy"]["personalised"]["mean"] == pytest.approx(0.6)
    assert found["accuracy"]["personalised"]["sd"] == pytest.approx(0.1 / 2**0.5)
    every, two = found["statistics"]["all"], found["statistics"]["two_classes"]
    assert every["devices"] == 2 and two["devices"] == 1
    assert every["models"]["personalised"]["macro_f1"]["mean"] == pytest.approx(0.3)
    difference = every["against_local"]["personalised"]
    assert difference["mean"] == pytest.approx((0.3 - 0.2) / 2) and difference["devices"] == 2
    assert (difference["low"], difference["high"]) == (-1.0, 1.0), "of two devices nothing is sure"
    assert difference["worse"] == 0.5
    table = statistics_table(found["statistics"])
    assert "all 2 devices" in table and "60.0% ± 7.1" in table
    assert "+5.0 [-100.0, +100.0]" in table and "1 of 2" in table


def job(out: Path) -> Replay:
    return Replay(data="x", out=out, seed=4)


def test_each_seed_has_a_directory_of_its_own(tmp_path, monkeypatch):
    def replayed(own, progress, say, stopping):
        progress({"kind": "round"})
        say("here")
        return result(own.seed, [0.5], [0.6])

    monkeypatch.setattr(seeds, "replay", replayed)
    lines, said, done = [], [], []
    found = seeds.replay_seeds(
        job(tmp_path), 3, lambda seed, line: lines.append(seed), said.append, lambda own, _: done.append(own.out.name)
    )
    assert found["seeds"] == [4, 5, 6] and [r["seed"] for r in found["runs"]] == [4, 5, 6]
    assert sorted(lines) == [4, 5, 6] and "seed 5: here" in said
    assert sorted(done) == ["seed-4", "seed-5", "seed-6"]


def test_when_one_fails_the_others_are_ended(tmp_path, monkeypatch):
    both = threading.Barrier(2)
    ended = []

    def replayed(own, progress, say, stopping):
        both.wait(10)
        if own.seed == 5:
            raise ProcessError("device-a ended with code 1")
        assert stopping.wait(10)
        ended.append(own.seed)
        raise ProcessError("stopped before its end")

    monkeypatch.setattr(seeds, "replay", replayed)
    monkeypatch.setattr(seeds, "read_machine", lambda: type("M", (), {"cores": 2}))
    with pytest.raises(ProcessError, match="device-a ended with code 1"):
        seeds.replay_seeds(job(tmp_path), 2, lambda *_: None, lambda _: None, lambda *_: None)
    assert ended == [4]


def test_one_seed_at_least(tmp_path):
    with pytest.raises(UsageError, match="--seeds 0: at least 1"):
        seeds.replay_seeds(job(tmp_path), 0, lambda *_: None, lambda _: None, lambda *_: None)


# Comparing ------------------------------------------------------------------------------------------------------
def test_runs_are_compared_over_the_devices_that_both_have(tmp_path):
    import json

    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "result.json").write_text(json.dumps(result(1, [0.5, 0.5], [0.7, 0.4])))
    two = {"runs": [result(1, [0.5, 0.5, 0.1], [0.8, 0.6, 0.1], "fedavg")], "seeds": [1]}
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "result.json").write_text(json.dumps(two))
    found = compare_runs([read_run(tmp_path / "one"), read_run(tmp_path / "two" / "result.json")])
    assert [run["name"] for run in found["runs"]] == ["one", "two"]
    assert found["differences"]["two"]["personalised"]["mean"] == pytest.approx((0.1 + 0.2) / 2)
    assert found["differences"]["two"]["personalised"]["devices"] == 2
    assert {*found["differences"]["two"]} == {"personalised"}, "what is trained alone says nothing of the methods"
    table = comparison_table(found)
    assert "fedavg" in table and "two, personalised: +15.0 [-48.5, +78.5]" in table
    only_two = compare_runs([read_run(tmp_path / "one"), read_run(tmp_path / "two")], "two_classes")
    assert only_two["differences"]["two"]["personalised"]["devices"] == 1
    assert found["unlike"] == {} and "alone has" not in table


def without(found: dict, *models: str) -> dict:
    """A result whose method has not these models."""
    devices = [{**d, "metrics": {k: v for k, v in d["metrics"].items() if k not in models}} for d in found["devices"]]
    return {**found, "devices": devices}


def test_runs_of_unlike_models_are_compared_by_what_both_have():
    """The shared models of both; what devices predict with: of one the shared model, of the other their own."""
    one, two = result(1, [0.5, 0.5], [0.7, 0.4]), result(1, [0.5, 0.5], [0.8, 0.8], "ditto")
    for found, accuracy in ((one, 0.6), (two, 0.5)):
        for d in found["devices"]:
            d["metrics"]["global"] = {"accuracy": accuracy, "macro_f1": accuracy, "balanced_accuracy": accuracy}
            d["metrics"]["companion" if found is one else "mixed_in"] = dict(d["metrics"]["global"])
    runs = [FinishedRun("shared", [without(one, "personalised", "companion")]), FinishedRun("own", [two])]
    found = compare_runs(runs)
    assert {name: d["mean"] for name, d in found["differences"]["own"].items()} == pytest.approx(
        {"global": -0.1, "in_use": 0.2}
    )
    assert found["unlike"] == {"own": {"only": ["mixed_in", "personalised"], "lacks": []}}
    told = comparison_table(found)
    assert "own, what devices predict with: +20.0 [+20.0, +20.0]" in told
    assert "own alone has local part of settling, personalised: compared with nothing of that name" in told
    assert "<p>own alone has local part of settling, personalised:" in differences_table(found)
    runs = [
        FinishedRun("first", [without(one, "personalised", "global")]),
        FinishedRun("last", [without(two, "mixed_in")]),
    ]
    assert comparison_table(compare_runs(runs)).splitlines()[-1].strip() == (
        "last alone has global, personalised; first alone has companion: compared with nothing of that name"
    )


def write_run(folder: Path, found: dict) -> Path:
    """A directory as a replay leaves it, with a curve of one round and what was run."""
    import json

    sums = {"devices": 2.0, "samples": 8.0, "global_accuracy": 1.0, "personal_accuracy": 1.5}
    made = {"date": "2026-01-02", "version": "1.2.3", "command": f"auscult {folder.parent.name}", "bundles": ["abc"]}
    for run in found.get("runs", [found]):
        run |= {"curve": [{"kind": "round", "round": 1, "sums": sums}], "made": made}
        for d in run["devices"]:
            d["accuracy"] = {model: m["accuracy"] for model, m in d["metrics"].items()}
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(found))
    return folder


def test_compared_runs_have_a_page(tmp_path, capsys):
    """Two runs, whose directories have the same name, of one and of two seeds; a device of each is not in the other."""
    one = write_run(tmp_path / "a" / "out", result(1, [0.5, 0.5], [0.75, 0.5]))
    two = {"runs": [result(s, [0.5, 0.5, 0.1], [0.5, 0.625, 0.1], "fedavg") for s in (1, 2)], "seeds": [1, 2]}
    write_run(tmp_path / "b" / "out", two)
    page = tmp_path / "compared.html"
    cli.main(["compare", str(one), str(tmp_path / "b" / "out" / "result.json"), "--report", str(page)])
    html, other = page.read_text(), str(tmp_path / "b" / "out")
    assert "-6.2 [-100.0, +100.0]" in capsys.readouterr().out
    assert "-6.2 [-100.0, +100.0]" in html and f"{other} against {one}, per device" in html
    assert f"worse off than with {one} by more than a point: d0." in html
    assert html.count("<svg") == 3, "curves of the personal model, its devices, gains over the first run"
    assert f"{other}, 0: 75%" in html and "d2" in html and "auscult a" in html and "auscult b" in html


def test_a_run_may_be_compared_with_itself(tmp_path):
    one = write_run(tmp_path / "out", result(1, [0.5], [0.75]))
    assert [run.name for run in read_runs([one / "result.json", one])] == [str(one), f"{one} (2)"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"runs": []}', '{"runs": [{"devices": []}]}', "[" * 100_000, '{"runs": 7}', '{"runs": [7]}'],
)
def test_what_is_no_result_is_refused(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(UsageError, match="no result of a replay"):
        read_run(tmp_path)
    with pytest.raises(UsageError, match="no result of a replay"):
        read_run(tmp_path / "nowhere")


def test_a_confusion_matrix_names_what_was_taken_for_what():
    device = {"device": "w", "confusion": {"global": [[3, 0, 1], [0, 0, 0], [2, 0, 4]], "majority": [[1]]}}
    lines = confusion_tables([device], ("walk", "sit", "run")).splitlines()
    assert len(lines) == 4 and "w, global" in lines[0] and "sit" not in "".join(lines)
    assert [line.split() for line in lines[1:]] == [["walk", "run"], ["walk", "3", "1"], ["run", "2", "4"]]


def test_the_page_over_seeds_has_means_ranges_and_links():
    def full(seed: int, personal: float) -> dict:
        curve = [
            {"kind": "evaluation", "round": 1, "final": True, "sums": {"devices": 1.0, "personal_accuracy": personal}}
        ]
        accuracy = {"local": 0.5, "personalised": personal}
        device = {"device": "d<1>", "classes": 2, "accuracy": accuracy, "validation": 3, "held_out": 10}
        one = result(seed, [0.5], [personal])
        device["metrics"] = one["devices"][0]["metrics"]
        made = {"date": "2026-01-02", "version": "1", "command": "auscult replay <x>", "bundles": ["abc"]}
        return {**one, "devices": [device], "curve": curve, "made": made, "settings": {"eta_l": 0.5}}

    runs = [full(1, 0.6), full(2, 0.8)]
    html = seeds_page.make_seeds_page({**seeds.summarise_seeds(runs), "runs": runs})
    assert "fedslr: 2 seeds, 1 devices, 3 rounds" in html and "70.0% ± 14.1" in html
    assert "d&lt;1&gt;" in html and "d<1>" not in html
    assert "70% [60%, 80%]" in html, "the mean over seeds of the device, and its range"
    assert "better: 20 [10, 30]" in html, "its gain over training alone"
    assert "<polygon" in html and "seed-2/report.html" in html and "auscult replay &lt;x&gt;" in html


def test_the_page_of_several_runs_leaves_newcomers_out_of_what_devices_gain_and_has_one_axis():
    def run(name: str, *personal: float) -> FinishedRun:
        one = result(1, [0.5] * len(personal), list(personal))
        one["devices"][-1] |= {"device": "late", "newcomer": True}
        return FinishedRun(name, [one])

    runs = [run("first", 0.5, 0.9), run("second", 0.6, 0.2), run("third", 0.1, 0.2)]
    two, three = gains(runs, "personalised", "all")
    assert "late" not in two + three and "no device is worse off" in two and "first by more than a point: d0" in three
    assert "of one seed, so without an interval" in two
    assert re.findall(r'text-anchor="middle">([^<]+)', two) == re.findall(r'text-anchor="middle">([^<]+)', three)


def test_settings_are_keys_and_values_and_sizes_are_words():
    table = {"eta_l": 0.5, "shared": {"lam": 0.1}, "--settle": {"steps": [0, 10]}}
    assert name_settings(table) == ["eta_l = 0.5", "shared.lam = 0.1", "--settle steps = [0, 10]"]
    assert count_nodes({"h": ("a",)}) == "1 device in 1 hospital"
    assert count_nodes({"h": ("a",), "i": ("b",)}) == "2 devices in 2 hospitals"


def test_a_replay_with_one_seed_or_several_is_known_to_have_begun(tmp_path):
    assert not was_begun(tmp_path)
    (tmp_path / "seed-3").mkdir()
    (tmp_path / "seed-3" / "job.json").write_text("{}")
    assert was_begun(tmp_path) and was_begun(tmp_path / "seed-3")
