"""Sign-in with the provider of the settings: out to it, and back."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from aggregator.service.administration.accounts import SignInError
from aggregator.service.administration.single_sign_on import BACK, BEGUN_FOR, ProviderDesk
from aggregator.service.application.guard import give_cookies, note_no_entry
from aggregator.service.application.requests import service_of
from aggregator.service.console.pages import ask_to_come_again, find_address, show, show_sign_in

STATE_COOKIE = "auscult-provider"
"""Of a browser in which a sign-in is under way. It has to come back from another site, so it is not strict."""


def desk_of(request: Request) -> ProviderDesk:
    """The service's way to its provider. Raises HTTPException if its settings have none."""
    desk: ProviderDesk | None = request.app.state.provider
    if desk is None:
        raise HTTPException(404)
    return desk


async def go_out(request: Request) -> Response:
    """GET /sign-in/provider."""
    desk, door = desk_of(request), request.app.state.provider_door
    if door.is_full(asker := find_address(request)):
        return ask_to_come_again()
    try:
        state, address = await door.check(asker, desk.begin)
    except SignInError as error:
        return show_sign_in(request, str(error), 502)
    answer = RedirectResponse(address, 303)
    secure = service_of(request).file.proxied
    answer.set_cookie(STATE_COOKIE, state, int(BEGUN_FOR), path=BACK, httponly=True, samesite="lax", secure=secure)
    return answer


async def come_back(request: Request) -> Response:
    """GET /sign-in/provider/back."""
    service, query, desk = service_of(request), request.query_params, desk_of(request)
    door = request.app.state.provider_door
    if door.is_full(asker := find_address(request)):
        return ask_to_come_again()
    state, kept = query.get("state", ""), request.cookies.get(STATE_COOKIE, "")
    try:
        if "error" in query:
            raise SignInError("the provider has not signed you in")
        name, role = await door.check(asker, desk.finish, state, kept, query.get("code", ""))
    except SignInError as error:
        note_no_entry(request, str(error))
        return show_sign_in(request, str(error), 401)
    session = service.people.make_session(name, role, asker)
    # A page and no redirect: the cookies are for requests that begin at this site, and this one began at the provider.
    answer = show(request, "signed_in.html", title="Signed in", name=name)
    answer = give_cookies(answer, session, "", service.file.proxied)
    answer.delete_cookie(STATE_COOKIE, path=BACK)
    return answer


PAGES = [Route("/sign-in/provider", go_out), Route(BACK, come_back)]
