"""GET /api/openapi.json: what the API takes and answers, made of its routes and of what their endpoints declare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from aggregator.service.application.guard import ROLE, needs
from aggregator.service.application.schemas import DECLARED, Declared, Schema, to_schema, without_required
from edge_sdk.version import find_version

PREFIX = "/api/v1"
PROBLEMS = {
    401: "Nobody has signed in, or the token is no longer good.",
    403: "The role, or the scopes of the token, do not include this.",
    404: "There is nothing of that name.",
    409: "That is not possible now.",
    422: "That cannot be used; the error says what would have been right.",
}
PROBLEM = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def make_document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The document, in version 3.1 of OpenAPI."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                paths.setdefault(PREFIX + plain_path(route), {})[method.lower()] = make_operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Auscult", "version": find_version(), "summary": "Runs, fleet and models of a service."},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": PROBLEM},
        },
    }


def plain_path(route: Route) -> str:
    """The path of a route as the document has it: a name of a provider may have a slash, and stands there quoted."""
    return re.sub(r":\w+}", "}", route.path)


def make_operation(route: Route) -> dict[str, Any]:
    """One method of one path."""
    endpoint = route.endpoint
    declared: Declared = getattr(endpoint, DECLARED, Declared(dict))
    names = re.findall(r"{(\w+)}", plain_path(route))
    text = (endpoint.__doc__ or "").strip().splitlines()
    problems = {401, 403, *declared.problems, *([404] if names else [])}
    problems |= {422} if declared.body is not None or declared.query else set()
    found: dict[str, Any] = {
        "operationId": endpoint.__name__,
        "summary": text[0] if text else endpoint.__name__.replace("_", " "),
        "x-role": getattr(endpoint, ROLE, ""),
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            *(describe_parameter(name, words) for name, words in declared.query.items()),
        ],
        "responses": {str(declared.code): {"description": "done", "content": as_json(to_schema(declared.answer))}}
        | {str(code): say_problem(code) for code in sorted(problems)},
    }
    if declared.body is not None:
        whole = declared.body is bytes  # of an object every part has a default
        found["requestBody"] = {"required": whole, "content": describe_body(declared.body)}
    return found


def describe_parameter(name: str, words: str) -> dict[str, Any]:
    """A parameter that may stand in the address, as `declare` has it."""
    name, is_number, most = name.partition("#")
    schema = {"type": "integer", "minimum": 0, "maximum": int(most)} if is_number else {"type": "string"}
    return {"name": name, "in": "query", "required": False, "description": words, "schema": schema}


def describe_body(body: Any) -> Mapping[str, Any]:
    """What a request brings: JSON, or a file."""
    if body is bytes:
        return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return as_json(without_required(to_schema(body)) | {"additionalProperties": False})


def as_json(schema: Schema) -> Mapping[str, Any]:
    return {"application/json": {"schema": schema}}


def say_problem(code: int) -> dict[str, Any]:
    return {"description": PROBLEMS[code], "content": as_json({"$ref": "#/components/schemas/Problem"})}


@needs()
async def show_document(request: Request) -> Response:
    """GET /api/openapi.json."""
    return JSONResponse(make_document(list_routes(request.app)))


def list_routes(app: Starlette) -> list[BaseRoute]:
    """The routes of the API, without its prefix."""
    [api] = [route for route in app.routes if isinstance(route, Mount) and route.path == PREFIX]
    return list(api.routes)
