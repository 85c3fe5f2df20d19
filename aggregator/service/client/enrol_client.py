"""Enrolment from the command line: `auscult fleet token`, `requests`, `approve`, `deny`, `suspend` and so on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote

from aggregator.service.application.formats import ago, when
from aggregator.service.fleet.enrolment import APPROVE, DENY, HOURS, REMOVE, REPLACE, SUSPEND

WORDS = {
    APPROVE: "let nodes that have asked belong to the fleet, or those that were suspended again",
    DENY: "refuse nodes that have asked",
    SUSPEND: "lock nodes out until they are approved again",
    REMOVE: "lock nodes out for good: their certificates are taken back",
    REPLACE: "lock out a node that is lost or broken, and print a token for the new one of its name",
}


class EnrolmentClient(Protocol):
    """What asks the service."""

    url: str

    def ask(self, path: str, body: Any = None) -> Any: ...
    def ask_for_all(self, key: str, name: str, path: str = "") -> list[dict[str, Any]]: ...


def add_enrolment(fleet: Any, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands below `auscult fleet`."""
    command = add(fleet, "token", make_token, "print a one-time token with which a device or a hospital enrols")
    command.add_argument("--hospital", help="of the device that it is for; without it the token is for a hospital")
    command.add_argument("--name", help="only for a node of this name")
    command.add_argument("--hours", type=float, default=HOURS, help="until it ends (default: %(default)g)")
    command.add_argument("--approved", action="store_true", help="who brings it needs no further approval")
    add(fleet, "invitations", list_invitations, "one-time tokens that nobody has used yet")
    revoke = add(fleet, "revoke", revoke_invitations, "end one-time tokens, such as one that somebody else has read")
    revoke.add_argument("id", nargs="+", help="as `auscult fleet invitations` prints it")
    add(fleet, "requests", list_nodes, "who was enrolled, or asks to be")
    for action, words in WORDS.items():
        add(fleet, action, decide, words).add_argument("name", nargs="+")
        fleet.choices[action].set_defaults(action=action)


def make_token(options: argparse.Namespace, client: EnrolmentClient) -> None:
    about = {"hospital": options.hospital or "", "name": options.name or "", "hours": options.hours}
    found = client.ask("/enrolment/tokens", {**about, "approved": options.approved})
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print_token(found["token"], options.name or "NAME", client)


def list_invitations(options: argparse.Namespace, client: EnrolmentClient) -> None:
    found = client.ask("/enrolment/tokens")["tokens"]
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for one in found:
        what = one["name"] or f"any {one['kind']}"
        where = f"{what} of {one['hospital']}" if one["hospital"] else what
        approved = "approved at once" if one["approved"] else "to be approved"
        print(f"{one['id']}  {where:<28} {approved:<17} until {when(one['expires'])}, by {one['by']}")


def revoke_invitations(options: argparse.Namespace, client: EnrolmentClient) -> None:
    found = [client.ask(f"/enrolment/tokens/{quote(id)}/revoke", {}) for id in options.id]
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for one in found:
        print(f"{one['revoked']}: nobody can enrol with it any more")


def print_token(token: str, name: str, client: EnrolmentClient) -> None:
    print(f"auscult enrol {name} --token {token} --at {client.url}")


def list_nodes(options: argparse.Namespace, client: EnrolmentClient) -> None:
    found = client.ask_for_all("nodes", "name", "/enrolment")
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for node in found:
        ends = f"until {when(node['ends'])[:10]}" if node["ends"] else ""
        where = node["hospital"] or "hospital"
        print(f"{node['name']:<22} {where:<16} {node['state']:<10} asked {ago(node['asked'])} ago {ends}".rstrip())


def decide(options: argparse.Namespace, client: EnrolmentClient) -> None:
    found = [client.ask(f"/enrolment/{name}/{options.action}", {}) for name in options.name]
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for node in found:
        print(f"{node['name']}: {node['state']}")
        for why in node["waits"]:
            print(f"  {why}")
        if "token" in node:
            print_token(node["token"], node["name"], client)
