"""What a replay takes by itself where nothing is stated."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.values import Values
from edge_sdk.nodes.configuration import window_runs
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.planning import recommended
from edge_sdk.replay.planning.plan import Replay

WINDOWS = Cohort("windows", {"h": ("a", "b")}, ("walk", "sit"), {"x": (6, 64)}, False, True, lambda path, wanted: {})


def job(tmp_path, **stated):
    return Replay(**{"data": "traces", "out": tmp_path / "out", "recommend": True, "preset": "stated", **stated})


def test_windows_get_the_network_on_features_with_all_phases(tmp_path):
    found, (said,) = recommended.recommended(job(tmp_path), WINDOWS)
    assert found.bundle == (Path("features"),) and found.method == "fedslr" and found.rounds == window_runs.ROUNDS
    assert found.settle["statistics"] and found.settle["label_times"] and found.settle["trees"]
    assert found.augment == {"rotation": 0.25, "scale": 0.15, "copies": 8}
    assert found.settings["eta_g"] == 3.0 and not found.settings["lam"]
    assert "network on features" in said and "--plain" in said
    found.as_run(WINDOWS.classes)


def test_what_is_stated_stays(tmp_path):
    stated = job(
        tmp_path, bundle=(Path("own.bundle"),), method="scaffold", settings={"eta_l": 0.2}, rounds=7,
        settle={"label_times": 0, "trees": 0}, augment={"rotation": 0.0}, stated=("eta_l", "method", "rounds"),
    )  # fmt: skip
    found, _ = recommended.recommended(stated, WINDOWS)
    assert found.bundle == stated.bundle and found.method == "scaffold" and found.rounds == 7
    assert found.settings == {"eta_l": 0.2} and not found.settle["statistics"]
    assert found.settle["label_times"] == found.settle["trees"] == 0
    assert found.augment == {"rotation": 0.0}  # its bundle may name changes of its own


def test_a_method_that_is_named_keeps_its_name_and_gets_settings_for_the_network(tmp_path):
    found, _ = recommended.recommended(
        job(tmp_path, method="fedslr", stated=("method", "eta_l"), settings={"eta_l": 0.3}), WINDOWS
    )
    assert found.method == "fedslr" and found.settings["eta_l"] == 0.3 and found.settings["batch"] == 64


def test_values_take_smaller_steps_where_none_is_stated(tmp_path):
    values = replace(WINDOWS, classes=("pulse",), task=Values(units=("bpm",), low=(40.0,), high=(180.0,)))
    found, (said,) = recommended.recommended(job(tmp_path, settings={"local_epochs": 2}), values)
    assert found.settings == {"local_epochs": 2, "eta_l": window_runs.VALUES_STEP} and not found.settle
    assert f"eta_l = {window_runs.VALUES_STEP}" in said
    stated = job(tmp_path, settings={"eta_l": 0.2}, stated=("eta_l",))
    assert recommended.recommended(stated, values)[0] == stated
    assert recommended.recommended(job(tmp_path, recommend=False), values) == (job(tmp_path, recommend=False), [])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"method": "fedal", "stated": ("method",)}, "share no whole model"),
        ({"options": {"validation": 0}}, "no validation samples"),
    ],
    ids=["outputs", "validation"],
)
def test_runs_that_cannot_settle_stay_as_stated_and_say_why(tmp_path, changes, why):
    stated = job(tmp_path, **changes)
    found, (said,) = recommended.recommended(stated, WINDOWS)
    assert found == stated and why in said


def test_a_run_with_noise_has_all_phases_a_method_without_memory_and_fewer_rounds(tmp_path):
    found, _ = recommended.recommended(job(tmp_path, privacy={"epsilon": 8.0, "clip": 1.0}), WINDOWS)
    usual, _ = recommended.recommended(job(tmp_path), WINDOWS)
    assert found.method == "fedavg" and found.rounds < usual.rounds
    assert {*usual.settle} - {*found.settle} == {"steps", "local_steps"}, "there are fewer candidates"
    assert found.settle["statistics"] and found.settle["label_times"] and found.settle["trees"]
    assert found.settings["weighting"] == "uniform"


def test_samples_that_are_ready_and_have_none_to_choose_by(tmp_path):
    found, (said,) = recommended.recommended(job(tmp_path), replace(WINDOWS, chooses=False))
    assert not found.settle and "no validation samples" in said


def test_the_network_on_features_is_the_same_where_it_is_named(tmp_path):
    named, unnamed = (
        recommended.recommended(job(tmp_path, **more), WINDOWS)[0] for more in ({"bundle": (Path("features"),)}, {})
    )
    assert named == unnamed


def test_tables_and_images_stay_as_stated(tmp_path):
    for shape in ((30,), (1, 28, 28)):
        found, (said,) = recommended.recommended(job(tmp_path), replace(WINDOWS, shapes={"x": shape}))
        assert found.settle == {} and "no windows of sensors" in said


def test_a_job_from_python_is_played_as_it_is(tmp_path):
    stated = job(tmp_path, recommend=False)
    assert recommended.recommended(stated, WINDOWS) == (stated, [])


def test_an_unknown_method_is_named(tmp_path):
    with pytest.raises(UsageError, match="method = 'fedagv'; perhaps fedavg; there are: apfl, "):
        recommended.recommended(job(tmp_path, method="fedagv", stated=("method",)), WINDOWS)
