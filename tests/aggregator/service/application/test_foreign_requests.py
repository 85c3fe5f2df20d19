"""Requests that another site's page sends, or that name this console in a way that is read in two ways."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from aggregator.service.administration.accounts import SESSION
from tests.aggregator.service.conftest import PASSWORD, secret_in


@pytest.fixture
def database_url() -> str:
    return ""


@pytest.mark.parametrize(
    "heads",
    [
        {"origin": "null", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example"},
        {"origin": "http://["},
    ],
    ids=str,
)
def test_another_sites_page_signs_nobody_in(browse: Any, service: Any, heads: dict[str, str]) -> None:
    """A page in a sandbox has no origin that it could be told by: it signed its visitor in under its own name here, and
    whatever that person then did was done under a stranger's name."""
    service.people.add("eve", "viewer", PASSWORD, "test")
    answer = browse().post("/sign-in", data={"name": "eve", "password": PASSWORD}, headers=heads)
    assert answer.status_code == 403 and "set-cookie" not in answer.headers


def test_a_form_of_this_console_and_a_link_of_another_site_pass(browse: Any, service: Any) -> None:
    service.people.add("eve", "viewer", PASSWORD, "test")
    own = {"origin": "null", "sec-fetch-site": "same-origin"}  # without a referrer browsers name no origin
    assert browse().post("/sign-in", data={"name": "eve", "password": PASSWORD}, headers=own).status_code == 303
    assert browse().get("/sign-in", headers={"sec-fetch-site": "cross-site"}).status_code == 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1:80/metrics?", "127.0.0.1:80#", "[127.0.0.1]:x", "127.0.0.1:", "localhost:/a", "[::1]:80@evil"]
)
def test_a_host_with_something_behind_it_is_none(browse: Any, host: str) -> None:
    """Whoever makes one address of host and path would read another path than the one that is answered, and a token
    for one part of the API was looked up by such an address."""
    assert browse().get("/sign-in", headers={"host": host}).status_code == 421


def test_a_token_is_for_the_path_that_is_answered(browse: Any, service: Any) -> None:
    token = service.people.make_key("token", "robot", "admin", 60.0, "test", ["metrics"])
    for path in ("/api/v1/people", "/api/v1/people%3f/metrics", "/api/v1/people%23", "/metrics/../api/v1/people"):
        answer = browse().get(path, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code in (403, 404), path
    assert browse().get("/metrics", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_two_hosts_are_none(browse: Any) -> None:
    heads = [("host", "evil.example"), ("host", "127.0.0.1")]
    assert browse().get("/sign-in", headers=heads).status_code == 421


@pytest.mark.parametrize("name", ["CLINIC/ada", "ada?x", "ada#1", "50%", "../runs/mine/stop?a", 'a"><b>'])
def test_whatever_a_provider_calls_somebody_that_person_can_be_removed(browse: Any, service: Any, name: str) -> None:
    """The button of such a name led to another page, which then did what that page does; the API found nobody."""
    admin, name = browse("admin"), f"{name} (id.example)"
    service.people.make_key(SESSION, name, "operator", 60.0, name)
    page = admin.get("/settings").text
    said = re.search(r'action="([^"]+)"><input [^>]+><button aria-label="Remove ' + re.escape(html_of(name)), page)
    assert said is not None
    answer = admin.post(html.unescape(said[1]), data={"csrf": secret_in(page)})
    assert answer.status_code == 303 and answer.headers["location"] == "/settings#people"
    assert name not in [row["name"] for row in service.people.list_with_sessions()]


def html_of(text: str) -> str:
    """A text as templates write it."""
    from markupsafe import escape

    return str(escape(text))
