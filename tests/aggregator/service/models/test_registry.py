"""The registry of models: what it keeps of a file that was refused, and which bundle a run trains."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from aggregator.service.runs.new_samples import NewSamples
from aggregator.service.runs.runs import Wanted, list_runs
from aggregator.service.runs.schedules import DailyWindow, add_schedule
from aggregator.service.server.app import make_app
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.several_labels import SeveralLabels
from edge_sdk.nodes.configuration.window_runs import changes_of, training_of
from edge_sdk.replay.planning.bundles import compile_network, find_shipped_bundle
from tests.aggregator.service.conftest import CLASSES
from tests.layers import compile_layers
from tests.values import compile_linear


def test_what_was_refused_leaves_no_file_and_what_was_there_stays(
    service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: str) -> None:
        raise UsageError("the operator's key cannot be read")

    registry, path = service.registry, tmp_path / "model.npz"
    path.write_bytes(b"a model")
    monkeypatch.setattr(registry, "sign", refuse)
    for known in (False, True):
        before = {*registry.directory.iterdir()}
        with pytest.raises(UsageError, match="cannot be read"):
            registry.add("global", "0" * 64, "a", path, {})
        assert {*registry.directory.iterdir()} == before
        if not known:
            (registry.directory / f"{'0' * 64}.npz").write_bytes(b"a model")


def test_a_run_trains_the_bundle_that_was_the_first_one_when_it_was_asked_for(
    make_service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that the settings name is written anew while the service works, which is then started again."""
    path, other = tmp_path / "ours.bundle", find_shipped_bundle("split-breast-cancer.bundle")
    shutil.copy(str(find_shipped_bundle("wrist.bundle")), path)
    service = make_service(bundles=(path,), classes=("a", "b"))
    first = service.registry.find()["sha256"]
    shutil.copy(str(other), path)
    assert service.registry.find()["sha256"] == first
    monkeypatch.setattr(service.monitor, "labels", lambda: {"north": 5})
    for name, when in (("daily", DailyWindow("10:00", "14:00")), ("event", NewSamples(1))):
        add_schedule(service.database, name, Wanted(), when, ("a", "b"), "ada")
    monkeypatch.setattr(time, "time", lambda: time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1)))
    service.supervisor.look()
    monkeypatch.undo()
    assert [run["wanted"]["bundle"] for run in list_runs(service.database)] == [first] * 2
    token = service.people.make_key("token", "ada", "operator", 3600.0, "test")
    client = TestClient(make_app(service), base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {token}"})
    for table in ({"id": "asked"}, {"id": "begun", "bundle": first[:8]}):
        assert client.post("/api/v1/runs", json=table).status_code == 201
    assert client.post("/api/v1/runs/asked/clone", json={"id": "cloned", "bundle": ""}).status_code == 201
    assert client.post("/api/v1/runs", json={"bundle": "nothing"}).status_code == 422
    service = make_service(bundles=(path,), classes=("a", "b"))
    assert service.registry.find()["sha256"] != first
    assert {run["wanted"]["bundle"] for run in list_runs(service.database)} == {first}


def feature_bundle(classes: int = 11) -> Path:
    return compile_network("features", ["--input", "3,64", "--classes", str(classes)], 0, print)


def test_a_run_of_which_nothing_is_said_gets_what_is_recommended_for_its_model(make_service: Any) -> None:
    registry = make_service(bundles=(feature_bundle(), find_shipped_bundle("wrist.bundle"))).registry
    found = registry.complete(Wanted())
    assert found.settle["statistics"] and found.settle["label_times"] and found.settle["trees"]
    assert found.augment == changes_of((3, 64)) and found.settings == training_of("fedslr", found.rounds)
    found.check(CLASSES)
    for preset in ("plain", "paper", "stated"):
        assert registry.complete(Wanted(preset=preset)) == Wanted(preset=preset)
    noise = registry.complete(Wanted(method="fedavg", privacy={"clip": 1.0, "epsilon": 8.0}))
    assert noise.settle["statistics"] and noise.settle["label_times"] and "steps" not in noise.settle
    noise.check(CLASSES)
    wrist = Wanted(bundle=next(b["sha256"] for b in registry.list_all("bundle") if b["name"] == "wrist"))
    assert registry.complete(wrist) == wrist


NAMES = ("af", "pvc", "noise")


@pytest.mark.parametrize("task", [("labels",), ("value", "--unit=bpm")])
def test_phases_are_for_classes_only(make_service: Any, task: tuple[str, ...]) -> None:
    """Nobody recommends them for sets of labels or values, and who asks for what counts right samples is told so."""
    sizes = ["--input", "3,64", "--task", task[0], f"--names={','.join(NAMES)}", *task[1:]]
    service = make_service(bundles=(compile_network("features", sizes, 0, print),), classes=NAMES)
    (row,) = service.registry.list_all("bundle")
    assert row["facts"]["classes"] == 3
    steps = {"eta_l": 0.01} if task[0] == "value" else {}
    for method in ("fedslr", "fedavg"):
        assert service.registry.complete(Wanted(method=method)) == Wanted(method=method, settings=steps)
    token = service.people.make_key("token", "ada", "operator", 3600.0, "test")
    client = TestClient(make_app(service), base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {token}"})
    asked = client.post("/api/v1/runs", json={"id": "first", "method": "fedavg"})
    assert asked.status_code == 201, asked.text
    assert asked.json()["wanted"]["settle"] == {} and asked.json()["wanted"]["augment"] == {}
    for given in ({"settle": {"trees": 5}}, {"preset": "stated", "settle": {"label_times": 2}}):
        refused = client.post("/api/v1/runs", json={"method": "fedavg", **given})
        assert refused.status_code == 422 and f"task {task[0]}: run.settle" in refused.text, refused.text
        refused = client.post("/api/v1/runs/first/clone", json=given)
        assert refused.status_code == 422, refused.text


@pytest.mark.parametrize("classes", [("af", "pvc"), ("pvc", "af", "noise"), ("a", "b", "c")])
def test_a_bundle_of_labels_has_those_of_the_settings(make_service: Any, classes: tuple[str, ...]) -> None:
    path = compile_network("features", ["--input", "3,64", "--task", "labels", f"--names={','.join(NAMES)}"], 0, print)
    registry = make_service(classes=classes).registry
    with pytest.raises(UsageError, match=r"predicts several labels \(af, pvc, noise\), classes names "):
        registry.add_bundle(path)


def test_what_is_stated_of_a_run_lies_over_what_is_recommended(make_service: Any) -> None:
    registry = make_service(bundles=(feature_bundle(),)).registry
    stated = Wanted(settings={"eta_l": 0.5}, settle={"trees": 0}, augment={"rotation": 0.0})
    found = registry.complete(stated)
    assert found.settings["eta_l"] == 0.5 and found.settle["trees"] == 0 and found.augment["rotation"] == 0.0
    assert found.settings["batch"] == 64 and found.settle["label_times"] == 3
    assert registry.complete(found) == found
    with pytest.raises(UsageError, match="method = 'nothing'"):
        registry.complete(Wanted(method="nothing"))


def test_a_clone_with_another_method_has_that_methods_recommended_settings(make_service: Any) -> None:
    service = make_service(bundles=(feature_bundle(),))
    token = service.people.make_key("token", "ada", "operator", 3600.0, "test")
    client = TestClient(make_app(service), base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {token}"})
    asked = client.post("/api/v1/runs", json={"id": "first", "settings": {"eta_l": 0.5}})
    assert asked.status_code == 201 and asked.json()["wanted"]["settle"]["trees"] == 100
    cloned = client.post("/api/v1/runs/first/clone", json={"id": "second", "method": "fedavg"})
    assert cloned.status_code == 201, cloned.text
    assert cloned.json()["wanted"]["settings"] == {**training_of("fedavg", 30), "eta_l": 0.5}
    longer = client.post("/api/v1/runs/first/clone", json={"id": "third", "rounds": 3000})
    assert longer.json()["wanted"]["settings"] == {**training_of("fedslr", 3000), "eta_l": 0.5}


def test_a_single_value_or_label_is_registered_and_a_single_class_is_not(make_service: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="bundles are compiled here")
    value = compile_linear(tmp_path / "rate.bundle")
    label = compile_layers(tmp_path / "af.bundle", "af", "binary_cross_entropy", SeveralLabels(("af",)))
    for path, names in ((value, ("heart_rate",)), (label, ("af",))):
        service = make_service(bundles=(path,), classes=names)
        facts = service.registry.find()["facts"]
        assert facts["classes"] == 1 and service.file.classes == names
        with pytest.raises(UsageError, match=r"tells classes apart, expected at least 2 names"):
            service.registry.add_bundle(find_shipped_bundle("wrist.bundle"))
