"""Who may do what: every route of the console and of the API, tried as nobody, as each role, and with each scope."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.routing import Mount, Route

from aggregator.service.administration.accounts import ADMIN, APPROVER, OPERATOR, ROLES, SCOPES, TOKEN, VIEWER
from aggregator.service.application.guard import ROLE
from tests.aggregator.service.conftest import secret_in

ANYBODY = """
    GET /sign-in, POST /sign-in, GET /sign-in/provider, GET /sign-in/provider/back,
    POST /enrol/v1/request, POST /enrol/v1/state, POST /enrol/v1/renew, POST /enrol/v1/bundle
"""
VIEWERS = """
    GET /, GET /fleet, GET /runs, GET /runs/{id}, GET /compare, GET /models, GET /rollouts, GET /rollouts/{id},
    GET /enrolment, GET /enrolment/token, GET /enrolment/{name}/{action}, GET /audit, GET /settings, GET /events,
    GET /fleet.csv, GET /compare.csv, GET /runs.csv, GET /runs/{id}/rounds.csv, GET /runs/{id}/hops.csv,
    GET /enrolment.csv, GET /models.csv, GET /bundles.csv, GET /rollouts.csv, GET /rollouts/{id}/stages.csv,
    GET /audit.csv, POST /sign-out, GET /metrics, GET /api/openapi.json,
    GET /api/v1/status, GET /api/v1/runs, GET /api/v1/runs/{id}, GET /api/v1/fleet, GET /api/v1/fleet/{name},
    GET /api/v1/models, GET /api/v1/rollouts, GET /api/v1/rollouts/{id}, GET /api/v1/schedules, GET /api/v1/audit,
    GET /api/v1/enrolment
"""
OPERATORS = """
    GET /runs/new, POST /runs, POST /runs/{id}/{action}, POST /schedules/{name}/remove, POST /models,
    POST /models/{sha256}/promote, POST /models/{sha256}/deny, GET /rollouts/new, POST /rollouts,
    POST /rollouts/{id}/rollback, POST /enrolment/token, POST /enrolment/{name}/{action},
    POST /api/v1/runs, POST /api/v1/runs/{id}/clone, POST /api/v1/runs/{id}/{action}, POST /api/v1/schedules,
    POST /api/v1/schedules/{name}/remove, POST /api/v1/models, POST /api/v1/models/{sha256}/promote,
    POST /api/v1/models/{sha256}/deny, POST /api/v1/models/{sha256}/rollout, POST /api/v1/models/{sha256}/evaluate,
    POST /api/v1/rollouts/{id}/rollback, GET /api/v1/enrolment/tokens,
    POST /api/v1/enrolment/tokens, POST /api/v1/enrolment/tokens/{id}/revoke, POST /enrolment/token/{id}/revoke,
    POST /api/v1/enrolment/{name}/{action}
"""
APPROVERS = "POST /models/{sha256}/approve, POST /api/v1/models/{sha256}/approve"
ADMINS = """
    POST /people/{name:path}/remove, POST /tokens/{id}/revoke, GET /api/v1/people,
    POST /api/v1/people/{name:path}/remove, GET /api/v1/tokens, POST /api/v1/tokens/{id}/revoke
"""
ASKED = (("", ANYBODY), (VIEWER, VIEWERS), (OPERATOR, OPERATORS), (APPROVER, APPROVERS), (ADMIN, ADMINS))
TABLE = {route.strip(): role for role, routes in ASKED for route in routes.split(",")}
"""Route -> the least role that may call it; "": whoever reaches the console."""


@pytest.fixture
def database_url() -> str:
    return ""


def list_routes(routes: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each route as the table has it, and the role that its endpoint says."""
    for route in routes:
        if isinstance(route, Mount) and route.routes:
            yield from list_routes(route.routes, prefix + route.path)
        elif isinstance(route, Route):
            for method in (route.methods or set()) - {"HEAD"}:
                yield f"{method} {prefix}{route.path}", getattr(route.endpoint, ROLE, "")


def ask(client: Any, route: str, action: str = "stop", **given: Any) -> Any:
    """The answer to a route whose names are of nothing that there is."""
    method, path = route.split(" ")
    for name in ("{id}", "{name}", "{name:path}", "{sha256}"):
        path = path.replace(name, "nothing")
    return client.request(method, path.replace("{action}", action), **given)


def is_refused(answer: Any) -> bool:
    return answer.status_code in (401, 403) or answer.headers.get("location") == "/sign-in"


def test_the_table_has_every_route_and_its_role(browse: Any) -> None:
    assert dict(list_routes(browse().app.routes)) == TABLE


@pytest.mark.parametrize("role", ["", *ROLES])
def test_each_role_may_do_what_the_table_says_and_no_more(browse: Any, service: Any, role: str) -> None:
    client = browse()
    if role:
        client.headers["authorization"] = f"Bearer {service.people.make_key(TOKEN, 'robot', role, 60.0, 'test')}"
    may = ("", *ROLES[: ROLES.index(role) + 1]) if role else ("",)
    for route, least in TABLE.items():
        if (not least and route.startswith("POST")) or (least in may and route in ("GET /events", "POST /sign-out")):
            continue  # the door, and nodes with tokens of their own, have other tests; a stream has no end
        assert is_refused(ask(client, route)) == (least not in may), route
        if route.startswith("GET") and least not in may:
            assert is_refused(ask(client, route.replace("GET", "HEAD"))), route
    for route in ("POST /runs/{id}/{action}", "POST /api/v1/runs/{id}/{action}"):
        assert is_refused(ask(client, route, "approve")) == (role not in (APPROVER, ADMIN))


def test_a_token_of_a_scope_is_for_that_part_alone(browse: Any, service: Any) -> None:
    for scope in SCOPES:
        key, client = service.people.make_key(TOKEN, "robot", ADMIN, 60.0, "test", [scope]), browse()
        client.headers["authorization"] = f"Bearer {key}"
        for route, least in TABLE.items():
            if least:
                part = route.partition("/api/v1/")[2].partition("/")[0] or ("metrics" if "/metrics" in route else "")
                assert is_refused(ask(client, route)) == (part != scope), (scope, route)


def test_nothing_is_changed_without_the_secret_of_the_session(browse: Any) -> None:
    """Whatever the form or the body is called."""
    client = browse(ADMIN)
    own = secret_in(client.get("/").text)
    for route, least in TABLE.items():
        if least and route.startswith("POST"):
            for given in ({"data": {"csrf": own[:-1]}}, {"json": {"csrf": own}}, {"headers": {"x-csrf": "x"}}, {}):
                answer = ask(client, route, **given)
                said = "brings a token" if "/api/" in route else "The form is too old"
                assert answer.status_code == 403 and said in answer.text, (route, given)
    assert client.get("/").status_code == 200
