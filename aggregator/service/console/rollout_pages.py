"""Pages of rollouts."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from aggregator.service.administration.accounts import OPERATOR
from aggregator.service.application.guard import needs
from aggregator.service.application.requests import awaits_of, service_of
from aggregator.service.application.rollout_view import describe_rollout
from aggregator.service.console import columns
from aggregator.service.console.pages import show
from aggregator.service.console.tables import SortedTable
from aggregator.service.models.registry import GLOBAL
from aggregator.service.models.rollouts import (
    WantedRollout,
    add_evaluation,
    add_rollback,
    add_rollout,
    check_model,
    find_rollout,
    list_rollouts,
)
from edge_sdk.errors import UsageError

SHARES = ("to", "margin", "failures")
"""Fields that a form has in per cent."""


@needs()
async def rollouts_page(request: Request) -> Response:
    """GET /rollouts."""
    service = service_of(request)
    rows = [describe_rollout(service, row) for row in list_rollouts(service.database)]
    table = SortedTable(rows, columns.ROLLOUTS, request.query_params)
    return show(request, "rollouts.html", title="Rollouts", table=table, promoted=service.registry.promoted())


@needs()
async def rollout_page(request: Request) -> Response:
    """GET /rollouts/ID."""
    service = service_of(request)
    row = find_rollout(service.database, request.path_params["id"])
    log = service.supervisor.read_log(row["id"], 60)
    return show(request, "rollout.html", title=row["id"], rollout=describe_rollout(service, row), log=log)


@needs(OPERATOR)
async def new_rollout(request: Request) -> Response:
    """GET /rollouts/new: the form; `model` names the one that is chosen in it."""
    return show_form(request, fields_of(WantedRollout()) | {"model": request.query_params.get("model", "")})


def fields_of(wanted: WantedRollout) -> dict[str, Any]:
    """A rollout as the fields of the form."""
    fields = {name: f"{100 * value:g}" if name in SHARES else value for name, value in vars(wanted).items()}
    return fields | {"hospitals": list(wanted.hospitals), "devices": " ".join(wanted.devices)}


def show_form(request: Request, fields: dict[str, Any], wrong: str = "", code: int = 200) -> Response:
    service = service_of(request)
    models = sorted(service.registry.list_all(), key=lambda row: row["kind"] != GLOBAL)
    chosen = fields.get("model") or (service.registry.promoted() or {"sha256": ""})["sha256"]
    about: dict[str, Any] = {"models": models, "hospitals": service.monitor.list_hospitals(), "wrong": wrong}
    return show(request, "new_rollout.html", code, title="New rollout", fields=fields | {"model": chosen}, **about)


@needs(OPERATOR)
async def queue_rollout(request: Request) -> Response:
    """POST /rollouts."""
    service, form = service_of(request), await request.form()
    told = {key: str(value).strip() for key, value in form.items()}
    ticked = [str(name) for name in form.getlist("hospitals")]
    try:
        table = read_fields(told) | {"hospitals": ticked}
        model = check_model(told.get("model", ""))
        who, awaits = request.state.who.name, awaits_of(service)
        add = add_rollout
        if told.get("only_judge"):
            add, table = add_evaluation, {key: table[key] for key in ("to", "hospitals", "devices") if key in table}
        id = add(service.database, service.registry, model, table, who, awaits)
    except UsageError as error:
        fields = fields_of(WantedRollout()) | told | {"hospitals": ticked}
        return show_form(request, fields, str(error), 422)
    return RedirectResponse(f"/rollouts/{id}", 303)


def read_fields(told: dict[str, str]) -> dict[str, Any]:
    """A rollout from the fields of its form. Raises UsageError for one that is no number."""
    found: dict[str, Any] = {"devices": told.get("devices", "").replace(",", " ").split()}
    for name in ("to", "margin", "failures", "growth", "canary", "judged"):
        text = told.get(name, "")
        if not text:
            continue
        try:
            number = float(text)
            found[name] = int(text) if name in ("canary", "judged") else number / 100 if name in SHARES else number
        except ValueError:
            raise UsageError(f"{name} = {text[:40]!r}: expected a number") from None
    return found


@needs(OPERATOR)
async def undo_rollout(request: Request) -> Response:
    """POST /rollouts/ID/rollback."""
    id = add_rollback(service_of(request).database, request.path_params["id"], request.state.who.name)
    return RedirectResponse(f"/rollouts/{id}", 303)


PAGES = [
    Route("/rollouts", rollouts_page),
    Route("/rollouts", queue_rollout, methods=["POST"]),
    Route("/rollouts/new", new_rollout),
    Route("/rollouts/{id}", rollout_page),
    Route("/rollouts/{id}/rollback", undo_rollout, methods=["POST"]),
]
