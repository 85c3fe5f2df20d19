"""Rollouts as rows, pages and API: what is refused, what is shown, what a kill of the service leaves."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.client.rollout_client import read_share, show_rollout
from aggregator.service.models.rollouts import add_rollback, add_rollout
from aggregator.service.runs.runs import FINISHED, PROPOSED, NotPossibleError, Wanted, add_run, change_run, find_run
from aggregator.service.runs.supervisor import write_settings
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.settings_files import AggregatorFile
from edge_sdk.wire.signatures import Verifier, state_model
from tests.aggregator.service.conftest import CLASSES, secret_in
from tests.aggregator.service.schema_check import find_faults


def bundle_of(service: Any) -> str:
    return str(service.registry.find()["sha256"])


def queue(service: Any, **table: Any) -> str:
    """The untrained bundle itself is a version, too."""
    return add_rollout(service.database, service.registry, bundle_of(service), table, "test")


def tell(service: Any, id: str, *lines: dict[str, Any]) -> None:
    """What the rollout's aggregator writes."""
    path = Path(service.file.directory) / "runs" / id / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({**line, "time": 5.0}) + "\n" for line in lines))


STAGES = (
    {"kind": "stage", "stage": 1, "stages": 2, "upto": 1, "target": 2, "fault": ""}
    | {"counts": {"asked": 1.0, "installed": 1.0, "samples": 10.0, "before": 5.0, "after": 6.0}},
    {"kind": "stage", "stage": 2, "stages": 2, "upto": 2, "target": 2, "fault": "accuracy fell"}
    | {"counts": {"asked": 2.0, "installed": 2.0, "samples": 30.0, "before": 20.0, "after": 8.0}},
)


def test_a_rollout_is_first_in_the_queue_and_its_settings_are_whole(service: Any) -> None:
    add_run(service.database, Wanted(), CLASSES, "test")
    id = queue(service, to=0.5)
    row = find_run(service.database, id)
    assert row["place"] < find_run(service.database, "fedslr-1")["place"]
    row["hospitals"] = {"north": 2}
    path = write_settings(service.file, row, service.registry.path_of(bundle_of(service)))
    file = read_toml(path, AggregatorFile)
    assert file.run.method == "rollout" and file.run.deadline == 600 and file.signing_key is not None
    assert file.run.settings["share"] == 0.5 and len(file.run.settings["theta"]) == 64


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"to": 0.0}, "share = 0.0"),
        ({"to": 1.5}, "share = 1.5"),
        ({"growth": 1.0}, "growth = 1.0"),
        ({"canary": 0}, "canary = 0"),
        ({"nope": 1}, "nope is no setting"),
        ({"id": "a b"}, "id = 'a b'"),
    ],
)
def test_what_makes_no_rollout_is_said(service: Any, table: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        queue(service, **table)


def test_only_what_was_begun_is_taken_back_and_once(service: Any) -> None:
    id = queue(service)
    with pytest.raises(NotPossibleError, match="has not begun; stop it"):
        add_rollback(service.database, id, "test")
    row = find_run(service.database, id)
    service.supervisor.set_state(row, FINISHED)
    back = add_rollback(service.database, id, "test")
    assert find_run(service.database, back)["wanted"]["settings"] == {"undo": id}
    service.supervisor.set_state(find_run(service.database, back), FINISHED)
    with pytest.raises(NotPossibleError, match="takes another one back"):
        add_rollback(service.database, back, "test")
    add_run(service.database, Wanted(), CLASSES, "test")
    with pytest.raises(NotPossibleError, match="is a run that trains"):
        add_rollback(service.database, "fedslr-1", "test")


def test_one_that_was_stopped_before_it_began_is_not_taken_back(service: Any) -> None:
    """Its way back needs no second person: it went before all others in the queue, for nothing."""
    for action in ("pause", "stop"):
        id = queue(service)
        change_run(service.database, id, action, "test")
        with pytest.raises(NotPossibleError, match="never began"):
            add_rollback(service.database, id, "test")


def test_pages_show_how_far_it_is_and_why_it_was_halted(service: Any, browse: Any) -> None:
    id, browser = queue(service, to=1.0), browse("operator")
    assert browser.get(f"/runs/{id}").headers["location"] == f"/rollouts/{id}"
    assert "None is over yet" in browser.get(f"/rollouts/{id}").text
    tell(
        service, id, *STAGES, {"kind": "rollout", "kept": False, "counts": {"reverted": 2.0}, "fault": "accuracy fell"}
    )
    service.supervisor.set_state(find_run(service.database, id), FINISHED)
    text = browser.get(f"/rollouts/{id}").text
    assert "rolled back" in text and "accuracy fell" in text and "60.0 %" in text and "10.0 %" in text
    assert f"Rollout {id} was halted" in browser.get("/").text and id not in browser.get("/runs").text
    assert "rolled back" in browser.get("/rollouts").text


def test_who_was_not_there_is_counted(service: Any, browse: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A rollout that had reached one device of five was kept, and nothing said why the others lack it."""
    id, counts = queue(service, to=1.0), {"asked": 1.0, "installed": 1.0}
    stage = {"kind": "stage", "stage": 1, "stages": 1, "upto": 1, "target": 5, "fault": "", "counts": counts}
    tell(service, id, stage)
    assert browse("viewer").get(f"/api/v1/rollouts/{id}").json()["missed"] == 0, "it may yet come to them"
    tell(service, id, stage, {"kind": "rollout", "kept": True, "counts": counts, "fault": ""})
    service.supervisor.set_state(find_run(service.database, id), FINISHED)
    assert "4 of 5 devices were not there" in browse("viewer").get(f"/rollouts/{id}").text
    found = browse("viewer").get(f"/api/v1/rollouts/{id}").json()
    assert found["missed"] == 4
    show_rollout(Namespace(id=id, json=False), type("Client", (), {"ask": lambda self, path: found})())
    assert "4 of 5 devices were not there" in capsys.readouterr().out


def test_a_form_rolls_out_and_says_what_is_wrong(service: Any, browse: Any) -> None:
    browser, model = browse("operator"), bundle_of(service)
    page = browser.get(f"/rollouts/new?model={model}").text
    form = {"csrf": secret_in(page), "model": model, "to": "50", "canary": "1", "growth": "2", "margin": "2"}
    wrong = browser.post("/rollouts", data={**form, "to": "many"})
    assert wrong.status_code == 422 and "to = &#39;many&#39;: expected a number" in wrong.text
    assert browser.post("/rollouts", data=form).headers["location"] == "/rollouts/rollout-1"
    assert browse("viewer").get("/rollouts/new").status_code == 403


def test_an_evaluation_is_asked_for_and_shown(service: Any, browse: Any) -> None:
    browser, model = browse("operator"), bundle_of(service)
    form = {"csrf": secret_in(browser.get("/rollouts/new").text), "model": model, "to": "50", "only_judge": "1"}
    assert browser.post("/rollouts", data={**form, "canary": "1"}).headers["location"] == "/rollouts/evaluation-1"
    row = find_run(service.database, "evaluation-1")
    assert row["wanted"]["settings"]["only_judge"] and row["wanted"]["settings"]["share"] == 0.5
    path = write_settings(
        service.file, {**row, "hospitals": {"north": 2}, "beside": 2}, service.registry.path_of(model)
    )
    file = read_toml(path, AggregatorFile)
    assert file.lane == 2 and file.run.settings["only_judge"] is True
    tell(service, "evaluation-1", {**STAGES[1], "fault": ""})
    service.supervisor.set_state(row, FINISHED)
    assert "judged" in browser.get("/rollouts").text
    page = browser.get("/rollouts/evaluation-1").text
    assert "66.7 %" in page and "26.7 %" in page and "keep what they have" in page
    assert "Roll back" not in page and "was halted" not in browser.get("/").text
    with pytest.raises(NotPossibleError, match="is an evaluation"):
        add_rollback(service.database, "evaluation-1", "test")


def test_the_api_rolls_out_and_back(service: Any, browse: Any) -> None:
    browser, model = browse(), bundle_of(service)
    browser.headers["authorization"] = f"Bearer {service.people.make_key('token', 'robot', 'operator', 60.0, 'test')}"
    made = browser.post(f"/api/v1/models/{model}/rollout", json={"to": 0.5, "id": "half"})
    assert made.status_code == 201 and made.json()["outcome"] == "queued" and made.json()["wanted"]["share"] == 0.5
    assert browser.post("/api/v1/rollouts/half/rollback").status_code == 409
    tell(service, "half", STAGES[0])
    service.supervisor.set_state(find_run(service.database, "half"), FINISHED)
    assert browser.post("/api/v1/rollouts/half/rollback").json()["undo"] == "half"
    page = browser.get("/api/v1/rollouts").json()
    found = {one["id"]: one for one in page["rollouts"]}
    assert found["half"]["stages"][0]["after"] == 0.6 and found["half"]["undone_by"] == ["half-back"]
    document = browser.get("/api/openapi.json").json()
    for path, answer in (("/rollouts", page), ("/rollouts/{id}", found["half"])):
        said = document["paths"][f"/api/v1{path}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert find_faults(answer, said) == []
    assert browser.get("/api/v1/rollouts/nothing").status_code == 404
    assert browser.post("/api/v1/models/ffff/rollout", json={}).status_code == 422


def test_a_rollout_needs_a_second_person_where_runs_do_and_its_way_back_does_not(make_service: Any) -> None:
    from starlette.testclient import TestClient

    from aggregator.service.server.app import make_app

    service = make_service(two_people=True)
    key = service.people.make_key("token", "robot", "operator", 60.0, "test")
    with TestClient(make_app(service), base_url="http://127.0.0.1") as robot:
        robot.headers["authorization"] = f"Bearer {key}"
        made = robot.post(f"/api/v1/models/{bundle_of(service)}/rollout", json={"id": "mine"}).json()
        assert made["state"] == PROPOSED
        assert robot.post("/api/v1/rollouts/mine/rollback").status_code == 409
        service.supervisor.set_state(find_run(service.database, "mine"), FINISHED)
        assert robot.post("/api/v1/rollouts/mine/rollback").json()["state"] == "queued"


def test_what_is_in_the_registry_is_signed(service: Any, tmp_path: Path) -> None:
    row = service.registry.find()
    verifier = Verifier((tmp_path / "service" / "trusted.pem").read_bytes())
    table = {key: row[key] for key in ("sha256", "kind", "name", "bundle")}
    signed = row["facts"]["signed"]
    assert verifier.check("model", state_model(table, signed["number"]), signed) > 0
    with pytest.raises(UsageError, match="was changed"):
        verifier.check("model", state_model({**table, "name": "other"}, signed["number"]), signed)


def test_shares_on_the_command_line() -> None:
    assert (read_share("50%", "--to"), read_share("0.5", "--to")) == (0.5, 0.5)
    with pytest.raises(UsageError, match="--to many: expected a share"):
        read_share("many", "--to")
