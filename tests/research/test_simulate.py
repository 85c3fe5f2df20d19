"""Runs from Python: the figures of the command, models of devices, the cache, methods and networks of one's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import edge_sdk as auscult
from edge_sdk.research.fleets.cache import drop_old, keep_folder
from edge_sdk.research.fleets.modules import bundle_of
from edge_sdk.research.runs import processes
from tests.research.conftest import QUICK, person

pytest.importorskip("torch", reason="a network is compiled")
MEASURED = ("time", "seconds", "memory", "made", "model", "simulation", "curve")
"""What another process measures otherwise, or names otherwise."""


def figures(result):
    """All that a seed decides."""
    curve = [{key: value for key, value in line.items() if key != "time"} for line in result["curve"]]
    told = {key: value for key, value in result.items() if key not in MEASURED}
    return json.loads(json.dumps([told, curve, result["simulation"]["clock"], result["simulation"]["training"]]))


def test_the_figures_are_those_of_the_command_to_the_bit(people, recommended, tmp_path):
    """With all that the command takes by itself when nothing is said."""
    line = ["simulate", people.data, "--rounds", "2", "--no-neighbours", "--settle", "label_every=1", "--json"]
    command = [sys.executable, "-m", "edge_sdk.cli", *line, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert figures(recommended.results[0]) == figures(json.loads(done.stdout))
    assert recommended.results[0]["settle"]["trees"] == 100
    assert recommended.method == "fedslr"


def test_devices_predict_as_they_were_judged(people, recommended):
    """The last fifth of each class is held out, in its order."""
    for k, name in enumerate(people_names(recommended)):
        x, y = person(k)
        held = np.sort(np.concatenate([np.flatnonzero(y == c)[-4:] for c in range(4)]))
        guessed = recommended.devices[name].predict(x[held].astype(np.float32)).labels
        right = np.mean([int(label) == c for label, c in zip(guessed, y[held], strict=True)])
        assert right == pytest.approx(recommended.results[0]["devices"][k]["accuracy"]["personalised"])


def people_names(run):
    assert list(run.devices) == ["ann", "bob", "eve"]
    return list(run.devices)


def test_plain_is_the_method_by_itself(ditto):
    assert not ditto.results[0]["settle"] and not ditto.results[0]["augment"]
    assert ditto.seeds == [0, 1] and ditto.results[0]["rounds"] == 3


def test_a_run_is_played_once(patients, ditto, monkeypatch):
    monkeypatch.setattr("edge_sdk.research.runs.simulate.play_all", lambda *_: pytest.fail("it is in the cache"))
    again = auscult.simulate(patients, "ditto", seeds=[1], **QUICK)
    assert again.results == ditto.results[1:]


@pytest.mark.parametrize(
    "change", [{"rounds": 4}, {"settings": {"eta_l": 0.2}}, {"seeds": [7]}, {"cache": False}], ids=str
)
def test_another_run_is_another_one(patients, ditto, change, monkeypatch):
    """Its jobs are begun: here they only say so."""
    begun = []
    monkeypatch.setattr("edge_sdk.research.runs.simulate.play_all", lambda jobs, *_: begun.extend(jobs))
    monkeypatch.setattr("edge_sdk.research.runs.simulate.shutil.rmtree", lambda *_, **__: None)
    with pytest.raises(KeyError) if change.get("cache", True) else nullcontext():
        auscult.simulate(patients, "ditto", **{**QUICK, **change})
    assert len(begun) == 1


def local(device, w, own):
    s, v = device.settings, w if own is None else own
    return device.sgd(w), device.sgd(v, epochs=s.personal_epochs, near=w, pull=s.nearness)


def test_a_method_of_ones_own_runs_at_once(patients, ditto):
    """Ditto with the settings that are recommended for it: the same run, to the bit."""
    settings = {"eta_l": 0.1, "local_epochs": 5, "nearness": 0.1, "personal_epochs": 5}
    mine = auscult.method("my-ditto", local=local, settings=settings)
    run = auscult.simulate(patients, mine, seeds=2, **QUICK)
    for ours, theirs in zip(run.results, ditto.results, strict=True):
        assert [line.get("sums") for line in ours["curve"]] == [line.get("sums") for line in theirs["curve"]]
        assert [d["accuracy"] for d in ours["devices"]] == [d["accuracy"] for d in theirs["devices"]]


def test_a_fault_in_a_method_of_ones_own_is_shown_where_it_is(patients):
    broken = auscult.method("broken", local=lambda device, w: w / device.nothing)
    with pytest.raises(auscult.AuscultError, match="'OwnDevice' object has no attribute 'nothing'"):
        auscult.simulate(patients, broken, **QUICK)


def test_a_torch_module_is_compiled_as_it_is(people, tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 5), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(240, 4))
    run = auscult.simulate(people, "fedavg", model=net, plain=True, rounds=1, neighbours=0, settings={"eta_l": 1e-9})
    x = person(0)[0].astype(np.float32)
    with torch.no_grad():
        expected = net(torch.from_numpy(x)).softmax(1).numpy()
    found = run.devices["ann"].predict(x, "global").probabilities
    assert np.abs(found - expected).max() < 1e-4
    assert net.training


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "dito"}, "method = 'dito'; perhaps ditto; there are: apfl"),
        ({"method": 7}, "method is a int: expected a name"),
        ({"round": 3}, "simulate has no round; perhaps rounds"),
        ({"model": "wrists"}, "model = 'wrists': no file and no name of the zoo; perhaps wrist;"),
        ({"model": "no/such.bundle"}, "model = 'no/such.bundle': there is no such file"),
        ({"model": 7}, "model is a int: expected a torch module, a bundle, or a name of the zoo"),
        ({"model": dict}, r"model is the class dict: expected a module that it makes, dict\(...\)"),
        ({"eta_l": 0.1}, r"simulate has no eta_l: it is a setting of the method, settings={'eta_l': ...}"),
        ({"method": "ditto", "nearness": 1}, "no nearness: it is a setting of the method"),
        ({"seeds": 0}, "seeds = 0: how many, at least 1"),
        ({"seeds": "12"}, "seeds = '12': how many, or which, as whole numbers"),
        ({"seeds": [0.5]}, r"seeds = \[0.5\]: how many, or which, as whole numbers"),
        ({"seeds": [1, 1]}, "different numbers"),
        ({"hospitals": "many"}, "argument --hospitals: invalid int value: 'many'"),
    ],
)
def test_what_cannot_be_used_is_named_before_anything_begins(patients, given, words, monkeypatch):
    monkeypatch.setattr("edge_sdk.research.runs.simulate.play_all", lambda *_: pytest.fail("it has begun"))
    with pytest.raises(auscult.UsageError, match=words):
        auscult.simulate(patients, **given)


def test_a_module_that_ends_in_a_softmax_is_warned_of(patients):
    """The loss applies one itself: it trains, and never well."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(30, 2), torch.nn.Softmax(1))
    with pytest.warns(UserWarning, match="model: the module ends in a softmax, and the loss cross_entropy applies one"):
        bundle_of(net, patients)


def test_there_is_a_hospital(patients):
    with pytest.raises(auscult.UsageError, match="--hospitals 0: at least 1"):
        auscult.simulate(patients, "fedavg", hospitals=0, rounds=1, plain=True)


def test_people_of_one_class_have_no_neighbour_and_are_told_why():
    x = np.random.default_rng(0).normal(size=(20, 3))
    one = auscult.Fleet.from_arrays({name: (x, np.zeros(20, int)) for name in ("ann", "bob")})
    said = str(auscult.simulate(one, "fedavg", rounds=1, plain=True))
    assert "No neighbour is defined here, because all samples are of one class" in said


def test_what_only_a_run_finds_is_told_in_its_words(patients):
    with pytest.raises(auscult.UsageError, match="nearnes is no setting, did you mean nearness"):
        auscult.simulate(patients, "ditto", settings={"nearnes": 1}, rounds=1)


def test_ctrl_c_ends_what_it_has_begun(patients, monkeypatch):
    begun = []
    begin = processes.begin

    def note(run, *given):
        begin(run, *given)
        begun.append(run)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "begin", note)
    monkeypatch.setattr(processes, "rounds_of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        auscult.simulate(patients, "fedavg", rounds=50, seeds=[90, 91], workers=1)
    assert len(begun) == 1 and begun[0].process.poll() is not None
    assert not begun[0].log.exists()


def test_of_very_many_folders_the_oldest_go(own_cache):
    for age in range(5):
        folder = own_cache / "some" / str(age)
        folder.mkdir(parents=True)
        os.utime(folder, (age, age))
    drop_old("some", 3)
    assert sorted(path.name for path in (own_cache / "some").iterdir()) == ["2", "3", "4"]


def test_a_folder_of_the_cache_is_there_whole_or_not_at_all(own_cache):
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise auscult.UsageError("no more")

    with pytest.raises(auscult.UsageError):
        keep_folder("fleets", "f" * 64, fail)
    assert not [path for path in (own_cache / "fleets").iterdir() if path.name.startswith((".part", "ffff"))]
