"""Tuning: runs in memory, the search, and the file that it writes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the aggregator's kernels need torch")
pytest.importorskip("optuna", reason="the search needs optuna")

from aggregator.kernels import kernels_for
from edge_sdk import cli
from edge_sdk.contract.search import OneOf, Range
from edge_sdk.data.samples import SplitSamples
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.presets import SettingsTable, complete
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.tuning import memory
from edge_sdk.replay.tuning.memory import TuningFleet, make_envs, play, prepare
from edge_sdk.replay.tuning.study import Study, start_values
from edge_sdk.replay.tuning.tune import Search, Trial, tune
from edge_sdk.replay.tuning.worker import as_job, read_job

pytestmark = pytest.mark.usefixtures("warm_trials")
SMALL = {"data": "breast-cancer", "hospitals": 2, "rounds": 2, "seed": 3, "options": {"devices": 2}}
SETTLE = {"optimiser": "adam", "steps": [0, 5], "local_steps": [5]}


def job_of(tmp_path: Path, **more: Any) -> Replay:
    return Replay(**{**SMALL, "out": tmp_path / "data", "method": "fedavg", **more})


def prepared(tmp_path: Path, **more: Any) -> TuningFleet:
    return prepare(job_of(tmp_path, **more), kernels_for, lambda text: None)


# Runs in memory -------------------------------------------------------------------------------------------------
class Untouchable:
    """Test samples that nobody may look at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the tuner has looked at test samples: {name}")


def test_test_samples_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are dropped where a device's file is read, so no node has any, and whatever they are changes nothing."""
    kept = play(prepared(tmp_path / "a", settle=SETTLE), {})
    read = memory.samples_of
    monkeypatch.setattr(memory, "samples_of", lambda *where: hide(read(*where)))
    fleet = prepared(tmp_path / "b", settle=SETTLE)
    assert play(fleet, {}) == kept
    for env in make_envs(fleet, fleet.run).values():
        assert env.test is None and env.held_out is None


def hide(found: SplitSamples) -> SplitSamples:
    return SplitSamples(found.train, Untouchable(), found.validation)  # type: ignore[arg-type]


def test_devices_predict_with_their_own_model_where_they_have_one(tmp_path: Path) -> None:
    judged = play(prepared(tmp_path, method="ditto"), {})
    own = [found["personal"] for found in judged.devices.values()]
    assert len(own) == 4 and judged.accuracy == pytest.approx(sum(own) / 4)


def test_newcomers_take_no_part(tmp_path: Path) -> None:
    assert {*play(prepared(tmp_path, newcomers=("h1-1",)), {}).devices} == {"h1-2", "h2-1", "h2-2"}


def test_methods_of_outputs_are_tuned_too(tmp_path: Path) -> None:
    fleet = prepared(tmp_path, method="fedal", rounds=1, options={"devices": 2, "public": 40})
    assert 0 <= play(fleet, {"tau": 1}).accuracy <= 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"options": {"devices": 2, "validation": 0.0}}, "give --validation a share"),
    ],
)
def test_without_validation_samples_there_is_nothing_to_tune_on(
    tmp_path: Path, more: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        prepared(tmp_path, **more)


def test_a_job_reaches_the_worker_as_it_is(tmp_path: Path) -> None:
    job = job_of(tmp_path, newcomers=("h1-1",), settle=SETTLE, augment={"noise": 0.1}, robust={"rule": "clip"})
    assert read_job(json.loads(json.dumps(as_job(job)))) == job


# The search -----------------------------------------------------------------------------------------------------
SPACE = {"x": Range(0.01, 1.0), "k": Range(1, 5, log=False, whole=True), "kind": OneOf(("a", "b"))}
START = {"x": 0.1, "k": 2, "kind": "b"}


def study(path: Path, seed: int = 1, **asked: Any) -> Study:
    return Study(path, "m", SPACE, {"seed": seed, **asked}, [START])


def go_on(found: Study, trials: int) -> list[Trial]:
    for _ in range(trials):
        values = found.propose()
        if values["kind"] == "a" and len(found.over()) == 3:
            found.tell({"error": "it broke"})
        else:
            found.tell({"accuracy": values["x"] * values["k"], "seconds": 0.0})
    return found.over()


def test_a_search_begins_with_what_it_is_given_and_stays_within_its_space(tmp_path: Path) -> None:
    trials = go_on(study(tmp_path / "a.db"), 6)
    assert trials[0].values == START
    assert [trial.number for trial in trials] == [1, 2, 3, 4, 5, 6]
    for trial in trials:
        assert all(trial.values[key] in SPACE[key] for key in SPACE)


def test_the_same_seed_proposes_the_same_also_after_an_interruption(tmp_path: Path) -> None:
    whole = go_on(study(tmp_path / "a.db"), 14)
    go_on(study(tmp_path / "b.db"), 5)
    killed = study(tmp_path / "b.db")
    killed.propose()  # and nobody ever told what came of it
    assert len(killed.over()) == 5
    assert [t.values for t in go_on(study(tmp_path / "b.db"), 9)] == [t.values for t in whole]
    assert [t.values for t in go_on(study(tmp_path / "c.db", seed=2), 14)] != [t.values for t in whole]


def test_failures_count_and_are_never_the_best(tmp_path: Path) -> None:
    found = study(tmp_path / "a.db")
    assert found.best() is None
    found.propose()
    found.tell({"error": "eta_l = 0: a number above 0"})
    assert found.best() is None and found.over()[0].error == "eta_l = 0: a number above 0"
    go_on(found, 2)
    best = found.best()
    assert best is not None and best.accuracy == max(t.accuracy for t in found.over() if t.accuracy is not None)


def test_of_equals_the_first_is_the_best(tmp_path: Path) -> None:
    found = study(tmp_path / "a.db")
    for _ in range(3):
        found.propose()
        found.tell({"accuracy": 0.5, "seconds": 0.0})
    best = found.best()
    assert best is not None and best.number == 1


def test_a_file_of_another_search_is_refused(tmp_path: Path) -> None:
    study(tmp_path / "a.db", rounds=30)
    with pytest.raises(UsageError, match="holds a search with rounds = 30, and this one has 60"):
        study(tmp_path / "a.db", rounds=60)


def test_only_settings_within_the_space_are_tried_first() -> None:
    assert start_values(SPACE, [{**START, "x": 2.0}, {**START, "more": 1}, START, {"x": 0.1}]) == [START]


# Together -------------------------------------------------------------------------------------------------------
def auscult(*words: object) -> int:
    return cli.main([*map(str, words)])


TUNE = "tune breast-cancer --hospitals 2 --devices 2 --rounds 2 --seed 3"


def test_methods_are_tuned_with_the_same_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = (*shlex.split(TUNE), "--method", "fedavg", "--method", "ditto", "--budget", 2, "-o", tmp_path, "--json")
    assert auscult(*given, "--set", "batch=10") == 0
    found = json.loads(capsys.readouterr().out)
    for method in ("fedavg", "ditto"):
        one = found[method]
        assert "validation samples" in one["verdict"], "what a device reaches alone stands beside it"
        assert len(one["trials"]) == 2 and not any("batch" in trial["values"] for trial in one["trials"])
        completed = complete(one["file"], SettingsTable())
        assert completed.method == method and completed.rounds == 2
        assert completed.settings == one["settings"] and completed.settings["batch"] == 10
        assert f"validation accuracy: {one['validation_accuracy']} " in Path(one["file"]).read_text()


def test_a_finished_search_goes_on_with_a_larger_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = (*shlex.split(TUNE), "--no-neighbours", "--method", "fedavg", "-o", tmp_path / "found.toml", "--json")
    assert auscult(*given, "--budget", 1) == 0
    before = json.loads(capsys.readouterr().out)["fedavg"]["trials"]
    assert auscult(*given, "--budget", 2) == 0
    after = json.loads(capsys.readouterr().out)["fedavg"]["trials"]
    assert after[:1] == before and len(after) == 2
    assert auscult(*given, "--budget", 2, "--hospitals", 1) == 2
    assert "holds a search with hospitals = 2" in capsys.readouterr().err


def test_what_goes_wrong_in_a_trial_is_named_and_counted(tmp_path: Path) -> None:
    job, lines = job_of(tmp_path, out=Path("nowhere"), method="fedbn", preset="stated"), list[Trial]()
    search = Search(job=job, budget=2, file=tmp_path / "found.toml")
    (found,) = tune([search], lambda method, trial, best: lines.append(trial), print)
    assert found.best is None and not search.file.exists()
    assert [trial.number for trial in lines] == [1, 2]
    assert all("this model has no 'norm'" in trial.error for trial in lines)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--budget", 0), "--budget 0: at least 1 trial"),
        (("--method", "fedavg", "--method", "fedavg"), "--method fedavg: is named twice"),
        (("--method", "fedavg", "--method", "ditto"), "2 methods have a file each; name a folder"),
        (("--set", "eta=1"), "eta is no setting"),
        (("--method", "sgd"), "method = 'sgd'; perhaps hsgd; there are"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[object, ...], said: str
) -> None:
    assert auscult(*shlex.split(TUNE), "-o", tmp_path / "found.toml", *more) == 2
    assert said in capsys.readouterr().err and not [*tmp_path.iterdir()]
