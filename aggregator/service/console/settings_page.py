"""The page of settings: what the service is set to, who may do what, and which tokens there are.

What a file says is changed in that file, and people and tokens are made by a command on the service's own machine:
whoever gets hold of a session in the console can thereby neither let others in nor point the service at another broker.
Taken away they can be from here, which is what a leaked token needs. Secrets are not here: of an address without its
password, of a webhook or a certificate where its file is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.service.administration.accounts import ADMIN, APPROVER, OPERATOR, VIEWER
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.application.guard import needs
from aggregator.service.application.requests import service_of
from aggregator.service.console.pages import show
from edge_sdk.wire.addresses import conceal

MEANINGS: Mapping[str, str] = {
    "name": "of the aggregator, as hospitals call it",
    "broker": "by which hospitals reach it",
    "directory": "what the service keeps",
    "bundles": "compiled models that were there at its start",
    "classes": "label names of the models' first outputs, in their order",
    "hospitals": "with numbers of devices, for those that report nothing",
    "listen": "address and port of this console",
    "hosts": "further names of this console",
    "database": "SQLite in the directory, or PostgreSQL",
    "threads": "of torch on a CPU, in each run",
    "masks": "keys for runs with secret sums",
    "proxied": "a proxy with TLS is in front",
    "two_people": "another person approves runs, rollouts and promotions",
    "wire": "certificates of the aggregator",
    "console_wire": "certificates with which it listens to reports",
    "sign_on": "a provider that signs people in",
    "webhooks": "who is told what has happened",
    "enrolment": "whose authority signs, and how the broker hears of it",
    "at_once": "runs side by side at most",
    "lanes": "further certificates, for runs beside the first over TLS",
}
"""Key of the settings file -> what it is."""
ROLES_MAY = (
    (VIEWER, "reads everything but this page's people and tokens"),
    (OPERATOR, "also queues, pauses and stops runs, promotes models, rolls them out, and enrols hospitals and devices"),
    (APPROVER, "also approves what somebody else has asked for"),
    (ADMIN, "may do everything; sees who else may, and takes that away"),
)


def list_settings(file: FleetFile) -> list[dict[str, Any]]:
    """The settings of a service: key, value as a text without secrets, whether it is the default, and what it is."""
    rows = []
    named = {"database": "SQLite" if not file.database else to_text(file.database)}
    for field in fields(file):
        value = getattr(file, field.name)
        shown = {"key": field.name, "value": named.get(field.name, to_text(value)), "meaning": MEANINGS[field.name]}
        rows.append(shown | {"is_default": value == default_of(field)})
    return rows


def default_of(field: Field[Any]) -> Any:
    """The value that a setting has where the file does not say it; MISSING: it has to."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def to_text(value: Any) -> str:
    """A setting for people. Of tables only what the file says, not the defaults within."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) != default_of(f)}
        return to_text(own)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {to_text(one)}" for key, one in value.items()) or "none"
    if isinstance(value, tuple | list):
        return ", ".join(map(to_text, value)) or "none"
    if value is None or value == "":
        return "not set"
    return value.name if isinstance(value, Path) else shorten_address(str(value))


def shorten_address(text: str) -> str:
    """A text or, of an address, scheme and host alone: paths of webhooks and parameters of databases hold secrets."""
    if "://" not in text:
        return text
    parts = urlsplit(conceal(text))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@needs()
async def settings(request: Request) -> Response:
    """GET /settings."""
    service, is_admin = service_of(request), request.state.who.may(ADMIN)
    return show(
        request,
        "settings.html",
        title="Settings",
        settings=list_settings(service.file),
        roles=ROLES_MAY,
        people=service.people.list_with_sessions() if is_admin else None,
        tokens=service.people.list_tokens() if is_admin else None,
        hospitals=service.monitor.list_hospitals(),
    )


PAGES = [Route("/settings", settings)]
