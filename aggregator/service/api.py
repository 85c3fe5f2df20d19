"""The REST API, under /api/v1: what the console shows and does, as JSON. The command line uses it (client.py)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.service import audit, view
from aggregator.service.forms import from_table, read_json
from aggregator.service.guard import needs
from aggregator.service.pages import service_of
from aggregator.service.people import OPERATOR
from aggregator.service.runs import NoSuchRunError, add_run, change_run, find_run, list_runs, wanted_of


@needs()
async def list_all(request: Request) -> Response:
    service = service_of(request)
    return JSONResponse({"runs": [view.describe_run(service, row) for row in list_runs(service.database)]})


@needs(OPERATOR)
async def queue(request: Request) -> Response:
    service, table = service_of(request), read_json(await request.body())
    id = str(table.pop("id", ""))
    made = add_run(service.database, from_table(table), service.file.classes, request.state.who.name, id)
    return JSONResponse(view.describe_run(service, find_run(service.database, made)), 201)


@needs()
async def show(request: Request) -> Response:
    service = service_of(request)
    row = find_run(service.database, request.path_params["id"])
    return JSONResponse(view.describe_run(service, row, whole=True))


@needs(OPERATOR)
async def act(request: Request) -> Response:
    service, id = service_of(request), request.path_params["id"]
    change_run(service.database, id, request.path_params["action"], request.state.who.name)
    return JSONResponse(view.describe_run(service, find_run(service.database, id)))


@needs(OPERATOR)
async def clone(request: Request) -> Response:
    """The settings of another run, with those of the body over them."""
    service, table = service_of(request), read_json(await request.body())
    source, id = request.path_params["id"], str(table.pop("id", ""))
    before = vars(wanted_of(find_run(service.database, source)))
    wanted = from_table(before | {key: merge(before.get(key), value) for key, value in table.items()})
    made = add_run(service.database, wanted, service.file.classes, request.state.who.name, id, source)
    return JSONResponse(view.describe_run(service, find_run(service.database, made)), 201)


def merge(before: Any, after: Any) -> Any:
    """Tables are laid over each other, all else is replaced."""
    return {**before, **after} if isinstance(before, dict) and isinstance(after, dict) else after


@needs()
async def list_fleet(request: Request) -> Response:
    hospitals = service_of(request).monitor.list_hospitals()
    return JSONResponse({"hospitals": [view.describe_hospital(hospital) for hospital in hospitals]})


@needs()
async def why(request: Request) -> Response:
    """What is the matter with one device or hospital."""
    name, hospitals = request.path_params["name"], service_of(request).monitor.list_hospitals()
    for hospital in hospitals:
        if hospital.name == name:
            return JSONResponse(view.describe_hospital(hospital, devices=False))
    found = [view.describe_device(d) for hospital in hospitals for d in hospital.devices if d.name == name]
    if not found:
        raise NoSuchRunError(f"{name!r}: no hospital has reported a device of that name")
    return JSONResponse(found[0])


@needs()
async def list_models(request: Request) -> Response:
    return JSONResponse({"models": service_of(request).registry.list_all()})


@needs(OPERATOR)
async def promote(request: Request) -> Response:
    registry, sha256 = service_of(request).registry, request.path_params["sha256"]
    registry.promote(sha256, request.state.who.name)
    return JSONResponse(registry.find(sha256))


@needs()
async def status(request: Request) -> Response:
    """Is everything all right, and what needs somebody?"""
    service = service_of(request)
    needed = [vars(need) for need in view.list_needs(service)]
    broken, count, _ = audit.find_break(service.database)
    about = {"broker": service.monitor.is_connected, "waits": service.supervisor.waits}
    return JSONResponse({"needs": needed, "audit": {"entries": count, "broken": broken}, **about})


ROUTES = [
    Route("/status", status),
    Route("/runs", list_all),
    Route("/runs", queue, methods=["POST"]),
    Route("/runs/{id}", show),
    Route("/runs/{id}/clone", clone, methods=["POST"]),
    Route("/runs/{id}/{action}", act, methods=["POST"]),
    Route("/fleet", list_fleet),
    Route("/fleet/{name}", why),
    Route("/models", list_models),
    Route("/models/{sha256}/promote", promote, methods=["POST"]),
]
