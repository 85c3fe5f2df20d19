"""The doctor's look at keys for secret sums: can they be used, and are they those that the other side has?"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys, HospitalKeys
from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys, read_public
from edge_sdk.nodes.secrets.masks import aggregator_masks, device_masks, hospital_masks
from edge_sdk.tools.credentials.enrol import NOTE, Desk
from edge_sdk.tools.diagnostics.findings import Finding

WHAT = "masks"
ANEW = "let `auscult fleet replace` make a token, and enrol with that: a device that is replaced has a new key"


def check_masks(
    masks: DeviceKeys | HospitalKeys | AggregatorKeys | None, folder: Path, name: str = "", devices: int = 0
) -> Finding:
    """The finding about a node's keys; None: it has none, and its run's sums are secret.

    Args:
        name: of the node.
        folder: of its settings file, where `auscult enrol` notes what it has asked for.
        devices: of an aggregator: behind all its hospitals.

    Raises:
        AuscultError: a key cannot be used; the sentence says why.
    """
    if masks is None:
        make = "name them under [masks]: auscult provision makes them"
        return Finding(WHAT, False, "the sums of its run are secret, and it has no keys to open them with", make)
    if isinstance(masks, AggregatorKeys):
        return check_list(masks, devices)
    if isinstance(masks, HospitalKeys):
        shared = hospital_masks(masks, "doctor", name)
        for other in shared.known:
            shared.derive(other)
        return Finding(WHAT, True, f"a key of its own, and those of {', '.join(sorted(shared.known))}")
    own = device_masks(masks, "doctor")
    if masks.peers is not None and (found := read_public(masks.peers)).get(name, own.public) != own.public:
        detail = f"{masks.peers} has another key of {name}, one of {len(found)}"
        return Finding(
            WHAT, False, detail, "other devices would not know it: put the key into the file of each of them"
        )
    own.derive(next(iter(own.known)))
    return compare(base64.b64encode(own.public).decode(), read_note(folder))


def check_list(masks: AggregatorKeys, devices: int) -> Finding:
    """The finding about the aggregator's keys. `devices`: behind all its hospitals."""
    keys = aggregator_masks(masks, "doctor")
    for name in keys.known:
        keys.derive(name)
    if len(keys.known) < devices:
        detail = f"{masks.devices} has keys of {len(keys.known)} devices, and the hospitals have {devices}"
        return Finding(WHAT, False, detail, "add a line for each device: a sum with one that has no key is not opened")
    return Finding(WHAT, True, f"a key of its own, and those of {len(keys.known)} devices")


def read_note(folder: Path) -> dict[str, Any]:
    """What `auscult enrol` has noted; empty where the device has not enrolled."""
    try:
        return dict(json.loads((folder / NOTE).read_text()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{folder / NOTE}: cannot be read: {error}") from None


def compare(public: str, note: dict[str, Any]) -> Finding:
    """The finding about a device's key, beside what was enrolled and what the aggregator has."""
    if not note:
        return Finding(WHAT, True, f"a pair of keys; its public half {public} has to be in the aggregator's list")
    if note.get("mask_key") != public:
        return Finding(WHAT, False, "its key is not the one that was enrolled, so no sum with it could be opened", ANEW)
    try:
        known = Desk(note["at"]).ask("state", {"name": note["name"], "claim": note["claim"]}).get("mask_key")
    except (AuscultError, KeyError) as error:
        return Finding(WHAT, None, f"a pair of keys, as enrolled; whether the aggregator has it: {error}")
    if known != public:
        return Finding(WHAT, False, "the aggregator does not have its key, so no sum with it can be opened", ANEW)
    return Finding(WHAT, True, "a pair of keys, and the aggregator has its public half")
