"""Who may pass to a page: sessions, tokens, roles; and what every answer says to the browser.

Four checks stand before everything else. The request names this console as its host, so that no foreign page can point
a name of its own here. A form comes from a page of this console. A request is not larger than a form. And what changes
something brings either a token, which a browser sends for nobody, or the secret of its session's forms.
"""

from __future__ import annotations

import dataclasses
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.service.administration import terminal
from aggregator.service.administration.accounts import (
    ADMIN,
    BROWSER_SECONDS,
    SESSION,
    SESSION_SECONDS,
    TOKEN,
    VIEWER,
    Somebody,
)
from aggregator.service.application.service import FleetService
from aggregator.service.database.audit import SERVICE
from aggregator.service.database.refusals import CODES, NOBODY

COOKIE, KNOWN_COOKIE = "auscult-session", "auscult-browser"
"""Of a session; and of a browser in which somebody has signed in, which opens nothing (wrong_passwords.py)."""
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf"
OLD_FORM = "The form is too old, or not of this console. Go back and load the page again."
NO_TOKEN = "What changes something brings a token, Authorization: Bearer TOKEN (auscult people token makes one)."
"""Why a change is refused that brings no secret: to a browser, and to a program."""
ROLE = "role"
"""Attribute of an endpoint: the role that it needs."""
METRICS = "/metrics"
LARGEST_FORM = 256 * 1024  # bytes
LARGEST_BUNDLE = 64 * 1024 * 1024
SIZE = re.compile("[0-9]{1,18}")
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
"""A host as a request names it; anything else could be taken for a path by what makes an address of both."""
OWN_SITE = ("same-origin", "none")
"""What a browser says of a form of this console, or of an address that somebody has typed (Sec-Fetch-Site)."""
UPLOADS = ("/models", "/api/v1/models")
"""Paths that take a compiled model."""
DEMO = "demo"
"""Name of whoever uses an open console, in the audit log."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Of every answer. Styles may stand in the page: charts have colours of their own. Scripts may not."""

Endpoint = Callable[[Request], Awaitable[Response]]


class WebGuard:
    """Lets only requests for this console pass, and gives every answer its headers.

    Args:
        hosts: names and addresses, without port, by which it may be called.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]):
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        heads = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if sum(name.lower() == b"host" for name, _ in scope["headers"]) > 1:
            del heads["host"]  # which one counts, nobody knows

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                found = {name.lower() for name, _ in message["headers"]}
                more = {**HEADERS, **({} if b"cache-control" in found else {"cache-control": "no-store"})}
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in more.items())]
            await send(message)

        largest = LARGEST_BUNDLE if scope["path"] in UPLOADS else LARGEST_FORM
        answer = self.refuse(heads, largest, scope["method"] not in ("GET", "HEAD"))
        if not scope["query_string"].isascii():
            answer = PlainTextResponse("That address is none.\n", 400)
        await (answer or self.app)(scope, receive, send_with_headers)

    def refuse(self, heads: dict[str, str], largest: int, is_change: bool = False) -> Response | None:
        """The answer to a request that may not pass, with a body of `largest` bytes at most; None: it may.

        Args:
            is_change: it may change something. Pages of other sites have nothing to send here then, and not to the
                door either: whoever is signed in under a stranger's name works for the stranger.
        """
        host = HOST.fullmatch(heads.get("host", ""))
        if host is None or host[1].strip("[]").lower() not in self.hosts:
            return PlainTextResponse("This console does not go by that name.\n", 421)
        origin = heads.get("origin", "null")
        is_foreign = is_change and heads.get("sec-fetch-site", "none") not in OWN_SITE
        if is_foreign or (origin != "null" and find_hostname(origin) not in self.hosts):
            return PlainTextResponse("That form is of another site.\n", 403)
        size = heads.get("content-length", "0")
        if "transfer-encoding" in heads or not SIZE.fullmatch(size) or int(size) > largest:
            return PlainTextResponse(f"That is larger than {largest:,} bytes, or does not say how large.\n", 413)
        return None


def find_hostname(address: str) -> str:
    """The host of an address; "": it has none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def find_somebody(request: Request) -> Somebody | None:
    """Who makes a request; None: nobody who is known here."""
    service: FleetService = request.app.state.service
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        found = service.people.find_key(token, TOKEN)
        if found is not None and found.name == SERVICE:
            return dataclasses.replace(found, name=terminal.name_user(request.headers.get(terminal.HEADER, "")))
        return found
    if service.is_open:
        return Somebody(DEMO, ADMIN, service.csrf)
    cookie = request.cookies.get(COOKIE, "")
    return service.people.find_key(cookie, SESSION) if cookie else None


def needs(role: str = VIEWER) -> Callable[[Endpoint], Endpoint]:
    """Decorates an endpoint that only somebody of a role may call; `request.state.who` is who calls it."""

    def decorate(endpoint: Endpoint) -> Endpoint:
        async def guarded(request: Request) -> Response:
            who = find_somebody(request)
            if who is None:
                return ask_to_sign_in(request)
            if not who.may(role):
                return refuse(request, 403, f"{who.name} is a {who.role}; this needs the role {role}.")
            if who.scopes and find_scope(request.scope["path"]) not in who.scopes:
                return refuse(request, 403, f"This token is for {', '.join(who.scopes)} only.")
            if request.method not in ("GET", "HEAD") and not await brings_secret(request, who):
                return refuse(request, 403, NO_TOKEN if wants_json(request) else OLD_FORM)
            request.state.who = who
            return await endpoint(request)

        guarded.__name__, guarded.__doc__ = endpoint.__name__, endpoint.__doc__
        setattr(guarded, ROLE, role)
        return guarded

    return decorate


def find_scope(path: str) -> str:
    """The part of the API that a path is of; "": it is of none."""
    if path == METRICS:
        return "metrics"
    start, _, rest = path.partition("/api/v1/")
    return rest.partition("/")[0] if not start else ""


async def brings_secret(request: Request, who: Somebody) -> bool:
    """A request that changes something brings the secret of its session, or needs none because it has a token."""
    if not who.csrf:
        return True
    given = request.headers.get(CSRF_HEADER, "")
    if not given and not request.headers.get("content-type", "").startswith("application/json"):
        given = str((await request.form()).get(CSRF_FIELD, ""))
    return hmac.compare_digest(given.encode(), who.csrf.encode())


def note_refusal(request: Request, code: int, why: str) -> None:
    """Note in the audit log that a request is refused, if its code says that it may not be."""
    if code in CODES:
        who = getattr(request.state, "who", None) or find_somebody(request)
        name = NOBODY if who is None else who.name
        request.app.state.refusals.note(name, f"{request.method} {request.scope['path']}", code, why)


def note_no_entry(request: Request, why: str) -> None:
    """Note in the audit log that somebody was not let in."""
    request.app.state.refusals.note(NOBODY, f"{request.method} {request.scope['path']}", 401, why)


def give_cookies(answer: Response, session: str, browser: str, secure: bool) -> Response:
    """An answer that begins a session.

    Args:
        browser: what the browser keeps for the next password; "": there was none.
        secure: browsers send the cookies over TLS only.
    """
    answer.set_cookie(COOKIE, session, int(SESSION_SECONDS), httponly=True, samesite="strict", secure=secure)
    if browser:
        answer.set_cookie(KNOWN_COOKIE, browser, int(BROWSER_SECONDS), httponly=True, samesite="strict", secure=secure)
    return answer


def wants_json(request: Request) -> bool:
    return str(request.scope["path"]).startswith("/api/")


def ask_to_sign_in(request: Request) -> Response:
    is_program = request.scope["path"] == METRICS or "authorization" in request.headers
    if wants_json(request) or request.method != "GET" or is_program:
        return refuse(request, 401, "Sign in, or bring a token that is still good.")
    return RedirectResponse("/sign-in", 303)


def refuse(request: Request, code: int, why: str) -> Response:
    """An answer that says why something is not done. What somebody may not do, or not now, is in the audit log too."""
    note_refusal(request, code, why)
    if wants_json(request):
        return JSONResponse({"error": why}, code)
    answer: Response = request.app.state.show(request, "problem.html", code, title="Not possible", why=why)
    return answer
