"""The pages of the console. Each can be read without JavaScript; what changes something is a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from aggregator.service.administration.accounts import APPROVER, OPERATOR, VIEWER, SignInError
from aggregator.service.application import alerts, rollout_view, view
from aggregator.service.application.forms import explain_personal, list_methods, read_form, to_asked, to_fields
from aggregator.service.application.guard import COOKIE, KNOWN_COOKIE, give_cookies, needs, note_no_entry
from aggregator.service.application.requests import awaits_of, checked_action, service_of
from aggregator.service.application.service import FleetService
from aggregator.service.application.setting_boxes import TABLES, list_boxes
from aggregator.service.console import columns, run_charts
from aggregator.service.console.tables import SortedTable, read_page
from aggregator.service.database import audit
from aggregator.service.models import promotion
from aggregator.service.models.registry import BUNDLE, GLOBAL
from aggregator.service.models.rollouts import list_rollouts, without_rollouts
from aggregator.service.runs.new_samples import count_new
from aggregator.service.runs.rollout_settings import is_rollout
from aggregator.service.runs.runs import (
    ACTIVE,
    RUNNING,
    Wanted,
    add_run,
    change_run,
    find_run,
    list_queue,
    list_runs,
)
from aggregator.service.runs.schedules import Asked, add_schedule, list_schedules, read_occasion, remove_schedule
from edge_sdk.errors import UsageError

PAGE = 200  # rows of a long table
AUDIT_PAGE = 100
LATEST = 8


def show(request: Request, template: str, code: int = 200, **context: Any) -> Response:
    answer: Response = request.app.state.show(request, template, code, **context)
    return answer


@needs()
async def overview(request: Request) -> Response:
    """GET /."""
    service = service_of(request)
    rows = without_rollouts(list_runs(service.database))
    running = next((row for row in rows if row["state"] == RUNNING), None)
    shown = running or next((row for row in rows if row["started"]), None)
    beside = [row for row in rows if row["state"] == RUNNING and row is not running]
    return show(
        request,
        "overview.html",
        title="Overview",
        needs=alerts.list_needs(service) + rollout_view.list_needs(service),
        run=None if shown is None else view.describe_run(service, shown),
        others=[view.describe_run(service, row) for row in beside],
        chart=None if shown is None else run_charts.draw_score(service.supervisor.lines_of(shown["id"]).lines),
        queue=[view.describe_run(service, row) for row in list_queue(service.database)],
        recent=[view.describe_run(service, row) for row in rows if row["state"] not in ACTIVE][: view.RECENT],
        hospitals=view.describe_hospitals(service),
        latest=audit.list_latest(service.database, LATEST),
        promoted=service.registry.promoted(),
        rollouts=[rollout_view.describe_rollout(service, row) for row in list_rollouts(service.database)[:1]],
    )


@needs()
async def fleet(request: Request) -> Response:
    """GET /fleet."""
    service, query = service_of(request), request.query_params
    text, state, sort = query.get("q", ""), query.get("state", ""), query.get("sort", "")
    devices = view.list_devices(service, text, state, sort)
    page = read_page(query.get("page", "1"))
    return show(
        request,
        "fleet.html",
        title="Fleet",
        hospitals=view.describe_hospitals(service),
        devices=devices[(page - 1) * PAGE : page * PAGE],
        told=view.find_told(devices),
        count=len(devices),
        pages=range(1, -(-len(devices) // PAGE) + 1),
        page=page,
        q=text,
        state=state,
        sort=sort,
        connected=service.monitor.is_connected,
    )


@needs()
async def runs_page(request: Request) -> Response:
    """GET /runs."""
    service = service_of(request)
    rows = without_rollouts(list_runs(service.database))
    active = [view.describe_run(service, r) for r in rows if r["state"] in ACTIVE and r["state"] != "queued"]
    order = [view.describe_run(service, row) for row in list_queue(service.database)]
    waits = service.supervisor.waits
    told = service.monitor.labels()
    planned = [{**row, "new": count_new(row, told)} for row in list_schedules(service.database)]
    table = SortedTable(list_past(service), columns.PAST_RUNS, request.query_params)
    found: dict[str, Any] = {"active": active, "queue": order, "past": table, "waits": waits, "schedules": planned}
    return show(request, "runs.html", title="Runs", **found)


def list_past(service: FleetService) -> list[dict[str, Any]]:
    """Runs that have ended, the newest first."""
    rows = without_rollouts(list_runs(service.database))
    return [view.describe_run(service, row) for row in rows if row["state"] not in ACTIVE]


@needs(OPERATOR)
async def new_run(request: Request) -> Response:
    """GET /runs/new: the form, with the fields of another run where `from` names one."""
    service, source = service_of(request), request.query_params.get("from", "")
    wanted = find_run(service.database, source)["wanted"] if source else vars(Wanted())
    return show_form(request, to_fields(wanted), source)


def show_form(request: Request, fields: dict[str, Any], source: str, wrong: str = "", code: int = 200) -> Response:
    service = service_of(request)
    return show(
        request,
        "new_run.html",
        code,
        title=f"Clone {source}" if source else "New run",
        fields=fields,
        source=source,
        wrong=wrong,
        methods=list_methods(),
        tables=[(name, title, list_boxes(name, fields["method"])) for name, (title, _) in TABLES.items()],
        bundles=service.registry.list_all(BUNDLE),
        hospitals=service.monitor.list_hospitals(),
    )


def read_when(form: Mapping[str, Any]) -> str:
    """The event of a form, as a schedule has it; "": none."""
    samples = str(form.get("samples", "")).strip()
    return f"{samples} new samples" if samples else ""


@needs(OPERATOR)
async def queue_run(request: Request) -> Response:
    """POST /runs."""
    service, form = service_of(request), await request.form()
    ticked = [str(name) for name in form.getlist("hospitals")]
    source = str(form.get("source", ""))
    told = to_fields(vars(Wanted())) | {key: str(value) for key, value in form.items()} | {"hospitals": ticked}
    if form.get("show"):  # the settings of another method
        return show_form(request, told, source)
    try:
        wanted = service.registry.complete(read_form(form, ticked))
        id = str(form.get("id", "")).strip()
        begin, end = (str(form.get(key, "")).strip() for key in ("begin", "end"))
        asked = Asked(id, begin, end, when=read_when(form))
        if asked.begin or asked.when:
            when = read_occasion(asked, service.monitor.labels())
            add_schedule(service.database, id, wanted, when, service.file.classes, request.state.who.name)
            return RedirectResponse("/runs", 303)
        who, classes = request.state.who.name, service.file.classes
        wanted = service.registry.pin(wanted)
        made = add_run(service.database, wanted, classes, who, id, source, awaits_of(service))
    except UsageError as error:
        return show_form(request, told, source, str(error), 422)
    return RedirectResponse(f"/runs/{made}", 303)


@needs()
async def run_page(request: Request) -> Response:
    """GET /runs/ID."""
    service = service_of(request)
    row = find_run(service.database, request.path_params["id"])
    if is_rollout(row):
        return RedirectResponse(f"/rollouts/{row['id']}", 303)
    run = view.describe_run(service, row, whole=True)
    lines = service.supervisor.lines_of(run["id"]).lines
    return show(
        request,
        "run.html",
        title=run["id"],
        run=run,
        fields=to_asked(run["wanted"]),
        charts=run_charts.list_charts(lines, run["curve"], run["hops"]),
        hop_names=run_charts.HOPS,
        personal=explain_personal(run["method"], run["score"]),
        rounds=SortedTable(run["curve"][::-1], columns.ROUNDS, request.query_params),
        models=[m for m in service.registry.list_all(GLOBAL) if m["run"] == run["id"]],
    )


@needs(OPERATOR)
async def act_on_run(request: Request) -> Response:
    """POST /runs/ID/ACTION."""
    id = request.path_params["id"]
    change_run(service_of(request).database, id, checked_action(request), request.state.who.name)
    return RedirectResponse(f"/runs/{id}", 303)


@needs(OPERATOR)
async def end_schedule(request: Request) -> Response:
    """POST /schedules/NAME/remove."""
    remove_schedule(service_of(request).database, request.path_params["name"], request.state.who.name)
    return RedirectResponse("/runs", 303)


@needs()
async def compare(request: Request) -> Response:
    """GET /compare?run=A&run=B."""
    service = service_of(request)
    ids = list(dict.fromkeys(request.query_params.getlist("run")))[:6]
    rows = [view.describe_run(service, find_run(service.database, id)) for id in ids]
    lines = {row["id"]: service.supervisor.lines_of(row["id"]).lines for row in rows}
    charts = run_charts.list_comparisons(lines)
    table = SortedTable(rows, columns.RUN_COLUMNS, request.query_params)
    return show(request, "compare.html", title="Compare", rows=rows, charts=charts, table=table)


@needs()
async def models_page(request: Request) -> Response:
    """GET /models."""
    registry, query = service_of(request).registry, request.query_params
    rows = registry.list_all(BUNDLE)
    found: dict[str, Any] = {
        "named": len(registry.file.classes),
        "bundles": {row["sha256"]: row for row in rows},
        "promoted": registry.promoted(),
        "proposed": promotion.list_proposals(registry.database),
    }
    found |= {
        "trained": SortedTable(registry.list_all(GLOBAL), columns.TRAINED, query),
        "table": SortedTable(rows, columns.BUNDLES, query, "bundles"),
    }
    return show(request, "models.html", title="Models", **found)


@needs(OPERATOR)
async def promote(request: Request) -> Response:
    """POST /models/SHA256/promote."""
    service = service_of(request)
    promotion.promote(service.registry, request.path_params["sha256"], request.state.who.name, awaits_of(service))
    return RedirectResponse("/models", 303)


@needs(APPROVER)
async def approve_model(request: Request) -> Response:
    """POST /models/SHA256/approve."""
    promotion.approve(service_of(request).registry, request.path_params["sha256"], request.state.who.name)
    return RedirectResponse("/models", 303)


@needs(OPERATOR)
async def deny_model(request: Request) -> Response:
    """POST /models/SHA256/deny."""
    promotion.deny(service_of(request).registry, request.path_params["sha256"], request.state.who.name)
    return RedirectResponse("/models", 303)


@needs()
async def audit_page(request: Request) -> Response:
    """GET /audit."""
    database, table = service_of(request).database, SortedTable((), columns.AUDIT, request.query_params)
    page, size = read_page(request.query_params.get("page", "1")), AUDIT_PAGE
    entries = audit.list_latest(database, size + 1, table.q, table.sort or "seq", (page - 1) * size)
    broken, count, latest = await run_in_threadpool(audit.find_break, database)
    about: dict[str, Any] = {"broken": broken, "count": count, "latest": latest, "page": page, "table": table}
    return show(request, "audit.html", title="Audit", entries=entries[:size], more=len(entries) > size, **about)


async def sign_in_page(request: Request) -> Response:
    """GET /sign-in."""
    return show_sign_in(request)


def show_sign_in(request: Request, wrong: str = "", code: int = 200) -> Response:
    """The form for a password, and the way to a provider where there is one."""
    service = service_of(request)
    provider = service.file.sign_on and urlsplit(service.file.sign_on.issuer).hostname
    empty = not (wrong or provider or service.people.list_all())
    return show(request, "sign_in.html", code, title="Sign in", wrong=wrong, empty=empty, provider=provider)


def find_address(request: Request) -> str:
    """From where a request comes; "": nobody knows."""
    return "" if request.client is None else request.client.host


def ask_to_come_again() -> Response:
    return PlainTextResponse("Too many are signing in at this moment. Try again.\n", 503, {"retry-after": "5"})


async def sign_in(request: Request) -> Response:
    """POST /sign-in."""
    service, form, door = service_of(request), await request.form(), request.app.state.door
    if door.is_full(address := find_address(request)):
        return ask_to_come_again()
    try:
        name, password = str(form.get("name", "")), str(form.get("password", ""))
        known = request.cookies.get(KNOWN_COOKIE, "")
        session, browser = await door.check(address, service.people.sign_in, name, password, address, known)
    except SignInError as error:
        # A name that nobody has is not kept: people type passwords there.
        note_no_entry(request, f"{error}, {name if service.people.has(name) else 'an unknown name'} from {address}")
        return show_sign_in(request, str(error), 401)
    return give_cookies(RedirectResponse("/", 303), session, browser, service.file.proxied)


@needs(VIEWER)
async def sign_out(request: Request) -> Response:
    """POST /sign-out."""
    service_of(request).people.end_key(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE)
    return answer
