"""`auscult serve`, `people`, `audit` and `service`: what is done on the service's own machine."""

from __future__ import annotations

import argparse
import dataclasses
import getpass
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from aggregator.service.administration.accounts import ROLES, SCOPES, TOKEN, TOKEN_DAYS, People
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.administration.terminal import find_user, name_user
from aggregator.service.application.alerts import list_needs
from aggregator.service.application.live_updates import ConsoleServer
from aggregator.service.application.service import FleetService
from aggregator.service.database import audit
from aggregator.service.database.database import Database, database_in
from aggregator.service.database.webhooks import WebhookSender
from aggregator.service.server.app import make_app
from aggregator.service.server.backup import back_up, restore
from aggregator.service.server.demo import DIRECTORY, Demo, queue_first_runs
from aggregator.service.server.watchdog import ServiceWatchdog
from edge_sdk.arguments import Parser
from edge_sdk.atomic import make_private_directory
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.log_guard import guard_log
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.nodes.daemon.serve import is_orphaned
from edge_sdk.nodes.daemon.watchdog import notify
from edge_sdk.tools.backup_command import ENCRYPTED, PLAIN
from edge_sdk.tools.backups.sealed_file import read_passphrase

log = logging.getLogger("auscult.service")
LISTEN = "127.0.0.1:8080"
PORT = "broker-port"
"""File of a demonstration: the port of its broker, which its nodes know."""


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands, and returns its exit code."""
    options = make_parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    guard_log(log)  # hospitals, devices and strangers have a part in what stands there
    logging.getLogger().setLevel((options.log or ("info" if options.do is serve else "warning")).upper())
    return int(options.do(options) or 0)


def make_parser() -> argparse.ArgumentParser:
    top = Parser(prog="auscult")
    commands = top.add_subparsers(metavar="command", required=True)
    words = "run the aggregator as a service, with its console in the browser"
    command = add(commands, "serve", serve, words)
    command.add_argument("file", type=Path, nargs="?", help="settings, TOML")
    command.add_argument(
        "--demo", action="store_true", help="a broker, hospitals and devices on generated recordings too"
    )
    command.add_argument(
        "--directory", type=Path, default=DIRECTORY, help="of the demonstration (default: %(default)s)"
    )
    command.add_argument("--listen", help="address and port of the console (default: 127.0.0.1:8080)")
    command.add_argument("--database", metavar="URL", help="of the demonstration on PostgreSQL (default: SQLite)")
    command = add(commands, "people", change_people, "who may use the console")
    command.add_argument("what", choices=["ls", "add", "remove", "token"])
    command.add_argument("name", nargs="?")
    command.add_argument("--role", choices=ROLES, default=ROLES[0])
    command.add_argument("--scope", action="append", choices=SCOPES, default=[], help="part of the API for a token")
    command.add_argument("--days", type=float, default=TOKEN_DAYS, help="until a token ends (default: %(default)g)")
    command.add_argument("--service", type=Path, required=True, metavar="FILE", help="settings of the service")
    command = add(commands, "audit", verify_audit, "check the chain of hashes of the audit log")
    command.add_argument("what", choices=["verify"])
    command.add_argument("--service", type=Path, required=True, metavar="FILE", help="settings of the service")
    command = add(commands, "service", keep_service, "back up a service while it runs, or put a backup back")
    command.add_argument("what", choices=["backup", "restore"])
    command.add_argument("file", type=Path, help="the backup; it holds password hashes, keys and models: keep it safe")
    command.add_argument("--passphrase-file", type=Path, metavar="FILE", help="encrypts it with the first line of FILE")
    command.add_argument("--service", type=Path, required=True, metavar="FILE", help="settings of the service")
    return top


def add(commands: Any, name: str, do: Any, words: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words)
    command.add_argument("--log", choices=["debug", "info", "warning", "error"], help="what is logged")
    command.set_defaults(do=do)
    return command


# The service ------------------------------------------------------------------------------------------------------


def serve(options: argparse.Namespace) -> None:
    """`auscult serve`.

    Raises:
        UsageError: the settings, or what they name, cannot be used.
    """
    if options.demo == (options.file is not None):
        raise UsageError("serve: name a settings file, or say --demo for a fleet to look at")
    if options.database and not options.demo:
        raise UsageError("--database is for a demonstration; a settings file says it as database = ...")
    with ExitStack() as stack:
        demo = None
        if options.demo:
            demo = Demo(options.directory, options.listen or LISTEN, read_port(options), options.database or "")
            stack.enter_context(demo)
            (options.directory / PORT).write_text(f"{demo.broker.port}\n")
        file = demo.file if demo is not None else read_settings(options.file, options.listen)
        line = listen(file)
        stack.callback(line.close)
        service = FleetService(file, is_open=demo is not None)
        stack.callback(service.stop)
        url = f"http://{file.address}:{line.getsockname()[1]}"
        service.write_connection(url)
        service.note_start()
        service.start()
        stack.callback(start_webhooks(service).stop)
        if demo is not None:
            queue_first_runs(service, log.info)
            demo.start_nodes()
        run_web(service, line, url)
        if service.supervisor.displaced:
            raise UsageError(service.supervisor.displaced)


def start_webhooks(service: FleetService) -> WebhookSender:
    """Tells the receivers of the settings; of what needs a person without the reasons, in which there are times."""
    file = service.file
    sender = WebhookSender(file.name, service.database, file.webhooks, lambda: [n.what for n in list_needs(service)])
    service.untold = sender.untold
    sender.start()
    return sender


def read_port(options: argparse.Namespace) -> int | None:
    """Port of the demonstration's broker when it ran before, if that is free now."""
    try:
        port = int((options.directory / PORT).read_text())
        with socket.create_server(("127.0.0.1", port)):
            return port
    except (OSError, ValueError):
        return None


def read_settings(path: Path, listen: str | None) -> FleetFile:
    """The settings of a service; `listen` counts more than what they say."""
    file = read_toml(path.resolve(), FleetFile)
    return file if listen is None else dataclasses.replace(file, listen=listen)


def listen(file: FleetFile) -> socket.socket:
    """The console's socket, taken before anything is started. Raises UsageError if it cannot be had."""
    family = socket.AF_INET6 if ":" in file.address else socket.AF_INET
    try:
        return socket.create_server((file.address, file.port), family=family)
    except OSError as error:
        raise UsageError(f"listen = {file.listen!r}: cannot be listened on: {error.strerror}") from error


def run_web(service: FleetService, line: socket.socket, url: str) -> None:
    """Serve the console until SIGTERM, SIGINT, or the end of the process that started this one and wants that."""
    server = ConsoleServer(make_app(service))
    ended = threading.Event()

    watchdog = ServiceWatchdog(lambda: {"web": server.turned, "supervisor": service.supervisor.turned})

    def watch() -> None:
        while not ended.wait(0.5):
            watchdog()
            if is_orphaned() or service.supervisor.displaced:
                server.should_exit = True

    threading.Thread(target=watch, daemon=True).start()
    log.info("the console is at %s", url)
    try:
        server.run(sockets=[line])
    except KeyboardInterrupt:
        pass  # uvicorn raises again the signal by which it was ended
    finally:
        ended.set()
        notify("STOPPING=1")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what follows is the end in good order already
        log.info("the service ends; runs that were under way go on at its next start")


# People and the log -------------------------------------------------------------------------------------------------


def change_people(options: argparse.Namespace) -> None:
    """`auscult people`."""
    file = read_settings(options.service, None)
    if options.what == "add":
        make_private_directory(file.directory)  # somebody may be named before the service is started first
    with closing(open_database(file)) as database:
        change(People(database), options)


def change(people: People, options: argparse.Namespace) -> None:
    """Does what `auscult people` is told."""
    who = name_user(find_user())
    if options.what == "ls":
        for row in people.list_all():
            print(f"{row['name']:<24} {row['role']}")
        return
    if not options.name:
        raise UsageError(f"people {options.what}: whom? Name somebody")
    if options.what == "remove":
        return people.remove(options.name, who)
    if options.what == "token":
        return print(people.make_key(TOKEN, options.name, options.role, options.days * 86400, who, options.scope))
    if before := people.add(options.name, options.role, ask_password(), who):
        log.warning(
            "%s was there already, as %s: is %s from now on, with this password; signed out everywhere",
            *(options.name, before, options.role),
        )


def open_database(file: FleetFile) -> Database:
    """The database of a service that is there. Raises UsageError if none is."""
    if not file.directory.is_dir():
        raise UsageError(f"{file.directory}: no service has been started there")
    return database_in(file.directory, file.database)


def ask_password() -> str:
    """A password from the environment, the terminal or, where there is none, the first line of the input."""
    if given := os.environ.get("AUSCULT_PASSWORD"):
        return given
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass("password: ")
    if getpass.getpass("once more: ") != password:
        raise UsageError("these were two different passwords")
    return password


def keep_service(options: argparse.Namespace) -> None:
    """`auscult service backup` and `restore`."""
    file, who = read_settings(options.service, None), name_user(find_user())
    passphrase = read_passphrase(options.passphrase_file)
    manifest = (back_up if options.what == "backup" else restore)(file, options.file, who, passphrase)
    size = sum(member.size for member in manifest.members) / 1e6
    if options.what == "backup":
        print(f"{options.file}: {len(manifest.members)} files of {manifest.node}, {size:.1f} MB")
        print(ENCRYPTED if passphrase else PLAIN)
    else:
        print(f"{file.directory}: {len(manifest.members)} files of {manifest.node} as it was at {manifest.made}")
        print("people, tokens, devices and hospitals removed after that may come again: remove them once more")
        print("runs that were under way go on from there; never start it beside the service that it is a copy of")


def verify_audit(options: argparse.Namespace) -> int:
    """`auscult audit verify`."""
    file = read_settings(options.service, None)
    with closing(open_database(file)) as database:
        broken, count, latest = audit.find_break(database)
    if broken is not None:
        print(f"FAIL the chain is broken at entry {broken}; the {count} entries before it are as they were written")
        return 1
    print(f"ok   {count} entries, none changed, removed or inserted; latest hash {latest}")
    return 0
