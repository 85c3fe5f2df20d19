"""The page of the REST API, made of its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.routing import Mount

from aggregator.service.api.openapi import PREFIX, make_document
from aggregator.service.server.app import ROUTES

HEAD = """# REST

For whoever writes a client of a service (`auscult serve`). Every request carries a token (`Authorization: Bearer ...`,
from `auscult people token`); answers are JSON, and so are errors: `{"error": "..."}`. The same as
[an OpenAPI document](openapi.json), which each service also has at `/api/openapi.json`.
"""


def rest_document() -> str:
    """The document of the service's own routes."""
    [api] = [route for route in ROUTES if isinstance(route, Mount) and route.path == PREFIX]
    return json.dumps(make_document(api.routes), indent=1)


def rest_page() -> str:
    """A heading for each path, and below it each of its methods."""
    parts = [HEAD]
    for path, operations in json.loads(rest_document())["paths"].items():
        parts.append(f"## {path}\n")
        parts += [describe(method.upper(), path, one) for method, one in operations.items()]
    return "\n".join(parts)


def describe(method: str, path: str, one: Mapping[str, Any]) -> str:
    """One method of a path: what it does, who may, what it takes and what it answers."""
    who = f" For the role {one['x-role']}." if one["x-role"] else ""
    parts = [f"**{method}** `{path}`: {one['summary'].rstrip('.')}.{who}\n"]
    asked = [p for p in one["parameters"] if p["in"] == "query"]
    if asked:
        parts += ["| in the address | what it is |", "|---|---|"]
        parts += [f"| `{p['name']}` | {p['description']} |" for p in asked]
        parts.append("")
    for kind, content in one.get("requestBody", {}).get("content", {}).items():
        parts.append(f"Takes {kind}:\n\n```text\n{show(content['schema'])}\n```\n")
    for code, answer in one["responses"].items():
        schema = answer["content"]["application/json"]["schema"]
        if code.startswith("2"):
            parts.append(f"Answers {code}:\n\n```text\n{show(schema)}\n```\n")
    problems = ", ".join(code for code in one["responses"] if not code.startswith("2"))
    return "\n".join([*parts, f"Or {problems}.\n"])


def show(schema: Mapping[str, Any], indent: str = "") -> str:
    """A schema as a value of its form would look, with types in the place of values; "?": may be left out."""
    inner = f"{indent}  "
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(show(one, indent) for one in options)
    if "enum" in schema:
        return " or ".join(json.dumps(one) for one in schema["enum"])
    if schema.get("properties"):
        required = schema.get("required", ())
        lines = [
            f"{inner}{name}{'' if name in required else '?'}: {show(one, inner)}"
            for name, one in schema["properties"].items()
        ]
        return "\n".join(["{", *lines, f"{indent}}}"])
    if schema.get("type") == "array":
        return f"[{show(schema.get('items', {}), indent)}, ...]"
    if isinstance(more := schema.get("additionalProperties"), Mapping):
        return f"{{name: {show(more, indent)}, ...}}"
    kind = schema.get("type", "anything")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
