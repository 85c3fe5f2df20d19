"""Tables and figures of the console as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.service.application import view
from aggregator.service.application.guard import needs
from aggregator.service.application.requests import service_of
from aggregator.service.application.rollout_view import describe_rollout
from aggregator.service.console import columns
from aggregator.service.console.enrolment_pages import list_members
from aggregator.service.console.pages import list_past
from aggregator.service.console.tables import ALL, Column, SortedTable
from aggregator.service.database import audit
from aggregator.service.models.registry import BUNDLE, GLOBAL
from aggregator.service.models.rollouts import find_rollout, list_rollouts
from aggregator.service.runs.round_table import TABLE, tabulate
from aggregator.service.runs.runs import find_run

DEVICES = ("name", "hospital", "state", "heard", "bytes_in", "bytes_out", "late", "version", "board", "battery", "why")
CURVES = (
    *("run", "round", "global", "personal", "loss", "score", "global_macro_f1", "personal_macro_f1"),
    *("global_error", "personal_error", "units"),
)
STAGES = ("stage", "upto", "asked", "having", "samples", "before", "after", "time", "fault")
ENTRIES = ("seq", "at", "who", "action", "subject", "detail", "hash")
MOST_RUNS = 6
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of a text by which a spreadsheet takes it for a formula and carries it out; some are wide ones."""


def answer_csv(name: str, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Response:
    """Rows as a file that is downloaded."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore")
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


def answer_table(request: Request, name: str, rows: Iterable[Any], columns: Sequence[Column]) -> Response:
    """A table of the console, as its page has it with the same search and order, on all its pages."""
    table = SortedTable(rows, columns, {**request.query_params, "page": "1"}, size=ALL)
    keys = [column.key for column in columns]
    return answer_csv(name, keys, ({c.key: c.of(row) for c in columns} for row in table.rows))


@needs()
async def run_csv(request: Request) -> Response:
    """GET /runs/ID/rounds.csv."""
    service = service_of(request)
    row = find_run(service.database, request.path_params["id"])
    return answer_csv(row["id"], TABLE, tabulate(service.supervisor.lines_of(row["id"]).lines))


@needs()
async def hops_csv(request: Request) -> Response:
    """GET /runs/ID/hops.csv: bytes of each hop so far."""
    service = service_of(request)
    row = find_run(service.database, request.path_params["id"])
    hops = view.describe_hops(service, service.supervisor.lines_of(row["id"]), row["id"])
    return answer_csv(f"{row['id']}-hops", ("hop", "bytes"), ({"hop": k, "bytes": v} for k, v in hops.items()))


@needs()
async def runs_csv(request: Request) -> Response:
    """GET /runs.csv: past runs."""
    return answer_table(request, "runs", list_past(service_of(request)), columns.PAST_RUNS)


@needs()
async def enrolment_csv(request: Request) -> Response:
    """GET /enrolment.csv."""
    return answer_table(request, "enrolment", list_members(service_of(request)), columns.MEMBERS)


@needs()
async def models_csv(request: Request) -> Response:
    """GET /models.csv: those that were trained in runs."""
    return answer_table(request, "models", service_of(request).registry.list_all(GLOBAL), columns.TRAINED)


@needs()
async def bundles_csv(request: Request) -> Response:
    """GET /bundles.csv."""
    return answer_table(request, "bundles", service_of(request).registry.list_all(BUNDLE), columns.BUNDLES)


@needs()
async def rollouts_csv(request: Request) -> Response:
    """GET /rollouts.csv."""
    service = service_of(request)
    rows = [describe_rollout(service, row) for row in list_rollouts(service.database)]
    return answer_table(request, "rollouts", rows, columns.ROLLOUTS)


@needs()
async def stages_csv(request: Request) -> Response:
    """GET /rollouts/ID/stages.csv."""
    service = service_of(request)
    row = find_rollout(service.database, request.path_params["id"])
    return answer_csv(f"{row['id']}-stages", STAGES, describe_rollout(service, row)["stages"])


@needs()
async def audit_csv(request: Request) -> Response:
    """GET /audit.csv: with the hashes, so that whoever has the file can check the chain too."""
    query = request.query_params
    rows = audit.list_latest(service_of(request).database, ALL, query.get("q", ""), query.get("sort") or "seq")
    return answer_csv("audit", ENTRIES, rows)


PAGES = [
    Route("/fleet.csv", fleet_csv),
    Route("/compare.csv", compare_csv),
    Route("/runs.csv", runs_csv),
    Route("/runs/{id}/rounds.csv", run_csv),
    Route("/runs/{id}/hops.csv", hops_csv),
    Route("/enrolment.csv", enrolment_csv),
    Route("/models.csv", models_csv),
    Route("/bundles.csv", bundles_csv),
    Route("/rollouts.csv", rollouts_csv),
    Route("/rollouts/{id}/stages.csv", stages_csv),
    Route("/audit.csv", audit_csv),
]
