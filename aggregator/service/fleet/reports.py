"""Reads hospitals' reports: each is checked as a whole before anything of it is kept or shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edge_sdk.contract.children.device_facts import LONGEST
from edge_sdk.contract.children.limits import MOST_DEVICES
from edge_sdk.contract.run import HEX, ID
from edge_sdk.errors import PeerError
from edge_sdk.live.loop.fleet_report import CHANGES, MOST, STATES, VERSION
from edge_sdk.live.membership.roster import LARGEST
from edge_sdk.wire.codec.bodies import clip
from edge_sdk.wire.topics import MOST_LANES

MOST_STRANGERS = 100
MOST_BUNDLES = 100
TEXT = 500  # characters of a text in a report


def read_report(payload: bytes, sender: str) -> dict[str, Any]:
    """Reads and checks a hospital's report; `part` above 0: it has changes only; `wrong`: what is left out, and why.

    Raises:
        PeerError: it is none.
    """
    try:
        check_name(sender)
        found = json.loads(payload)
        if not isinstance(found, dict) or found.get("version") not in (VERSION, CHANGES) or found.get("node") != sender:
            raise PeerError(f"{sender}: a report of version {VERSION} or {CHANGES} of this node was expected")
        plain: dict[str, Any] = {key: check_text(found[key]) for key in ("run", "refusal", "waiting")}
        counts = {state: check_count(found["counts"][state]) for state in STATES if state in found["counts"]}
        rows = found.get("children", [])
        if not isinstance(rows, list) or len(rows) > MOST:
            raise PeerError(f"{sender}: a list of at most {MOST} devices was expected")
        children = [check_child(row) for row in rows]
        strangers = [check_name(name) for name in found.get("strangers", [])[:MOST_STRANGERS]]
        plain |= {key: check_count(found.get(key, 0)) for key in ("serial", "part")}
        if (plain["part"] > 0) != (found["version"] == CHANGES):
            raise PeerError(f"{sender}: part = {plain['part']} in a report of version {found['version']}")
        roster = None if "roster" not in found else check_count(found["roster"], LARGEST)
        plain |= {"strangers": strangers, "roster": roster}
        plain["evaluations"] = check_count(found.get("evaluations", 0), MOST_LANES)
        plain["trainings"] = max(1, check_count(found.get("trainings", 1), MOST_LANES + 1))
        plain["bundles"] = read_bundles(found.get("bundles", {}))
        plain["labels"], plain["wrong"] = read_labels(found)
        plain["software"] = check_short(found.get("software", ""))
        return {"devices": check_count(found["devices"], MOST_DEVICES), "counts": counts, "children": children, **plain}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PeerError(f"{sender}: its report cannot be read ({type(error).__name__}: {error})") from None


def check_name(name: Any) -> str:
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise ValueError(f"{name!r:.80} is no name")
    return name


def check_child(row: Mapping[str, Any]) -> dict[str, Any]:
    name, state, heard = check_name(row["name"]), row["state"], row["heard"]
    if state not in STATES:
        raise ValueError(f"{state!r:.80} is no state")
    counts = {key: check_count(row[key]) for key in ("bytes_in", "bytes_out", "late")}
    facts: dict[str, Any] = {key: check_short(row[key]) for key in ("version", "board") if key in row}
    facts |= {"run": check_short(row["run"])} if "run" in row else {}
    facts |= {"battery": check_count(row["battery"], 100)} if "battery" in row else {}
    return {"name": name, "state": state, "refusal": check_text(row["refusal"]), **counts, **facts} | {
        "heard": None if heard is None else check_count(heard)
    }


def read_bundles(value: Any) -> dict[str, int]:
    """sha256 of a bundle -> devices that have it. Raises ValueError for what is none."""
    if not isinstance(value, dict) or len(value) > MOST_BUNDLES:
        raise ValueError(f"{value!r:.80} is no table of at most {MOST_BUNDLES} bundles")
    if strange := next((sha for sha in value if not (len(sha) == 64 and HEX.fullmatch(sha))), ""):
        raise ValueError(f"{strange!r:.80} is no sha256")
    return {sha: check_count(count, MOST_DEVICES) for sha, count in value.items()}


def check_short(value: Any) -> str:
    """A text that a device tells of its machine, or a hospital of its own."""
    if type(value) is not str or len(value) > LONGEST or not value.isprintable():
        raise ValueError(f"{value!r:.80} is no printable text of at most {LONGEST} characters")
    return value


def check_count(value: Any, most: int = 2**53) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.80} is no count")
    return value


def read_labels(found: Mapping[str, Any]) -> tuple[int | None, str]:
    """The sum of labels in a report, and what is wrong with it: that costs the labels, and not the report."""
    try:
        return (check_count(found["labels"]) if "labels" in found else None), ""
    except ValueError as error:
        return None, f"labels: {error}"


def check_text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r:.80} is no text")
    return clip(value, TEXT)  # half a character, which JSON can name, could neither be saved nor shown
