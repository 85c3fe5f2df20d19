"""The API of models: GET /models, POST /models, and POST /models/SHA256/promote, approve and deny."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.service.administration.accounts import APPROVER, OPERATOR
from aggregator.service.application.guard import needs
from aggregator.service.application.paging import NUMBERS, QUERY, cut_page
from aggregator.service.application.requests import awaits_of, service_of
from aggregator.service.application.schemas import Also, Keys, ListOf, declare
from aggregator.service.console.bundle_upload import take_bundle
from aggregator.service.database.database import models
from aggregator.service.models import promotion
from aggregator.service.models.registry import Registry

MODEL = Also(models, {"proposed_by": str})
"""A model; `proposed_by`: who wants it to be the one in use, where somebody else has to approve that."""


def describe(registry: Registry, sha256: str) -> dict[str, Any]:
    """A model as JSON has it."""
    row = registry.find(sha256)
    return {**row, "proposed_by": promotion.list_proposals(registry.database).get(row["sha256"], "")}


@declare(Keys({"models": ListOf(MODEL), **NUMBERS}), query=QUERY)
@needs()
async def list_models(request: Request) -> Response:
    """Bundles, and global models of runs."""
    registry = service_of(request).registry
    proposed = promotion.list_proposals(registry.database)
    rows, numbers = cut_page(request.query_params, registry.list_all())
    return JSONResponse({"models": [{**r, "proposed_by": proposed.get(r["sha256"], "")} for r in rows], **numbers})


@declare(MODEL, body=bytes, code=201)
@needs(OPERATOR)
async def add_bundle(request: Request) -> Response:
    """Adds a compiled model, whose file is the body."""
    registry = service_of(request).registry
    sha256 = await take_bundle(registry, request.stream(), request.state.who.name)
    return JSONResponse(describe(registry, sha256), 201)


@declare(MODEL, problems=(409, 422))
@needs(OPERATOR)
async def promote(request: Request) -> Response:
    """Declares a global model the one in use, or proposes that where two people are needed."""
    service = service_of(request)
    sha256, who = request.path_params["sha256"], request.state.who.name
    promotion.promote(service.registry, sha256, who, awaits_of(service))
    return JSONResponse(describe(service.registry, sha256))


@declare(MODEL, problems=(409, 422))
@needs(APPROVER)
async def approve(request: Request) -> Response:
    """Approves what somebody else has proposed."""
    return decide(request, promotion.approve)


@declare(MODEL, problems=(409, 422))
@needs(OPERATOR)
async def deny(request: Request) -> Response:
    """Takes a proposal off the list."""
    return decide(request, promotion.deny)


def decide(request: Request, do: Callable[[Registry, str, str], None]) -> Response:
    registry, sha256 = service_of(request).registry, request.path_params["sha256"]
    do(registry, sha256, request.state.who.name)
    return JSONResponse(describe(registry, sha256))


API = [
    Route("/models", list_models),
    Route("/models", add_bundle, methods=["POST"]),
    Route("/models/{sha256}/promote", promote, methods=["POST"]),
    Route("/models/{sha256}/approve", approve, methods=["POST"]),
    Route("/models/{sha256}/deny", deny, methods=["POST"]),
]
