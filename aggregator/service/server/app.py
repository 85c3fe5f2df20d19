"""The web application: routes, templates, and what becomes of errors."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from aggregator.service.administration.settings_file import LOCAL
from aggregator.service.administration.single_sign_on import ProviderDesk
from aggregator.service.api import api, models_api, openapi, people_api, prometheus, rollout_api
from aggregator.service.application import live_updates
from aggregator.service.application.formats import FILTERS, name_zone
from aggregator.service.application.guard import CSRF_FIELD, WebGuard, find_somebody, refuse
from aggregator.service.application.password_checks import Door
from aggregator.service.application.service import FleetService
from aggregator.service.application.view import ACTIONS, STATE_WORDS
from aggregator.service.console import (
    bundle_upload,
    csv_pages,
    enrolment_pages,
    pages,
    provider_pages,
    rollout_pages,
    settings_page,
)
from aggregator.service.console.audit_descriptions import describe_detail
from aggregator.service.database.refusals import RefusalLog
from aggregator.service.runs.runs import NotFoundError, NotPossibleError
from edge_sdk.errors import UsageError
from edge_sdk.version import find_version

log = logging.getLogger("auscult.service")
HERE = Path(__file__).parents[1]  # where templates and static files are
DISK_FULL = "53100"  # as PostgreSQL says it
NAVIGATION = (
    ("/", "Overview"),
    ("/fleet", "Fleet"),
    ("/enrolment", "Enrolment"),
    ("/runs", "Runs"),
    ("/models", "Models"),
    ("/rollouts", "Rollouts"),
    ("/audit", "Audit"),
    ("/settings", "Settings"),
)

# A module names its routes by who asks: API (below /api/v1), PAGES (people), NODES (that enrol).
API = [
    *api.API,
    *models_api.API,
    *rollout_api.API,
    *people_api.API,
    *enrolment_pages.API,
]
ROUTES = [
    *csv_pages.PAGES,
    Route("/", pages.overview),
    Route("/fleet", pages.fleet),
    Route("/runs", pages.runs_page),
    Route("/runs", pages.queue_run, methods=["POST"]),
    Route("/runs/new", pages.new_run),
    Route("/runs/{id}", pages.run_page),
    Route("/runs/{id}/{action}", pages.act_on_run, methods=["POST"]),
    Route("/schedules/{name}/remove", pages.end_schedule, methods=["POST"]),
    Route("/compare", pages.compare),
    Route("/models", pages.models_page),
    *bundle_upload.PAGES,
    Route("/models/{sha256}/promote", pages.promote, methods=["POST"]),
    Route("/models/{sha256}/approve", pages.approve_model, methods=["POST"]),
    Route("/models/{sha256}/deny", pages.deny_model, methods=["POST"]),
    *rollout_pages.PAGES,
    *enrolment_pages.PAGES,
    *enrolment_pages.NODES,
    Route("/audit", pages.audit_page),
    *settings_page.PAGES,
    *people_api.PAGES,
    Route("/sign-in", pages.sign_in_page),
    Route("/sign-in", pages.sign_in, methods=["POST"]),
    *provider_pages.PAGES,
    Route("/sign-out", pages.sign_out, methods=["POST"]),
    Route("/events", live_updates.stream),
    Route("/metrics", prometheus.show_metrics),
    Route("/api/openapi.json", openapi.show_document),
    Mount("/api/v1", routes=API),
    Mount("/static", StaticFiles(directory=HERE / "static")),
]


def make_app(service: FleetService) -> Starlette:
    """The application of a service that has been started."""
    hosts = (*LOCAL, service.file.address, *service.file.hosts)
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(WebGuard, hosts=hosts)],
        exception_handlers={
            UsageError: show_misuse,
            HTTPException: show_http_error,
            ClientDisconnect: show_nothing,
            **OF_THE_DATABASE,
        },
    )
    app.state.service, app.state.news = service, live_updates.News(service)
    app.state.show = Templates(service).show
    app.state.provider = (
        None if service.file.sign_on is None else ProviderDesk(service.file.sign_on, service.people.know)
    )
    app.state.door, app.state.provider_door = Door(), Door()
    app.state.refusals = RefusalLog(service.database)
    return app


class Templates:
    """Pages from templates. What is put into one is escaped, and a name that is not there is an error."""

    def __init__(self, service: FleetService):
        self.environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=select_autoescape(),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters |= FILTERS | {"detail": describe_detail}
        self.environment.globals |= {
            "words": STATE_WORDS,
            "done": ACTIONS,
            "csrf_field": CSRF_FIELD,
            "navigation": NAVIGATION,
        }
        self.environment.globals |= {"version": find_version(), "fleet_name": service.file.name}
        self.environment.globals |= {"is_open": service.is_open, "zone": name_zone}

    def show(self, request: Request, template: str, code: int = 200, **context: Any) -> Response:
        """A page. `who`: who is looking at it, or None."""
        who = getattr(request.state, "who", None) or find_somebody(request)
        text = self.environment.get_template(template).render(path=request.url.path, who=who, **context)
        return HTMLResponse(text, code)


async def show_misuse(request: Request, error: Exception) -> Response:
    """What somebody asked for is not possible: it is said, and nothing has changed."""
    code = 404 if isinstance(error, NotFoundError) else 409 if isinstance(error, NotPossibleError) else 422
    return refuse(request, code, str(error))


async def show_unfit(request: Request, error: Exception) -> Response:
    """A text that a database does not take: PostgreSQL takes no zero bytes."""
    return refuse(request, 422, "Something in this request is no text that can be kept.")


async def show_outage(request: Request, error: Exception) -> Response:
    """The database does not answer now. Nothing has changed, or all that was asked for has."""
    log.error("the database does not answer: %s", str(error).splitlines()[0])
    if is_full(error):
        return refuse(request, 503, "The disk of the database is full: nothing was changed; make room and try again.")
    return refuse(request, 503, "The database does not answer now; try again.")


def is_full(error: Exception) -> bool:
    """The database has no room on its disk."""
    said = getattr(error, "orig", None)
    return getattr(said, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or getattr(said, "sqlstate", "") == DISK_FULL


OF_THE_DATABASE = {sql.exc.DataError: show_unfit, sql.exc.OperationalError: show_outage}


async def show_nothing(request: Request, error: Exception) -> Response:
    """Who asked has gone before all of the request had come; there is nobody to answer, and nothing to say of it."""
    return Response(status_code=400)


async def show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = {404: "There is no such page.", 405: "That page does not take this."}
    answer = refuse(request, error.status_code, said.get(error.status_code, error.detail))
    answer.headers.update(error.headers or {})
    if error.status_code == 405:  # the router names the methods of one route, and a path may have two
        whole = {**request.scope, "root_path": request.scope.get("app_root_path", request.scope.get("root_path", ""))}
        answer.headers["allow"] = ", ".join(sorted(list_methods(request.app.routes, whole)))
    return answer


def list_methods(routes: Iterable[BaseRoute], scope: Scope) -> set[str]:
    """Methods that the path of a request takes."""
    found: set[str] = set()
    for route in routes:
        match, inner = route.matches(scope)
        if match is not Match.NONE and isinstance(route, Mount):
            found |= list_methods(route.routes, {**scope, **inner})
        elif match is not Match.NONE and isinstance(route, Route):
            found |= route.methods or set()
    return found
