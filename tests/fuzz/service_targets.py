"""What the service reads of others, as targets: requests to its console and API, reports, and rosters on their way out.

Requests go through the whole application, from the guard to the database, without a socket: an input is a request's
method and target on a line of its own, and its body. Any answer below 500 is one; an exception is a fault.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aggregator.service.administration.accounts import ADMIN, TOKEN
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.application.service import FleetService
from aggregator.service.fleet.monitor import to_hospital, to_report
from aggregator.service.fleet.reports import read_report
from aggregator.service.server.app import make_app
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.fleet_report import STATES
from edge_sdk.tools.credentials.own_key import LibraryTool

WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
CLASSES = tuple(f"c{i}" for i in range(11))
CLAIM = "c" * 40


# Requests --------------------------------------------------------------------------------------------------------
@cache
def console() -> tuple[Any, str, dict[str, str]]:
    """The application of a service in a directory of its own, the token of somebody who may do everything, and what a
    device brings that asks to be enrolled."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")
    atexit.register(folder.cleanup)
    path = Path(folder.name)
    about = {"name": "cloud", "broker": "mqtt://127.0.0.1:1", "directory": path, "database": ""}
    service = FleetService(FleetFile(**about, bundles=(WRIST,), classes=CLASSES, hospitals={"north": 2}), is_open=False)
    tool, key = LibraryTool(), path / "watch-7.key"
    tool.make_key(key)
    asked = {"name": "watch-7", "token": service.desk.make_token("ada", "north"), "claim": CLAIM}
    asked |= {"request": tool.make_request(key, "watch-7")}
    return make_app(service), service.people.make_key(TOKEN, "ada", ADMIN, 86400.0, "ada"), asked


def check_request(data: bytes) -> None:
    """A request is answered. Raises UsageError where the answer says no."""
    line, _, body = data.partition(b"\n")
    method, _, target = line.decode("latin-1").partition(" ")
    code = asyncio.run(answer(method, target, body))
    assert 200 <= code < 500, code
    if code >= 400:
        raise UsageError(f"{code}")


async def answer(method: str, target: str, body: bytes) -> int:
    """Status of the answer to a request, as a server would hand it to the application."""
    app, token, _ = console()
    path, _, query = target.partition("?")
    kind = b"application/json" if path.startswith(("/api", "/enrol/")) else b"application/x-www-form-urlencoded"
    heads = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())]
    heads += [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"}
    scope |= {"path": unquote(path), "raw_path": path.encode(), "query_string": query.encode("latin-1")}
    scope |= {"root_path": "", "headers": heads, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
    said, parts = [], [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        said.append(message.get("status"))

    await app(scope, receive, send)
    return int(said[0])


def request_seeds() -> list[bytes]:
    run = {"method": "fedavg", "rounds": 2, "settings": {"eta_l": 0.05}, "hospitals": ["north"]}
    asked = console()[2]
    node = {"name": "watch-7", "claim": CLAIM}
    bodies = {
        "POST /enrol/v1/request": asked,
        "POST /enrol/v1/state": node,
        "POST /api/v1/runs": run,
        "POST /api/v1/schedules": {"name": "night", "begin": "01:00", "end": "05:00", "days": ["mon"], "run": run},
        "POST /api/v1/enrolment/tokens": {"hospital": "north", "name": "", "hours": 2, "approved": False},
    }
    forms = {
        "POST /runs": "method=fedavg&preset=recommended&rounds=2&seed=1&settings=eta_l%20%3D%200.05&hospitals=north",
        "POST /enrolment/token": "hospital=north&hours=2&approved=on",
    }
    read = ("/fleet?q=a&state=here&sort=-name", "/audit?before=3", "/api/v1/fleet?limit=5&offset=1", "/api/v1/runs")
    found = [f"{line}\n{json.dumps(body)}" for line, body in bodies.items()]
    found += [f"{line}\n{body}" for line, body in forms.items()] + [f"GET {target}\n" for target in read]
    return [one.encode() for one in found]


# Reports ---------------------------------------------------------------------------------------------------------
def check_report(data: bytes) -> None:
    """A report is refused, or what is known by it can be kept, and says the same when it is read from there."""
    report = read_report(data, "north")
    found = to_hospital("north", 5.0, report)
    kept = json.dumps(to_report(found)).encode()
    assert to_hospital("north", 5.0, json.loads(kept)) == found
    assert all(state in STATES for state in found.counts) and found.here >= 0


def report_seeds() -> list[bytes]:
    row = {"name": "a", "state": "here", "refusal": "", "heard": 5, "bytes_in": 1, "bytes_out": 2, "late": 0}
    head = {"node": "north", "run": "r", "refusal": "no bundle", "waiting": "", "devices": 2, "counts": {"here": 1}}
    rows = {"children": [row, {**row, "name": "b", "state": "away", "heard": None}], "strangers": ["watch-9"]}
    whole = {**head, "version": 1, **rows, "serial": 7, "part": 0, "roster": 3, "labels": 7}
    changes = {**head, "version": 2, "children": [row], "serial": 7, "part": 1}
    return [json.dumps(one).encode() for one in (whole, changes)]
