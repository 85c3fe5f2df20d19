"""The REST API, under /api/v1: what the console shows and does, as JSON. The command line uses it (client/)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.service.administration.accounts import OPERATOR
from aggregator.service.api.response_types import (
    ASKED,
    DEVICE,
    HOSPITAL,
    RUN,
    SCHEDULE,
    STATUS,
    WHOLE_RUN,
)
from aggregator.service.application import view
from aggregator.service.application.alerts import list_needs
from aggregator.service.application.forms import from_table, read_json
from aggregator.service.application.guard import needs
from aggregator.service.application.paging import NUMBERS, QUERY, cut_page
from aggregator.service.application.requests import awaits_of, checked_action, service_of
from aggregator.service.application.schemas import Also, Either, Keys, ListOf, declare
from aggregator.service.database import audit
from aggregator.service.database.database import Row
from aggregator.service.models.registry import Registry
from aggregator.service.runs import schedules
from aggregator.service.runs.runs import (
    NotFoundError,
    Wanted,
    add_run,
    change_run,
    find_run,
    list_runs,
    take_id,
    wanted_of,
)
from edge_sdk.live.loop.fleet_report import STATES
from edge_sdk.nodes.configuration.settings import from_mapping


@declare(Keys({"runs": ListOf(RUN), **NUMBERS}), query=QUERY)
@needs()
async def list_all(request: Request) -> Response:
    """Runs, the newest first."""
    service = service_of(request)
    rows, numbers = cut_page(request.query_params, list_runs(service.database))
    return JSONResponse({"runs": [view.describe_run(service, row) for row in rows], **numbers})


@declare(RUN, body=ASKED, code=201)
@needs(OPERATOR)
async def queue(request: Request) -> Response:
    service, table = service_of(request), read_json(await request.body())
    id = take_id(table)
    wanted, who = service.registry.pin(service.registry.complete(from_table(table))), request.state.who.name
    made = add_run(service.database, wanted, service.file.classes, who, id, "", awaits_of(service))
    return JSONResponse(view.describe_run(service, find_run(service.database, made)), 201)


@declare(WHOLE_RUN)
@needs()
async def show(request: Request) -> Response:
    service = service_of(request)
    row = find_run(service.database, request.path_params["id"])
    return JSONResponse(view.describe_run(service, row, whole=True))


@declare(RUN, problems=(409,))
@needs(OPERATOR)
async def act(request: Request) -> Response:
    service, id = service_of(request), request.path_params["id"]
    change_run(service.database, id, checked_action(request), request.state.who.name)
    return JSONResponse(view.describe_run(service, find_run(service.database, id)))


@declare(RUN, body=ASKED, code=201)
@needs(OPERATOR)
async def clone(request: Request) -> Response:
    """The settings of another run, with those of the body over them."""
    service, table = service_of(request), read_json(await request.body())
    source, id = request.path_params["id"], take_id(table)
    before = without_recommended(service.registry, wanted_of(find_run(service.database, source)), table)
    wanted = from_table(before | {key: merge(before.get(key), value) for key, value in table.items()})
    wanted, who = service.registry.pin(service.registry.complete(wanted)), request.state.who.name
    made = add_run(service.database, wanted, service.file.classes, who, id, source, awaits_of(service))
    return JSONResponse(view.describe_run(service, find_run(service.database, made)), 201)


def without_recommended(registry: Registry, wanted: Wanted, table: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run that is cloned; for another method or number of rounds without the settings that were
    recommended for its own."""
    keys = dict(vars(wanted))
    if any((table.get(key) or keys[key]) != keys[key] for key in ("method", "rounds")):
        own = registry.complete(replace(wanted, settings={})).settings
        keys["settings"] = {key: value for key, value in wanted.settings.items() if own.get(key) != value}
    return keys


def merge(before: Any, after: Any) -> Any:
    """Tables are laid over each other, all else is replaced."""
    return {**before, **after} if isinstance(before, dict) and isinstance(after, dict) else after


@declare(
    Keys({"hospitals": ListOf(HOSPITAL), **NUMBERS}),
    query={
        **QUERY,
        "q": "part of the name of a device or hospital, or of a reason",
        "state": f"only devices of this state: {', '.join(STATES)}",
        "sort": f"order of devices: {', '.join(name for name in view.SORTS if name)}",
    },
)
@needs()
async def list_fleet(request: Request) -> Response:
    """Hospitals, and a page of their devices, which are the rows."""
    service, query = service_of(request), request.query_params
    found = view.list_devices(service, query.get("q", ""), query.get("state", ""), query.get("sort", "hospital"))
    devices, numbers = cut_page(query, found)
    page: dict[str, list[dict[str, Any]]] = {}
    for device in devices:
        page.setdefault(device.hospital, []).append(view.describe_device(device))
    rows = [{**h, "devices": page.get(h["name"], [])} for h in view.describe_hospitals(service)]
    return JSONResponse({"hospitals": rows, **numbers})


@declare(Either((DEVICE, HOSPITAL)))
@needs()
async def why(request: Request) -> Response:
    """What is the matter with one device or hospital."""
    name, hospitals = request.path_params["name"], service_of(request).monitor.list_hospitals()
    if found := view.describe_hospitals(service_of(request), name):
        return JSONResponse(found[0])
    devices = [view.describe_device(d) for hospital in hospitals for d in hospital.devices if d.name == name]
    if not devices and (enrolled := service_of(request).enrolment.find(name)) is not None:
        raise NotFoundError(f"{name!r}: no hospital reports it; it has enrolled here, and is {enrolled['state']}")
    if not devices:
        raise NotFoundError(f"{name!r}: no hospital has reported a device of that name")
    return JSONResponse(devices[0])


@declare(STATUS)
@needs()
async def status(request: Request) -> Response:
    """Is everything all right, and what needs somebody?"""
    service = service_of(request)
    needed = [vars(need) for need in list_needs(service)]
    broken, count, _ = await run_in_threadpool(audit.find_break, service.database)
    about = {"broker": service.monitor.is_connected, "waits": service.supervisor.waits}
    return JSONResponse({"needs": needed, "audit": {"entries": count, "broken": broken}, **about})


@declare(Keys({"schedules": ListOf(SCHEDULE)}))
@needs()
async def list_schedules(request: Request) -> Response:
    """Runs that begin by themselves."""
    found = schedules.list_schedules(service_of(request).database)
    return JSONResponse({"schedules": [describe_schedule(row) for row in found]})


def describe_schedule(row: Row) -> dict[str, Any]:
    return {**row, "days": list(schedules.days_of(row))}


@declare(Keys({"schedules": ListOf(SCHEDULE)}), body=Also(schedules.Asked, {"run": Wanted}), code=201, problems=(409,))
@needs(OPERATOR)
async def add_schedule(request: Request) -> Response:
    """Adds a schedule, or changes it."""
    service = service_of(request)
    asked = from_mapping(schedules.Asked, read_json(await request.body()), "schedule")
    when = schedules.read_occasion(asked, service.monitor.labels())
    wanted = service.registry.complete(from_table(asked.run))
    schedules.add_schedule(service.database, asked.name, wanted, when, service.file.classes, request.state.who.name)
    return JSONResponse({"schedules": [describe_schedule(r) for r in schedules.list_schedules(service.database)]}, 201)


@declare(Keys({"removed": str}))
@needs(OPERATOR)
async def remove_schedule(request: Request) -> Response:
    """Removes a schedule; its runs stay as they are."""
    name = request.path_params["name"]
    schedules.remove_schedule(service_of(request).database, name, request.state.who.name)
    return JSONResponse({"removed": name})


API = [
    Route("/schedules", list_schedules),
    Route("/schedules", add_schedule, methods=["POST"]),
    Route("/schedules/{name}/remove", remove_schedule, methods=["POST"]),
    Route("/status", status),
    Route("/runs", list_all),
    Route("/runs", queue, methods=["POST"]),
    Route("/runs/{id}", show),
    Route("/runs/{id}/clone", clone, methods=["POST"]),
    Route("/runs/{id}/{action}", act, methods=["POST"]),
    Route("/fleet", list_fleet),
    Route("/fleet/{name}", why),
]
