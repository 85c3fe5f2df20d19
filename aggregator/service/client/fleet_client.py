"""`auscult fleet status`, `ls`, `show` and `why`: how hospitals and devices stand, from the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from aggregator.service.application.formats import ago, size
from aggregator.service.client.rollout_client import Add
from aggregator.service.fleet.monitor import WORDS
from edge_sdk.live.loop.fleet_report import CONNECTED, JOINING

PAGE = 2000  # devices that are asked for at once


def add_commands(fleet: Any, add: Add) -> None:
    """Add the commands to those of `auscult fleet`. `add`: as client.add."""
    add(fleet, "status", print_status, "what needs a person, of all that the service sees")
    add(fleet, "ls", list_fleet, "hospitals and devices")
    add(fleet, "show", show_member, "all that is known of a device or hospital").add_argument("name")
    add(fleet, "why", why, "what is the matter with a device or hospital").add_argument("name")


def print_status(options: argparse.Namespace, client: Any) -> None:
    found = client.ask("/status")
    if options.json:
        return print(json.dumps(found, indent=1))
    for need in found["needs"]:
        print(f"{need['what']}: {need['why']}")
    if found["audit"]["broken"] is not None:
        print(f"The audit log does not hold from entry {found['audit']['broken']} on: auscult audit verify")
    elif not found["needs"]:
        print("nothing needs a person")


def list_fleet(options: argparse.Namespace, client: Any) -> None:
    found = fetch_fleet(client)
    if not client.ask("/status")["broker"]:
        print("the service has no connection to its broker: this is how things were before", file=sys.stderr)
    if options.json:
        return print(json.dumps(found, indent=1))
    for hospital in found:
        print(f"{hospital['name']}: {describe_standing(hospital)}")
        for device in hospital["devices"]:
            is_now = device["state"] in ("here", "training") and not hospital["silent"]
            heard = "now" if is_now else say_heard(device["heard"])
            print(f"  {device['name']:<22} {device['state']:<10} {heard:<14} {device['why']}".rstrip())


def say_heard(at: float | None) -> str:
    return f"{ago(at)} ago" if at else "never"


def describe_standing(hospital: Mapping[str, Any]) -> str:
    """One line of how a hospital stands. Between runs no device takes part: then those that are connected are told."""
    if hospital["run"]:
        return f"{hospital['here']} of {hospital['size']} devices here; {hospital['why'] or 'all right'}"
    connected = hospital["here"] + sum(hospital["counts"].get(state, 0) for state in (CONNECTED, JOINING))
    return f"{connected} of {hospital['size']} devices connected; {hospital['why'] or 'no run is on'}"


def fetch_fleet(client: Any) -> list[dict[str, Any]]:
    """Hospitals with all of their devices, page by page. One that changes its place meanwhile is there once."""
    devices: dict[str, dict[str, dict[str, Any]]] = {}
    offset, total = 0, 1
    while offset < total:
        answer = client.ask(f"/fleet?limit={PAGE}&offset={offset}")
        offset, total = offset + PAGE, answer["total"]
        for hospital in answer["hospitals"]:
            devices.setdefault(hospital["name"], {}).update({d["name"]: d for d in hospital["devices"]})
    return [{**hospital, "devices": [*devices[hospital["name"]].values()]} for hospital in answer["hospitals"]]


def show_member(options: argparse.Namespace, client: Any) -> None:
    found = client.ask(f"/fleet/{quote(options.name)}")
    if options.json:
        return print(json.dumps(found, indent=1))
    for key, value in describe_member(found).items():
        print(f"{key:<12} {value}")


def describe_member(found: Mapping[str, Any]) -> dict[str, str]:
    """What the service tells of a device or a hospital, as lines for people; what it does not tell is left out."""
    is_hospital = "counts" in found
    told: dict[str, Any] = {"hospital" if is_hospital else "device": found["name"]}
    if is_hospital:
        told |= {"run": found["run"], "devices": f"{found['here']} of {found['size']} here"}
        told["states"] = ", ".join(f"{count} {WORDS[state]}" for state, count in found["counts"].items())
        told |= {"version": found["software"]}
        told |= {"strangers": ", ".join(found["strangers"]), "labels": found["labels"]}
    else:
        told |= {"of": found["hospital"], "state": WORDS[found["state"]]}
        told |= {"up": size(found["bytes_in"]), "down": size(found["bytes_out"]), "late in": found["late"] or ""}
        told |= {"version": found["version"], "board": found["board"]}
        told["battery"] = "" if found["battery"] is None else f"{found['battery']} %"
    told |= {"last heard": say_heard(found["heard"]), "why": found["why"]}
    return {key: str(value) for key, value in told.items() if value not in ("", None)}


def why(options: argparse.Namespace, client: Any) -> None:
    found = client.ask(f"/fleet/{quote(options.name)}")
    if options.json:
        return print(json.dumps(found, indent=1))
    well = "all right" if found.get("run", True) or "counts" not in found else "no run is on"
    print(f"{found['name']}: {found.get('state', '')} {found['why'] or well}".replace(":  ", ": "))
