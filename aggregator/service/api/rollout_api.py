"""The API of rollouts: GET /rollouts and /rollouts/ID, POST /models/SHA256/rollout and /rollouts/ID/rollback."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.service.administration.accounts import OPERATOR
from aggregator.service.api.response_types import MAYBE
from aggregator.service.application.forms import read_json
from aggregator.service.application.guard import needs
from aggregator.service.application.paging import NUMBERS, QUERY, cut_page
from aggregator.service.application.requests import awaits_of, service_of
from aggregator.service.application.rollout_view import describe_rollout
from aggregator.service.application.schemas import Also, Keys, ListOf, declare
from aggregator.service.models.rollouts import (
    WantedEvaluation,
    WantedRollout,
    add_evaluation,
    add_rollback,
    add_rollout,
    find_rollout,
)
from aggregator.service.models.rollouts import list_rollouts as find_all

STAGE = Keys(
    {
        **{name: int for name in ("stage", "upto")},
        **{name: float for name in ("time", "asked", "having", "samples")},
        **{name: MAYBE for name in ("before", "after")},
        "fault": str,
    }
)
ROLLOUT = Keys(
    {
        **{name: str for name in ("id", "state", "wish", "outcome", "why", "undo", "by")},
        **{name: MAYBE for name in ("started", "ended")},
        **{name: float for name in ("having", "failed", "created")},
        **{name: int | None for name in ("target", "of_stages")},
        **{name: list[str] for name in ("actions", "undone_by")},
        "may_undo": bool,
        "only_judge": bool,
        "missed": int,
        "beside": bool,
        "model": dict[str, str] | None,
        "counts": dict[str, float],
        "accuracy": dict[str, float] | None,
        "stages": ListOf(STAGE),
        "wanted": dict,
        "hospitals": dict[str, int],
    }
)


@declare(Keys({"rollouts": ListOf(ROLLOUT), **NUMBERS}), query=QUERY)
@needs()
async def list_rollouts(request: Request) -> Response:
    """Rollouts, the newest first."""
    service = service_of(request)
    rows, numbers = cut_page(request.query_params, find_all(service.database))
    return JSONResponse({"rollouts": [describe_rollout(service, row) for row in rows], **numbers})


@declare(ROLLOUT)
@needs()
async def show_rollout(request: Request) -> Response:
    """How far a rollout is, and what devices found."""
    service = service_of(request)
    return JSONResponse(describe_rollout(service, find_rollout(service.database, request.path_params["id"])))


@declare(ROLLOUT, body=Also(WantedRollout, {"id?": str}), code=201)
@needs(OPERATOR)
async def roll_out(request: Request) -> Response:
    """Roll a model out."""
    service, table = service_of(request), read_json(await request.body())
    model, who = request.path_params["sha256"], request.state.who.name
    id = add_rollout(service.database, service.registry, model, table, who, awaits_of(service))
    return JSONResponse(describe_rollout(service, find_rollout(service.database, id)), 201)


@declare(ROLLOUT, body=Also(WantedEvaluation, {"id?": str}), code=201)
@needs(OPERATOR)
async def evaluate(request: Request) -> Response:
    """Let devices judge a model on their held-out samples, beside a training where hospitals have room for that."""
    service, table = service_of(request), read_json(await request.body())
    model, who = request.path_params["sha256"], request.state.who.name
    id = add_evaluation(service.database, service.registry, model, table, who, awaits_of(service))
    return JSONResponse(describe_rollout(service, find_rollout(service.database, id)), 201)


@declare(ROLLOUT, code=201, problems=(409,))
@needs(OPERATOR)
async def roll_back(request: Request) -> Response:
    """Take a rollout back."""
    service = service_of(request)
    id = add_rollback(service.database, request.path_params["id"], request.state.who.name)
    return JSONResponse(describe_rollout(service, find_rollout(service.database, id)), 201)


API = [
    Route("/rollouts", list_rollouts),
    Route("/rollouts/{id}", show_rollout),
    Route("/rollouts/{id}/rollback", roll_back, methods=["POST"]),
    Route("/models/{sha256}/rollout", roll_out, methods=["POST"]),
    Route("/models/{sha256}/evaluate", evaluate, methods=["POST"]),
]
