"""As much of JSON Schema as the API's document uses."""

from __future__ import annotations

from typing import Any

TYPES: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "object": dict, "array": list}


def find_faults(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """Where a value is not as a schema has it. Keys that the schema does not name are faults, too."""
    if "anyOf" in schema:
        found = [find_faults(value, one, where) for one in schema["anyOf"]]
        return [] if not all(found) else min(found, key=len)
    kind = schema.get("type")
    if kind == "null":
        return [] if value is None else [f"{where}: {value!r} is not null"]
    if kind == "boolean":
        return [] if isinstance(value, bool) else [f"{where}: {value!r} is no boolean"]
    if kind is not None and (not isinstance(value, TYPES[kind]) or isinstance(value, bool)):
        return [f"{where}: {value!r:.60} is no {kind}"]
    if kind == "array":
        return [fault for i, one in enumerate(value) for fault in find_faults(one, schema["items"], f"{where}[{i}]")]
    return find_in_object(value, schema, where) if kind == "object" else []


def find_in_object(value: dict[str, Any], schema: dict[str, Any], where: str) -> list[str]:
    known, others = schema.get("properties"), schema.get("additionalProperties")
    faults = [f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, one in value.items():
        if known is not None and name in known:
            faults += find_faults(one, known[name], f"{where}.{name}")
        elif others is not None:
            faults += find_faults(one, others, f"{where}.{name}")
        elif known is not None:
            faults.append(f"{where}.{name} is not declared")
    return faults
