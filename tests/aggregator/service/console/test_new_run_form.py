"""The form of a new run: a box for each setting, made of the dataclasses that check runs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.application.forms import list_methods, read_form, to_fields
from aggregator.service.application.setting_boxes import TABLES, kind_of, list_boxes
from aggregator.service.runs.runs import Wanted, find_run
from edge_sdk.errors import UsageError
from tests.aggregator.service.conftest import CLASSES, secret_in
from tests.installing import installing

METHODS = [name for name, _ in list_methods()]


@pytest.fixture
def database_url() -> str:
    return ""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("table", TABLES)
def test_each_setting_has_a_box_with_words_and_reads_its_default(table: str, method: str) -> None:
    boxes = list_boxes(table, method)
    assert [box.key for box in boxes] == [field.name for field in fields(kind_of(table, method))]
    assert [box.key for box in boxes if not box.words] in ([], ["alpha"])
    given = {box.name: box.example for box in boxes if box.example}
    read = read_form({"method": method, "preset": "stated", **given}, [])
    again = to_fields(vars(read))
    assert {name: again[name] for name in given} == given


def test_a_whole_run_comes_back_from_the_form() -> None:
    wanted = Wanted(
        method="fedbcd",
        settings={"gammas": {"north": 0.5}, "participation": 0.5},
        settle={"steps": [0, 25], "mask": False, "trees": 100},
        augment={"rotation": 0.25},
        robust={"rule": "median"},
        uploads={"secret": "among-devices"},
        privacy={"clip": 1e-07, "epsilon": 8.0},
    )
    assert read_form(to_fields(vars(wanted)), []) == wanted
    one = Wanted(method="fedavg", settle={"steps": [100]})
    assert read_form(to_fields(vars(one)), []) == one


def test_a_table_is_switched_on_with_its_defaults() -> None:
    read = read_form({"method": "fedavg", "preset": "recommended", "settle.on": "on", "robust.on": "on"}, [])
    assert read.settle == {"optimiser": "adam"} and read.robust == {"rule": "none"} and read.privacy == {}
    with pytest.raises(UsageError, match="clip is missing"):
        read_form({"method": "fedavg", "rounds": "3", "preset": "recommended", "privacy.on": "on"}, []).check(CLASSES)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("settings.eta_l", "much", "expected a number, such as"),
        ("settings.batch", "1.5", "expected a whole number, such as 20"),
        ("settle.steps", "0, x", "expected something such as 0, 25"),
        ("robust.rule", "mode", "rule = 'mode'"),
        ("robust.share", "0.7", "share = 0.7"),
        ("privacy.epsilon", "-1", "clip is missing"),
    ],
)
def test_what_is_wrong_is_said_at_its_box(browse: Any, service: Any, name: str, text: str, why: str) -> None:
    browser = browse("operator")
    form = {"csrf": secret_in(browser.get("/runs/new").text), "method": "fedavg", "rounds": "7", name: text}
    answer = browser.post("/runs", data=form | {"preset": "recommended", "id": "mine"})
    page = answer.text.replace("&#39;", "'")
    assert answer.status_code == 422 and why in page and f'name="{name}" value="{text}"' in page
    if "expected" in why:
        assert page.count('aria-invalid="true"') == 1


def test_the_settings_of_another_method_are_shown_and_nothing_is_queued(browse: Any, service: Any) -> None:
    browser = browse("operator")
    page = browser.get("/runs/new").text
    assert 'name="settings.personal_penalty"' in page
    form = {"csrf": secret_in(page), "method": "fedavg", "rounds": "7", "settings.eta_l": "0.3", "show": "1"}
    other = browser.post("/runs", data=form | {"id": "mine"}).text
    assert 'name="settings.personal_penalty"' not in other and 'name="settings.fine_tune_epochs"' in other
    assert 'name="settings.eta_l" value="0.3"' in other and 'value="mine"' in other
    with pytest.raises(UsageError):
        find_run(service.database, "mine")


def test_the_form_survives_a_method_of_another_package_that_cannot_be_loaded(
    browse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installing(tmp_path / "site", monkeypatch) as install:
        install("odd", {"method": "bad = odd:X"}, {"odd.py": "import sys; sys.exit(0)"})
        browser = browse("operator")
        page = browser.get("/runs/new")
        assert page.status_code == 200 and 'value="fedavg"' in page.text and 'value="bad"' not in page.text
        asked = {"method": "bad", "preset": "stated", "csrf": secret_in(page.text)}
        assert browser.post("/runs", data={**asked, "show": "1"}).status_code == 200
        answer = browser.post("/runs", data=asked)
        assert answer.status_code == 422 and "SystemExit" in answer.text and 'name="settings.eta_l"' in answer.text
