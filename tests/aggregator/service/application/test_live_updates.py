"""Events for browsers: they end with the session that they are for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aggregator.service.application import live_updates
from aggregator.service.application.live_updates import MOST, MOST_EACH, News


@pytest.fixture
def database_url() -> str:
    return ""


@pytest.mark.parametrize("beat", [15.0, 0.0])
def test_who_may_not_any_more_hears_nothing_more(service: Any, monkeypatch: pytest.MonkeyPatch, beat: float) -> None:
    """A browser that was signed out, or whose owner was removed, heard what went on for as long as it stayed."""
    monkeypatch.setattr(live_updates, "EVERY", 0.001)
    monkeypatch.setattr(live_updates, "BEAT", beat)
    news, may = News(service), [True]

    async def listen() -> list[str]:
        heard = []
        async for event in news.listen("eve", lambda: may[0]):
            heard.append(event.split("\n")[0])
            if len(heard) == 2:
                may[0] = False
            if beat:
                service.database.changed.set()
        return heard

    assert asyncio.run(asyncio.wait_for(listen(), 20)) == ["retry: 2000", "event: change" if beat else ": still here"]
    assert not news.listeners


def test_nobody_alone_takes_the_room_of_all(browse: Any, service: Any) -> None:
    """Somebody who may only read could keep all others' pages from following what happens."""
    client = browse("viewer")
    news = client.app.state.news
    news.listeners["viewer"] = MOST_EACH
    assert client.get("/events").status_code == 503
    assert not news.is_full("ada")
    news.listeners["others"] = MOST - MOST_EACH
    assert news.is_full("ada")
