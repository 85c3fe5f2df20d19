"""Details of an entry of the audit log for people; the log itself and its CSV have them as JSON, under the hashes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

HASH = re.compile(r"[0-9a-f]{64}")
SHOWN = 12  # characters of a hash


def describe_detail(text: str) -> str:
    """Details in words; those that are empty are left out, and hashes are shortened."""
    try:
        found = json.loads(text)
    except ValueError:
        return text  # somebody has changed the log: the page shows it as it is, and that its chain is broken
    return say_value(found) if isinstance(found, Mapping) else text


def say_value(value: Any) -> str:
    """A value of JSON in words."""
    if isinstance(value, Mapping):
        told = [(key, say_value(one)) for key, one in value.items() if one not in ("", None, [], {})]
        return ", ".join(
            f"{key} ({said})" if isinstance(value[key], Mapping) else f"{key} {said}" for key, said in told
        )
    if isinstance(value, list):
        return " and ".join(say_value(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return HASH.sub(lambda found: found[0][:SHOWN], str(value))
