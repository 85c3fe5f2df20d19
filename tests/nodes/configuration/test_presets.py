"""Where the settings of a run come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.nodes.configuration import presets
from edge_sdk.nodes.configuration.presets import Completed, SettingsTable, complete


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ditto's presets are what this test says, whatever they are in this version."""
    ditto = replace(METHODS["ditto"], recommended={"eta_l": 0.2, "nearness": 0.5}, paper={"batch": 10})
    monkeypatch.setattr(presets, "METHODS", {**METHODS, "ditto": ditto})


def settings(source: str, **stated: Any) -> Completed:
    return complete(source, SettingsTable(method="ditto", **stated))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "found.toml"
    path.write_text(
        '[run]\nmethod = "ditto"\nrounds = 7\n[run.settings]\neta_l = 0.3\nbatch = 5\n'
        '[run.settle]\noptimiser = "sgd"\n[run.augment]\nnoise = 0.1\n[run.robust]\nrule = "median"\n'
        "[run.uploads]\nbits = 4\n"
    )
    return path


def test_without_a_word_a_run_has_what_its_method_recommends() -> None:
    assert settings("recommended").settings == {"eta_l": 0.2, "nearness": 0.5}
    assert settings("recommended", settings={"eta_l": 0.1}).settings == {"eta_l": 0.1, "nearness": 0.5}


def test_the_papers_values_take_the_place_of_what_is_recommended() -> None:
    assert settings("paper").settings == {"batch": 10}
    assert settings("paper", settings={"eta_l": 0.1}).settings == {"batch": 10, "eta_l": 0.1}


def test_a_run_may_have_what_is_stated_and_nothing_else() -> None:
    assert settings("stated").settings == {}
    assert settings("stated", settings={"eta_l": 0.1}).settings == {"eta_l": 0.1}


def test_a_file_lies_between_what_is_recommended_and_what_is_stated(file: Path) -> None:
    found = settings(
        str(file), settings={"batch": 9}, augment={"scale": 0.2}, robust={"share": 0.1}, uploads={"rotate": False}
    )
    assert found.settings == {"eta_l": 0.3, "nearness": 0.5, "batch": 9}
    assert found.settle == {"optimiser": "sgd"} and found.augment == {"noise": 0.1, "scale": 0.2}
    assert found.robust == {"rule": "median", "share": 0.1} and found.uploads == {"bits": 4, "rotate": False}
    assert found.rounds == 7 and settings(str(file), rounds=3).rounds == 3


def test_a_file_may_name_the_method(file: Path) -> None:
    assert complete(str(file), SettingsTable()).method == "ditto"
    assert complete(file.name, SettingsTable(), file.parent).method == "ditto"
    with pytest.raises(UsageError, match="is for method ditto, and the run's is fedavg"):
        complete(str(file), SettingsTable(method="fedavg"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nid = 3\n", "run.id is no setting"),
        ("[settings]\neta_l = 1\n", "settings is no setting"),
        ("[run.settings", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        settings(str(path))


def test_a_word_that_is_no_file_is_answered_with_those_that_there_are() -> None:
    words = "papers: no settings; expected recommended, plain, paper, stated, or a TOML file"
    with pytest.raises(UsageError, match=words):
        settings("papers")


def test_a_run_that_names_nothing_is_of_the_default_method() -> None:
    found = complete("paper", SettingsTable())
    assert (found.method, found.rounds) == ("fedslr", 30)
    assert [found.settle, found.augment, found.robust, found.uploads] == [{}, {}, {}, {}]
