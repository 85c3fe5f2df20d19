"""The page of settings shows all of them, no secret, and people only to whom they concern."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.console.settings_page import MEANINGS, list_settings
from aggregator.service.database.webhooks import Webhook
from edge_sdk.wire.options import Wire

SECRET = "hunter2"


@pytest.fixture
def database_url() -> str:
    return ""


def test_every_setting_is_there_and_no_secret(browse: Any, service: Any, tmp_path: Path) -> None:
    assert {*MEANINGS} == {f.name for f in fields(FleetFile)}
    (tmp_path / "hook.key").write_text(16 * SECRET)
    hook = Webhook(url=f"https://chat.example/hooks/{SECRET}?token={SECRET}", secret=tmp_path / "hook.key")
    about = {key: getattr(service.file, key) for key in ("name", "directory", "bundles", "classes")}
    about |= {"broker": f"mqtt://cloud:{SECRET}@127.0.0.1:1", "webhooks": {"chat": hook}, "wire": Wire(keepalive=7)}
    service.file = FleetFile(**about, database=f"postgresql://auscult:{SECRET}@db.example/auscult?password={SECRET}")
    text = browse("viewer").get("/settings").text
    assert SECRET not in text and all(f"<code>{key}</code>" in text for key in MEANINGS)
    found = {row["key"]: row for row in list_settings(service.file)}
    assert found["database"]["value"] == "postgresql://db.example" and found["wire"]["value"] == "keepalive = 7"
    assert found["webhooks"]["value"] == "chat = url = https://chat.example, secret = hook.key"
    assert found["at_once"]["is_default"] and not found["wire"]["is_default"]


def test_people_and_tokens_are_for_admins(browse: Any, service: Any) -> None:
    service.people.make_key("token", "robot", "viewer", 60.0, "test", ["runs", "fleet"])
    service.people.make_key("token", "gone", "viewer", 1e-9, "test")
    assert "robot" not in browse("operator").get("/settings").text
    text = browse("admin").get("/settings").text
    assert "robot" in text and "runs, fleet" in text and '<td data-name="Name">operator</td>' in text
    assert "gone" not in text  # it has ended
