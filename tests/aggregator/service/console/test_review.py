"""What a hospital's review of the console has found: landmarks, time zones, outputs without names, modes of files."""

from __future__ import annotations

import re
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.application.formats import name_zone, when
from aggregator.service.application.forms import explain_personal
from aggregator.service.runs.runs import Wanted, add_run
from tests.aggregator.service.conftest import CLASSES, list_pages
from tests.aggregator.service.console.test_pages import fill


@pytest.fixture
def database_url() -> str:
    return ""


@pytest.mark.parametrize("path", list_pages())
def test_landmarks_of_one_role_have_names_of_their_own(browse: Any, service: Any, path: str) -> None:
    fill(service)
    text = browse("admin").get(path).text
    landmarks = re.findall(r"<(nav|aside|form)([^>]*(?:aria-label|search)[^>]*)>", text)
    named = [(tag, re.findall(r'aria-label="([^"]*)"', rest)) for tag, rest in landmarks]
    assert all(names for _, names in named) and len(named) == len({(tag, *names) for tag, names in named})


def test_the_models_page_says_that_there_are_more_outputs_than_names(browse: Any) -> None:
    text = browse("viewer").get("/models").text
    assert '<td class="n" data-name="Outputs"><span>14 <small>(11 have a name here)</small></span></td>' in text


def test_a_scraper_without_a_good_token_is_refused_and_not_sent_to_a_page(browse: Any) -> None:
    """Prometheus followed to the page for signing in, and said that this is no metric."""
    assert browse().get("/metrics").status_code == 401
    assert browse().get("/metrics", headers={"authorization": "Bearer ended"}).status_code == 401
    assert browse().get("/fleet.csv", headers={"authorization": "Bearer ended"}).status_code == 401
    assert browse().get("/fleet").status_code == 303


def test_times_have_a_zone(browse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert when(0.5) == "1970-01-01 05:30:00 IST" and name_zone() == "IST, UTC+05:30"
        browser = browse("admin")
        assert "times are those of the service: IST, UTC+05:30" in browser.get("/audit").text
        assert "times of the service: IST" in browser.get("/runs/new").text
        monkeypatch.setenv("TZ", "America/St_Johns")
        time.tzset()
        assert name_zone() in ("NST, UTC-03:30", "NDT, UTC-02:30")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_run_says_what_its_personalised_accuracy_is_of(browse: Any, service: Any) -> None:
    add_run(service.database, Wanted(method="fedavg"), CLASSES, "test", "mean")
    assert (
        "own samples (the setting fine_tune_epochs), made for the evaluation only."
        in browse("viewer").get("/runs/mean").text
    )
    assert "the setting adapt_steps" in explain_personal("perfedavg") and "the setting adapt_steps" in explain_personal(
        "augfl"
    )
    assert "scaffold has no personal models" in explain_personal("scaffold")
    assert "Personalised is the model that each device keeps" in explain_personal("ditto")
    assert "ersonal" not in explain_personal("of-a-plug-in-that-is-gone")


def test_what_a_service_keeps_is_its_users_alone(make_service: Any, tmp_path: Path) -> None:
    """What an earlier version has left open is closed at the next start."""
    service = make_service()
    service.supervisor.processes.start("run", ["--version"])
    service.supervisor.processes.running["run"].wait(60)
    folder, found = service.file.directory, {}
    for path in (folder / "service.db", folder / "logs" / "run.log"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
    service = make_service()
    for path in [folder, *folder.rglob("*")]:
        found[str(path.relative_to(folder))] = stat.S_IMODE(path.stat().st_mode) & 0o077
    assert {name for name, open_to_others in found.items() if open_to_others} == set()
    assert any(name.startswith("service.db-") for name in found)


def test_metrics_tell_of_rounds_accuracy_and_the_disk(browse: Any, service: Any) -> None:
    id = fill(service)
    with service.database.transaction() as t:
        t.exec_driver_sql(f"update runs set state = 'finished', ended = {time.time() - 60} where id = '{id}'")
    text = browse("viewer").get("/metrics").text
    for name in ("run_round", "run_loss", "run_accuracy", "service_disk_free_bytes", 'used_bytes{part="database"}'):
        assert re.search(rf"^auscult_\S*{re.escape(name)}\S* [0-9]", text, re.MULTILINE), name
    with service.database.transaction() as t:
        t.exec_driver_sql(f"update runs set ended = {time.time() - 86_500} where id = '{id}'")
    assert "auscult_run_round" not in browse("operator").get("/metrics").text
