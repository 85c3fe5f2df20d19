"""People, tokens and the audit log: who may use the service and what was done with it, in the API and the console.

Somebody can be kept out from here, and nobody let in: people and tokens are made by `auscult people` on the service's
own machine, so that a stolen session makes no way in that outlives it.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from aggregator.service.administration.accounts import ADMIN
from aggregator.service.application.guard import needs
from aggregator.service.application.paging import LAST, MOST, NUMBERS, QUERY, USUAL, read_count
from aggregator.service.application.schemas import Keys, ListOf, declare
from aggregator.service.console.pages import service_of
from aggregator.service.database import audit

PERSON = Keys({"name": str, "role": str, "created": float, "sessions": int})
TOKEN_ROW = Keys({"id": str, "name": str, "role": str, "scopes": list[str], "created": float, "expires": float})
ENTRY = Keys({"seq": int, "at": float, "who": str, "action": str, "subject": str, "detail": dict, "hash": str})


@declare(Keys({"people": ListOf(PERSON)}))
@needs(ADMIN)
async def list_people(request: Request) -> Response:
    """People who may sign in, with the number of their sessions."""
    return JSONResponse({"people": service_of(request).people.list_with_sessions()})


@declare(Keys({"removed": str}), problems=(409,))
@needs(ADMIN)
async def remove_person(request: Request) -> Response:
    """Removes somebody, whose sessions and tokens end at once."""
    name = request.path_params["name"]
    service_of(request).people.remove(name, request.state.who.name, keep_admin=True)
    return JSONResponse({"removed": name})


@declare(Keys({"tokens": ListOf(TOKEN_ROW)}))
@needs(ADMIN)
async def list_tokens(request: Request) -> Response:
    """Tokens that are good now; what a token is itself, nobody keeps."""
    rows = service_of(request).people.list_tokens()
    return JSONResponse({"tokens": [{**row, "scopes": list(filter(None, row["scopes"].split(",")))} for row in rows]})


@declare(Keys({"revoked": str}))
@needs(ADMIN)
async def revoke_token(request: Request) -> Response:
    """Ends a token at once."""
    id = request.path_params["id"]
    service_of(request).people.revoke_token(id, request.state.who.name)
    return JSONResponse({"revoked": id})


@declare(
    Keys({"entries": ListOf(ENTRY), "broken": int | None, **NUMBERS}),
    query={
        **QUERY,
        "q": "part of who, what, of what, or the details",
        f"after#{LAST}": "only entries with a higher number",
    },
)
@needs()
async def list_entries(request: Request) -> Response:
    """Entries of the audit log, the newest first; with `after`, the oldest first, for who reads on where it stopped."""
    service, query = service_of(request), request.query_params
    limit, offset = read_count(query, "limit", USUAL, MOST), read_count(query, "offset", 0, LAST)
    after = read_count(query, "after", 0, LAST) if "after" in query else None
    text, sort = query.get("q", ""), "seq" if after is None else "-seq"
    rows = audit.list_latest(service.database, limit, text, sort, offset, after or 0)
    total = audit.count_entries(service.database, text, after or 0)
    entries: list[dict[str, Any]] = [{**row, "detail": json.loads(row["detail"])} for row in rows]
    broken, _, _ = await run_in_threadpool(audit.find_break, service.database)
    return JSONResponse({"entries": entries, "broken": broken, "total": total, "offset": offset, "limit": limit})


@needs(ADMIN)
async def remove_on_page(request: Request) -> Response:
    """POST /people/NAME/remove."""
    service_of(request).people.remove(request.path_params["name"], request.state.who.name, keep_admin=True)
    return RedirectResponse("/settings#people", 303)


@needs(ADMIN)
async def revoke_on_page(request: Request) -> Response:
    """POST /tokens/ID/revoke."""
    service_of(request).people.revoke_token(request.path_params["id"], request.state.who.name)
    return RedirectResponse("/settings#tokens", 303)


ROUTES = [
    Route("/people", list_people),
    Route("/people/{name:path}/remove", remove_person, methods=["POST"]),
    Route("/tokens", list_tokens),
    Route("/tokens/{id}/revoke", revoke_token, methods=["POST"]),
    Route("/audit", list_entries),
]
PAGE_ROUTES = [
    Route("/people/{name:path}/remove", remove_on_page, methods=["POST"]),
    Route("/tokens/{id}/revoke", revoke_on_page, methods=["POST"]),
]
