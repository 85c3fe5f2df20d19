"""Tables and figures of the console as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.service import view
from aggregator.service.curves import tabulate
from aggregator.service.guard import needs
from aggregator.service.pages import service_of
from aggregator.service.runs import find_run

DEVICES = ("name", "hospital", "state", "heard", "bytes_in", "bytes_out", "late", "why")
CURVES = ("run", "round", "global", "personal", "loss")
MOST_RUNS = 6
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a text by which a spreadsheet takes it for a formula and carries it out."""


def answer_csv(name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Response:
    """Rows as a file that is downloaded."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows({key: quote_formula(value) for key, value in row.items()} for row in rows)
    heads = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(text.getvalue(), media_type="text/csv", headers=heads)


def quote_formula(value: Any) -> Any:
    """A cell that no spreadsheet carries out: reasons and names are written by others."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


@needs()
async def fleet_csv(request: Request) -> Response:
    """GET /fleet.csv: the devices that the page shows with the same query, on all its pages."""
    query = request.query_params
    found = view.list_devices(service_of(request), *(query.get(key, "") for key in ("q", "state", "sort")))
    return answer_csv("fleet", DEVICES, map(view.describe_device, found))


@needs()
async def compare_csv(request: Request) -> Response:
    """GET /compare.csv?run=A&run=B: a row for each round of each run."""
    service = service_of(request)
    ids = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST_RUNS]
    found = [find_run(service.database, id)["id"] for id in ids]
    rows = [{"run": id, **row} for id in found for row in tabulate(service.supervisor.lines_of(id).lines)]
    return answer_csv("compare", CURVES, rows)


ROUTES = [Route("/fleet.csv", fleet_csv), Route("/compare.csv", compare_csv)]
