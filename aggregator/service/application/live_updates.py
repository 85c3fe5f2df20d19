"""Tells browsers that something has changed, as server-sent events. The page then asks for itself anew.

An event says that there is news and not what, so one that is missed costs nothing, and nothing is shown by a script
that the server would not show without one.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from aggregator.service.application.guard import find_somebody, needs
from aggregator.service.application.service import FleetService

EVERY = 0.5  # seconds between two looks
BEAT = 15.0  # seconds between two signs of life, so that a proxy does not close the line
MOST, MOST_EACH = 200, 50  # browsers at the same time; of one person


class News:
    """Counts the changes of a service.

    Attributes:
        version: increases with every change.
        listeners: person -> browsers that are listening now.
    """

    def __init__(self, service: FleetService):
        self.service, self.version = service, 0
        self.listeners: Counter[str] = Counter()
        self.ended = False

    def look(self) -> int:
        """The version now."""
        if self.service.database.changed.is_set():
            self.service.database.changed.clear()
            self.version += 1
        return self.version

    def is_full(self, name: str) -> bool:
        """Says whether there is no room for one more browser of somebody."""
        return self.listeners.total() >= MOST or self.listeners[name] >= MOST_EACH

    async def listen(self, name: str, may: Callable[[], bool]) -> AsyncIterator[str]:
        """Events for a browser of somebody, until it goes, or the service ends, or `may` says that it may not any
        more."""
        self.listeners[name] += 1
        try:
            seen, quiet = self.look(), 0.0
            yield f"retry: 2000\nevent: hello\ndata: {seen}\n\n"
            while not self.ended:
                await asyncio.sleep(EVERY)
                quiet += EVERY
                if (now := self.look()) != seen:
                    seen, quiet = now, 0.0
                    if not may():
                        return
                    yield f"event: change\ndata: {now}\n\n"
                elif quiet >= BEAT:
                    quiet = 0.0
                    if not may():
                        return
                    yield ": still here\n\n"
        finally:
            self.listeners[name] -= 1
            if not self.listeners[name]:
                del self.listeners[name]


class ConsoleServer(uvicorn.Server):
    """A web server whose streams of events end when it does: it waits for all answers to be complete."""

    def __init__(self, app: Starlette):
        behind = app.state.service.file.proxied  # only then is it believed who a proxy says has asked
        quiet = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, proxy_headers=behind)
        quiet.timeout_graceful_shutdown = 5
        super().__init__(quiet)
        self.news: News = app.state.news
        self.turned: float | None = None  # time.monotonic() at which its loop went round last

    async def on_tick(self, counter: int) -> bool:
        self.turned = time.monotonic()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.news.ended = True
        await super().shutdown(sockets)


@needs()
async def stream(request: Request) -> Response:
    """GET /events."""
    news: News = request.app.state.news
    name = request.state.who.name
    if news.is_full(name):
        return PlainTextResponse("too many browsers are listening\n", 503)
    events = news.listen(name, lambda: find_somebody(request) is not None)
    return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
