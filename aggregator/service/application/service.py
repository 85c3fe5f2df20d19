"""The parts of one service, put together: database, registry, monitor, supervisor, people."""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from aggregator.service.administration.accounts import ADMIN, TOKEN, TOKEN_DAYS, People
from aggregator.service.administration.certificates import Office
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.administration.signing import public_key_pem
from aggregator.service.database import audit
from aggregator.service.database.audit import SERVICE
from aggregator.service.database.database import Database, database_in
from aggregator.service.database.home import check_home
from aggregator.service.fleet.enrolment import HOSPITAL, Enrolment
from aggregator.service.fleet.enrolment_workflow import EnrolmentDesk
from aggregator.service.fleet.monitor import Monitor
from aggregator.service.fleet.rosters import Rosters
from aggregator.service.models.registry import Registry
from aggregator.service.runs.device_overlap import PresentFleet
from aggregator.service.runs.supervisor import LOGS, Supervisor
from edge_sdk.atomic import LOCK, close_to_others, make_private_directory, sweep_aside, write_text
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.directory import lock_file
from edge_sdk.version import find_version

CONNECTION = "console.json"
"""Beside the database: address of the console, and a token for commands of this user on this machine."""


class FleetService:
    """Everything but the web.

    Args:
        is_open: whoever reaches the console may do everything, without a password: for a demonstration on one machine.

    Attributes:
        untold: receiver of a webhook that takes nothing -> why.

    Raises:
        UsageError: another process works in the directory or with the database, or something in the settings cannot
            be used.
        DatabaseAwayError: the database does not answer now.
    """

    def __init__(self, file: FleetFile, is_open: bool = False):
        self.file, self.is_open = file, is_open
        self.untold: Mapping[str, str] = {}
        make_private_directory(file.directory)
        self.lock: IO[str] = lock_file(file.directory / LOCK)
        with ExitStack() as undo:  # of what is not put together nothing is left open
            undo.callback(self.lock.close)
            fcntl.fcntl(self.lock, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
            sweep_aside(file.directory)
            for path in (file.directory / LOGS).glob("*"):  # an earlier version left them open to others
                close_to_others(path)
            public_key_pem(file.directory)
            self.database: Database = database_in(file.directory, file.database)
            undo.callback(self.database.close)
            self.database.claim_for(file.directory)
            check_home(self.database, file.directory)
            self.registry = Registry(file, self.database)
            self.registry.register_bundles()
            self.people = People(self.database)
            self.monitor = Monitor(file, self.database)
            self.enrolment, self.office = (
                Enrolment(self.database, file.name, self.list_taken),
                Office(file.enrolment, file.directory, file.name),
            )
            self.rosters = Rosters(self.database, self.enrolment)
            self.monitor.answer = self.rosters.answer
            self.desk = EnrolmentDesk(file, self.enrolment, self.office, self.monitor, self.registry)
            self.supervisor = Supervisor(
                file,
                self.database,
                self.find_fleet,
                self.registry.path_of,
                self.registry.add_trained,
                self.registry.first,
            )
            undo.pop_all()
        self.csrf = secrets.token_urlsafe(24)  # of an open console, which has no sessions

    def list_taken(self, kind: str) -> list[str]:
        """Names that no node of a kind may enrol under: of whom `auscult provision` has made, and of a hospital too, if
        the one that enrols is none."""
        site = self.office.provisioner.saved
        made = [] if site is None else [*site.nodes, site.host]
        return made if kind == HOSPITAL else [*made, *(h.name for h in self.monitor.list_hospitals())]

    def find_fleet(self) -> PresentFleet:
        """Hospitals that can take part now, each with its number of devices, and those that were suspended."""
        barred = self.enrolment.list_barred()
        present = {name: size for name, size in self.monitor.sizes().items() if name not in barred}
        labels = {h: n for h, n in self.monitor.labels().items() if h not in barred}
        seen = self.monitor.seen
        return PresentFleet(
            present,
            barred,
            labels,
            self.monitor.evaluations(),
            trainings={name: hospital.trainings for name, hospital in seen.items()},
            bundles={name: hospital.bundles for name, hospital in seen.items() if hospital.bundles},
            devices={name: frozenset(d.name for d in hospital.devices) for name, hospital in seen.items()},
            first_bundle=self.registry.first,
            knows_others=lambda name: self.rosters.knows_others(name, self.monitor.known.get(name)),
        )

    def start(self) -> None:
        self.desk.bring_up()
        self.monitor.start()
        self.supervisor.start()

    def stop(self) -> None:
        """End everything in good order; runs go on at the next start."""
        self.supervisor.stop()
        self.monitor.stop()
        self.database.close()
        self.lock.close()

    def note_start(self) -> None:
        """Note in the audit log that the service begins, and what its settings file says of who may do what: whoever
        can write that file changes it without asking anybody."""
        file = self.file
        told = {"version": find_version(), "listen": file.listen, "two_people": file.two_people}
        told |= {"open": True} if self.is_open else {}
        told |= {"sign_on": file.sign_on.issuer} if file.sign_on is not None else {}
        with self.database.transaction() as t:
            audit.note(t, SERVICE, "service.start", file.name, **told)

    def write_connection(self, url: str) -> Path:
        """Write how commands on this machine reach the console."""
        self.people.end_tokens(SERVICE)
        token = self.people.make_key(TOKEN, SERVICE, ADMIN, TOKEN_DAYS * 86400, SERVICE)
        path = self.file.directory / CONNECTION
        write_text(path, json.dumps({"url": url, "token": token}) + "\n")
        return path


def read_connection(directory: Path) -> tuple[str, str]:
    """Address of a service's console, and a token for it.

    Raises:
        UsageError: there is none in the directory.
    """
    path = directory / CONNECTION
    try:
        found = json.loads(path.read_text())
        return str(found["url"]), str(found["token"])
    except FileNotFoundError:
        raise UsageError(
            f"{directory}: no service has been started there (auscult serve); name its directory"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
