"""Enrolment on the web: what nodes ask (without a person, with a token), the page for people, and the REST API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from aggregator.service.administration.accounts import OPERATOR
from aggregator.service.application.forms import read_json
from aggregator.service.application.guard import needs, note_refusal
from aggregator.service.application.paging import NUMBERS, QUERY, cut_page
from aggregator.service.application.requests import service_of
from aggregator.service.application.schemas import Either, Keys, ListOf, declare
from aggregator.service.application.service import FleetService
from aggregator.service.console import columns
from aggregator.service.console.pages import show
from aggregator.service.console.tables import SortedTable
from aggregator.service.fleet.enrolment import HOURS, WAITING, TokenRefusedError
from aggregator.service.fleet.enrolment_workflow import choices_for, describe_node
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import from_mapping

LONGEST = 32_000  # bytes of a node's request

# Nodes ----------------------------------------------------------------------------------------------------------------


async def answer(request: Request, what: str) -> Response:
    """The answer to a node: JSON, also where it is refused."""
    body = await request.body()
    try:
        if len(body) > LONGEST:
            raise UsageError(f"{len(body)} bytes, at most {LONGEST}")
        do = getattr(service_of(request).desk, what)
        return JSONResponse(await run_in_threadpool(do, read_json(body)))
    except UsageError as error:
        code = 403 if isinstance(error, TokenRefusedError) else 422
        note_refusal(request, code, str(error))
        return JSONResponse({"error": str(error)}, code)


async def take_request(request: Request) -> Response:
    """POST /enrol/v1/request."""
    return await answer(request, "ask")


async def tell_state(request: Request) -> Response:
    """POST /enrol/v1/state."""
    return await answer(request, "fetch")


async def renew(request: Request) -> Response:
    """POST /enrol/v1/renew."""
    return await answer(request, "renew")


async def send_bundle(request: Request) -> Response:
    """POST /enrol/v1/bundle."""
    try:
        return FileResponse(service_of(request).desk.find_bundle(read_json(await request.body())))
    except UsageError as error:
        note_refusal(request, 403, str(error))
        return JSONResponse({"error": str(error)}, 403)


NODES = [
    Route("/enrol/v1/request", take_request, methods=["POST"]),
    Route("/enrol/v1/state", tell_state, methods=["POST"]),
    Route("/enrol/v1/renew", renew, methods=["POST"]),
    Route("/enrol/v1/bundle", send_bundle, methods=["POST"]),
]

# The page -------------------------------------------------------------------------------------------------------------


@needs()
async def page(request: Request) -> Response:
    """GET /enrolment."""
    return show_page(request)


def show_page(request: Request, token: str = "", note: str = "", code: int = 200) -> Response:
    """The page. `token`: one that was just made, which is shown this once."""
    service = service_of(request)
    return show(
        request,
        "enrolment.html",
        code,
        title="Enrolment",
        table=SortedTable(list_members(service), columns.MEMBERS, request.query_params),
        token=token,
        invitations=service.enrolment.list_tokens(),
        note=note,
        url=str(request.base_url).rstrip("/"),
        hospitals=[h.name for h in service.monitor.list_hospitals()],
    )


def list_members(service: FleetService) -> list[dict[str, Any]]:
    """Who was enrolled or asks to be, those that ask first."""
    rows = [{**describe_node(row), "choices": choices_for(row)} for row in service.enrolment.list_all()]
    return sorted(rows, key=lambda row: (row["state"] != WAITING, row["hospital"], row["name"]))


@needs(OPERATOR)
async def make_token(request: Request) -> Response:
    """POST /enrolment/token."""
    form = await request.form()
    try:
        token = await issue(request, read_invitation(form))
    except UsageError as error:
        return show_page(request, note=str(error), code=422)
    return show_page(request, token=token)


@needs(OPERATOR)
async def revoke(request: Request) -> Response:
    """POST /enrolment/token/ID/revoke."""
    end_invitation(request)
    return RedirectResponse("/enrolment", 303)


def end_invitation(request: Request) -> str:
    """Ends the invitation that the path names, and returns its id."""
    id = str(request.path_params["id"])
    service_of(request).enrolment.revoke_token(id, request.state.who.name)
    return id


@needs(OPERATOR)
async def decide(request: Request) -> Response:
    """POST /enrolment/NAME/ACTION."""
    found = await carry_out(request)
    if not (found["waits"] or "token" in found):
        return RedirectResponse("/enrolment", 303)
    return show_page(request, token=found.get("token", ""), note=" ".join(found["waits"]))


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What a one-time token is to be for; see `Enrolment.make_token`."""

    hospital: str = ""
    name: str = ""
    hours: float = HOURS
    approved: bool = False


def read_invitation(form: Mapping[str, Any]) -> Invitation:
    """What the form of the page asks for. Raises UsageError for hours that are no number."""
    hospital, name, hours = (str(form.get(key, "")).strip() for key in ("hospital", "name", "hours"))
    try:
        told = float(hours or HOURS)
    except ValueError:
        raise UsageError(f"hours = {hours!r:.40}: expected a number") from None
    return Invitation(hospital=hospital, name=name, hours=told, approved=bool(form.get("approved")))


async def issue(request: Request, asked: Invitation) -> str:
    """A token, as it is asked for. Raises UsageError for what cannot be used."""
    who, desk = request.state.who.name, service_of(request).desk
    about = (asked.hospital, asked.name, asked.hours, asked.approved)
    return str(await run_in_threadpool(desk.make_token, who, *about))


async def carry_out(request: Request) -> dict[str, Any]:
    """Do what the path says."""
    name, action = request.path_params["name"], request.path_params["action"]
    found: dict[str, Any] = await run_in_threadpool(
        service_of(request).desk.decide, name, action, request.state.who.name
    )
    return found


PAGES = [
    Route("/enrolment", page),
    Route("/enrolment/token", page),  # a page that shows a token follows what happens like any other
    Route("/enrolment/token", make_token, methods=["POST"]),
    Route("/enrolment/token/{id}/revoke", revoke, methods=["POST"]),
    Route("/enrolment/{name}/{action}", page),
    Route("/enrolment/{name}/{action}", decide, methods=["POST"]),
]

# The API --------------------------------------------------------------------------------------------------------------


NODE = Keys(
    {"name": str, "kind": str, "hospital": str, "state": str, "key": str, "mask_key": str, "by": str, "asked": float}
    | {"ends": Either((float, None)), "decided": Either((float, None)), "token?": str}
    | {"waits?": ListOf(str)}
)


@declare(Keys({"nodes": ListOf(NODE), **NUMBERS}), query=QUERY)
@needs()
async def list_nodes(request: Request) -> Response:
    """Hospitals and devices that were enrolled, and those that ask to be."""
    rows, numbers = cut_page(request.query_params, service_of(request).enrolment.list_all())
    return JSONResponse({"nodes": [describe_node(row) for row in rows], **numbers})


@declare(Keys({"token": str}), body=Invitation, code=201)
@needs(OPERATOR)
async def api_token(request: Request) -> Response:
    """Makes a one-time token, for a device of `hospital` or, without one, for a hospital."""
    asked = from_mapping(Invitation, read_json(await request.body()), "token")
    return JSONResponse({"token": await issue(request, asked)}, 201)


INVITATION = Keys(
    {"id": str, "kind": str, "hospital": str, "name": str, "approved": bool, "by": str, "created": float}
    | {"expires": float}
)


@declare(Keys({"tokens": ListOf(INVITATION)}))
@needs(OPERATOR)
async def list_invitations(request: Request) -> Response:
    """One-time tokens that somebody can still enrol with; what a token is itself, nobody keeps."""
    rows = service_of(request).enrolment.list_tokens()
    return JSONResponse({"tokens": [{"hospital": row.pop("parent"), **row} for row in rows]})


@declare(Keys({"revoked": str}))
@needs(OPERATOR)
async def revoke_invitation(request: Request) -> Response:
    """Ends a one-time token that nobody has used."""
    return JSONResponse({"revoked": end_invitation(request)})


@declare(NODE, problems=(409,))
@needs(OPERATOR)
async def api_decide(request: Request) -> Response:
    """Approves, denies, suspends, removes or replaces a node; `token` is for the new one that takes its place. `waits`
    says which runs under way go on as if nothing had changed, and why."""
    return JSONResponse(await carry_out(request))


API = [
    Route("/enrolment", list_nodes),
    Route("/enrolment/tokens", list_invitations),
    Route("/enrolment/tokens", api_token, methods=["POST"]),
    Route("/enrolment/tokens/{id}/revoke", revoke_invitation, methods=["POST"]),
    Route("/enrolment/{name}/{action}", api_decide, methods=["POST"]),
]
