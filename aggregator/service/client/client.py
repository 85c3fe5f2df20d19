"""`auscult runs`, `fleet`, `models` and `schedules`: the service's REST API from the command line.

Where the service is comes from --service, its settings file or the directory that holds how this user reaches it, from
AUSCULT_SERVICE, or is the demonstration in the working directory. AUSCULT_URL and AUSCULT_TOKEN name one on another
machine, with AUSCULT_INSECURE=1 one that is reached without TLS.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.administration.terminal import HEADER, find_user
from aggregator.service.application.formats import duration, figure, measure_of, number
from aggregator.service.application.service import read_connection
from aggregator.service.client import fleet_client, models_client, rollout_client
from aggregator.service.client.enrol_client import add_enrolment
from aggregator.service.client.run_export import add_export
from aggregator.service.server.demo import DIRECTORY
from edge_sdk.arguments import Parser
from edge_sdk.contract.run import ROLLOUT
from edge_sdk.errors import AuscultError, UsageError, say_reason
from edge_sdk.methods.shared.evaluation.reports import ACCURACY
from edge_sdk.nodes.configuration.settings import assigned, read_toml
from edge_sdk.tools.credentials.no_redirects import NoRedirects
from edge_sdk.wire.addresses import is_this_machine

TIMEOUT = 30.0  # seconds
OPENER = urllib.request.build_opener(NoRedirects)
PAGE = 2000  # rows that are asked for at once
ACTIONS = {
    "pause": "let runs end in good order, to be resumed later",
    "resume": "queue paused, stopped or failed runs again: they go on where they were",
    "stop": "end runs in good order",
    "first": "put runs before all others in the queue",
    "approve": "let runs begin that somebody else has asked for",
}


class RefusedError(AuscultError):
    """The service does not do what it was asked for, or cannot be reached."""


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands, and returns its exit code."""
    options = make_parser().parse_args(arguments)
    return int(options.do(options, ServiceClient(*find_service(options))) or 0)


def make_parser() -> argparse.ArgumentParser:
    top = Parser(prog="auscult")
    tools = top.add_subparsers(metavar="command", required=True)
    runs, fleet, models, schedules = (add_tool(tools, name) for name in ("runs", "fleet", "models", "schedules"))
    add(runs, "ls", list_runs, "all runs, the newest first")
    add(runs, "show", show_run, "one run").add_argument("id")
    add(runs, "log", show_log, "the last lines of a run's log").add_argument("id")
    add(runs, "compare", compare_runs, "several runs side by side").add_argument("id", nargs="+")
    add_wanted(add(runs, "start", start_run, "queue a run"))
    command = add(runs, "clone", clone_run, "queue a run like another one")
    command.add_argument("source", help="the run whose settings count where nothing else is said")
    add_wanted(command)
    for action, words in ACTIONS.items():
        add(runs, action, act, words).add_argument("id", nargs="+")
        runs.choices[action].set_defaults(action=action)
    add_export(runs, add)
    command = add(runs, "wait", wait_for, "wait until runs have ended; exit code 1 if one has failed")
    command.add_argument("id", nargs="+")
    fleet_client.add_commands(fleet, add)
    add_enrolment(fleet, add)
    add(schedules, "ls", list_schedules, "runs that begin by themselves")
    command = add(schedules, "add", add_schedule, "let a run begin in a window of the day or after an event")
    command.add_argument("name")
    command.add_argument("--from", dest="begin", default="", metavar="HH:MM", help="in the service's time zone")
    command.add_argument("--to", dest="end", default="", metavar="HH:MM", help="outside of the window it is held")
    command.add_argument("--when", default="", metavar="EVENT", help='such as "1000 new samples", in place of a window')
    command.add_argument("--days", nargs="+", default=[], metavar="DAY", help="mon to sun (default: all)")
    add_wanted(command)
    add(schedules, "remove", remove_schedule, "remove a schedule; its runs stay").add_argument("name")
    models_client.add_commands(models, add)
    rollout_client.add_commands(models, add)
    return top


def add_tool(tools: Any, name: str) -> Any:
    tool = tools.add_parser(name)
    tool.add_argument("--log", choices=["debug", "info", "warning", "error"], help="what is logged here")
    return tool.add_subparsers(metavar="what", required=True)


def add(commands: Any, name: str, do: Any, words: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words)
    command.add_argument("--service", type=Path, metavar="FILE", help="settings of the service, or its directory")
    command.add_argument("--json", action="store_true", help="print what the service answers, as JSON")
    command.set_defaults(do=do)
    return command


def add_wanted(command: argparse.ArgumentParser) -> None:
    command.add_argument("--id", default=argparse.SUPPRESS, help="name of the run (default: made of the method's)")
    for name in ("method", "preset", "bundle"):
        command.add_argument(f"--{name}", default=argparse.SUPPRESS)
    for name in ("rounds", "seed", "evaluate-every"):
        command.add_argument(f"--{name}", type=int, default=argparse.SUPPRESS)
    for name in ("hospitals", "devices"):
        command.add_argument(f"--{name}", nargs="+", default=argparse.SUPPRESS)
    for name in ("set", "settle", "augment", "robust", "uploads", "privacy"):
        command.add_argument(f"--{name}", action="append", metavar="KEY=VALUE", default=argparse.SUPPRESS)


def find_service(options: argparse.Namespace) -> tuple[str, str, str]:
    """Address and token of the service, and who asks it on its own machine."""
    url, token = os.environ.get("AUSCULT_URL"), os.environ.get("AUSCULT_TOKEN")
    if options.service is None and url and token:
        return check_address(url.rstrip("/")), token, ""
    named = options.service or Path(os.environ.get("AUSCULT_SERVICE", DIRECTORY / "service"))
    directory = read_toml(named.resolve(), FleetFile).directory if named.is_file() else named
    return (*read_connection(directory), find_user())


def check_address(url: str) -> str:
    """The address of a service on another machine. Raises UsageError where the token would travel as plain text."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"AUSCULT_URL = {url!r}: expected the address of a service, such as https://fleet.example")
    if parts.scheme == "http" and not is_this_machine(parts.hostname) and os.environ.get("AUSCULT_INSECURE") != "1":
        raise UsageError(
            f"AUSCULT_URL = {url!r}: the token would leave this machine as plain text; use https:// or, where the "
            "network is trusted, AUSCULT_INSECURE=1"
        )
    return url


class ServiceClient:
    """The REST API of one service. `user`: who types this on its machine, for the audit log; "": somebody elsewhere."""

    def __init__(self, url: str, token: str, user: str = ""):
        self.url, self.token = url, token
        self.heads = {HEADER: user} if user else {}

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the service answers; with a body it is asked to do something.

        Raises:
            RefusedError: it does not do it, or cannot be reached.
        """
        return self.send(path, None if body is None else json.dumps(body).encode(), "application/json")

    def ask_for_all(self, key: str, name: str, path: str = "") -> list[dict[str, Any]]:
        """All rows of a list, page by page. One that changes its place meanwhile is there once.

        Args:
            key: of the rows in an answer, and the path of the list where none is named.
            name: key of a row by which it is known.
        """
        found: dict[str, dict[str, Any]] = {}
        offset, total = 0, 1
        while offset < total:
            answer = self.ask(f"{path or f'/{key}'}?limit={PAGE}&offset={offset}")
            offset, total = offset + PAGE, answer["total"]
            found |= {row[name]: row for row in answer[key]}
        return [*found.values()]

    def send(self, path: str, data: bytes | None, kind: str) -> Any:
        """What the service answers to bytes of some kind. Raises RefusedError as `ask`."""
        heads = {"authorization": f"Bearer {self.token}", "content-type": kind} | self.heads
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, heads)
        try:
            with OPENER.open(request, timeout=TIMEOUT) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(read_refusal(error)) from None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            raise RefusedError(f"{self.url}: cannot be reached: {say_reason(error)}; does the service run?") from None


def read_refusal(error: urllib.error.HTTPError) -> str:
    """Why the service does not do something."""
    try:
        return str(json.load(error)["error"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, http.client.HTTPException):
        return f"{error.url}: HTTP {error.code}"


def print_json(options: argparse.Namespace, found: Any) -> bool:
    """Print an answer as JSON, if that was asked for."""
    if options.json:
        print(json.dumps(found, indent=1))
    return bool(options.json)


# Runs ---------------------------------------------------------------------------------------------------------------


def list_runs(options: argparse.Namespace, client: ServiceClient) -> None:
    found = client.ask_for_all("runs", "id")
    if not print_json(options, found):
        print_runs(found)


def print_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    print(f"{'run':<22} {'state':<9} {'method':<12} {'rounds':>9} {'loss':>8} {'global':>8} {'personal':>9}")
    for run in runs:
        rounds = "" if run["method"] == ROLLOUT else f"{run['round']}/{run['rounds']}"
        shares = f"{figure(run, 'global'):>8} {figure(run, 'personal'):>9}"
        shares += f" {measure_of(run)}" if run.get("score", ACCURACY) != ACCURACY else ""
        print(f"{run['id']:<22} {run['state']:<9} {run['method']:<12} {rounds:>9} {number(run['loss']):>8} {shares}")
        if run["waits"]:
            print(f"  {run['waits']}")


def show_run(options: argparse.Namespace, client: ServiceClient) -> None:
    run = client.ask(f"/runs/{options.id}")
    if print_json(options, run):
        return
    print_runs([run])
    if run["hospitals"]:
        print(f"hospitals: {', '.join(f'{name} ({size})' for name, size in run['hospitals'].items())}")
    if devices := run["wanted"].get("devices"):
        print(f"devices: {', '.join(devices)}")
    if run["why"] or run["waits"]:
        print(f"why: {run['why'] or run['waits']}")
    if run["seconds_left"] is not None:
        print(f"{duration(run['seconds_per_round'])} for a round, {duration(run['seconds_left'])} left")
    for complaint in run["complaints"]:
        print(f"{complaint['kind']}: {complaint.get('sender', '')} {complaint.get('reason', '')}")


def show_log(options: argparse.Namespace, client: ServiceClient) -> None:
    log = client.ask(f"/runs/{options.id}")["log"]
    if not print_json(options, log):
        print("\n".join(log))


def compare_runs(options: argparse.Namespace, client: ServiceClient) -> None:
    found = [client.ask(f"/runs/{quote(id)}") for id in options.id]
    if not print_json(options, found):
        print_runs(found)


def read_wanted(options: argparse.Namespace) -> dict[str, Any]:
    """What the options say about a run, as the API wants it."""
    plain = ("id", "method", "preset", "bundle", "rounds", "seed", "evaluate_every", "hospitals", "devices")
    found = {name: getattr(options, name) for name in plain if hasattr(options, name)}
    tables = {"set": "settings"} | {name: name for name in ("settle", "augment", "robust", "uploads", "privacy")}
    return found | {key: assigned(getattr(options, name)) for name, key in tables.items() if hasattr(options, name)}


def start_run(options: argparse.Namespace, client: ServiceClient) -> None:
    run = client.ask("/runs", read_wanted(options))
    if not print_json(options, run):
        print(f"{run['id']} is queued")


def clone_run(options: argparse.Namespace, client: ServiceClient) -> None:
    run = client.ask(f"/runs/{options.source}/clone", read_wanted(options))
    if not print_json(options, run):
        print(f"{run['id']} is queued, a clone of {options.source}")


def act(options: argparse.Namespace, client: ServiceClient) -> None:
    found = [client.ask(f"/runs/{id}/{options.action}", {}) for id in options.id]
    if not print_json(options, found):
        for run in found:
            print(f"{run['id']}: {run['state']}" + (f", will {run['wish']}" if run["wish"] else ""))


def wait_for(options: argparse.Namespace, client: ServiceClient) -> int:
    """Returns 1 if one of the runs has failed."""
    while True:
        found = [client.ask(f"/runs/{quote(id)}") for id in options.id]
        if all(run["state"] in ("finished", "failed", "stopped") for run in found):
            break
        time.sleep(1.0)
    if not print_json(options, found):
        print_runs(found)
    return int(any(run["state"] == "failed" for run in found))


# Schedules ----------------------------------------------------------------------------------------------------------


def list_schedules(options: argparse.Namespace, client: ServiceClient) -> None:
    found = client.ask("/schedules")["schedules"]
    if not print_json(options, found):
        print_schedules(found)


def print_schedules(found: Sequence[Mapping[str, Any]]) -> None:
    for row in found:
        days = " ".join(row["days"]) or "every day"
        latest = f"began last on {row['latest']}" if row["latest"] else "has not begun yet"
        when = f"{row['begin']} to {row['end']} {days:<14}"
        when = f"{row['samples']} new samples".ljust(29) if row["samples"] else when
        print(f"{row['name']:<22} {when} {row['wanted']['method']:<12} {latest}")


def add_schedule(options: argparse.Namespace, client: ServiceClient) -> None:
    table = {key: getattr(options, key) for key in ("name", "begin", "end", "days", "when")}
    found = client.ask("/schedules", table | {"run": read_wanted(options)})["schedules"]
    if not print_json(options, found):
        print_schedules(found)


def remove_schedule(options: argparse.Namespace, client: ServiceClient) -> None:
    found = client.ask(f"/schedules/{quote(options.name)}/remove", {})
    if not print_json(options, found):
        print(f"{found['removed']} is removed; its runs stay as they are")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
