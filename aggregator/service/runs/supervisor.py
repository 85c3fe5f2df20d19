"""Starts, pauses, stops and resumes the processes of runs, as the table of runs says, side by side where no hospital is
in two of them (queue.py).

Everything that it decides by is on the disk. A service that was killed finds the runs that were running, and starts
them again; their processes had ended with it, and go on from their own directories.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from aggregator.service.administration.mask_keys import mask_keys
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.administration.signing import PRIVATE_FILE
from aggregator.service.database import audit
from aggregator.service.database.audit import SERVICE
from aggregator.service.database.database import Database, Row, runs
from aggregator.service.database.problems import ClaimedError, say_cause
from aggregator.service.runs.device_overlap import PresentFleet, find_rivals
from aggregator.service.runs.queue import LineUp, find_members, line_up, list_reserved, list_taken
from aggregator.service.runs.rollout_settings import add_settings, find_model, is_rollout
from aggregator.service.runs.run_metrics import METRICS, RunLines
from aggregator.service.runs.runs import (
    FAILED,
    FINISHED,
    PAUSE,
    PAUSED,
    RUNNING,
    STOP,
    STOPPED,
    change_in,
    get_run,
    list_queue,
    list_runs,
    wanted_of,
)
from aggregator.service.runs.schedules import look_at_schedules
from edge_sdk.atomic import make_private_directory
from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.nodes.configuration.presets import STATED
from edge_sdk.replay.nodes.node_files import run_table
from edge_sdk.replay.nodes.processes import NodeProcesses
from edge_sdk.replay.planning.toml_files import write_toml

log = logging.getLogger("auscult.service")
EVERY = 0.25  # seconds between two looks
REST = 5.0  # seconds after an error
LOGS = "logs"  # in the directory of a service
LAST_LINES = 12


class Supervisor:
    """The processes of one service's runs.

    Args:
        fleet: says which hospitals can take part now.
        find_bundle: sha256, or "" for the first one -> file of a bundle.
        on_finish: called with the row of a run that has finished, before that is noted: it may come twice.
        first_bundle: sha256 of the bundle that runs of schedules train which name none.

    Attributes:
        lines: run -> its metrics so far.
        shown: run -> number of its lines when browsers were told last.
        connections: run that has a process -> number of its connection to the broker, which over TLS has a certificate
            of its own. (A run's lane at its hospitals is something else, and in its row: `beside`.)
        written: run that has a process -> the hospitals that its settings file names.
        without_connection: runs that are running as the table says, and whose process waits for a connection -> why, as
            a sentence.
        rests: run whose turn failed -> time.monotonic() at which it has its next one.
        queue: what followed from the latest look at the queue.
        displaced: why it does nothing any more, as another service works with the database; "": it does.
    """

    def __init__(
        self,
        file: FleetFile,
        database: Database,
        fleet: Callable[[], PresentFleet],
        find_bundle: Callable[[str], Path],
        on_finish: Callable[[Row, RunLines], None],
        first_bundle: str,
    ):
        self.file, self.database, self.fleet = file, database, fleet
        self.find_bundle, self.on_finish, self.first_bundle = find_bundle, on_finish, first_bundle
        self.processes = NodeProcesses(file.directory / LOGS)
        self.lines: dict[str, RunLines] = {}
        self.shown: dict[str, int] = {}
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.work, name="supervisor", daemon=True)
        self.turned: float | None = None  # time.monotonic() at which its loop went round last
        self.connections: dict[str, int] = {}
        self.written: dict[str, dict[str, int]] = {}
        self.without_connection: dict[str, str] = {}
        self.rests: dict[str, float] = {}
        self.queue = LineUp()
        self.displaced = ""

    @property
    def waits(self) -> str:
        """What the first run waits for that does not begin until somebody does something, or empty."""
        return next((self.queue.waits[id] for id in self.queue.stuck), "")

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """End the processes of runs in good order; the runs go on when the service is started again."""
        self.stopping.set()
        if self.thread.is_alive():  # not so where the service could not be started
            self.thread.join()
        self.processes.stop()

    def work(self) -> None:
        while not self.stopping.wait(EVERY):
            self.turned = time.monotonic()
            try:
                self.look()
            except ClaimedError as error:  # while the database was away another service has come
                log.error("%s", error)
                self.displaced = str(error)
                return self.processes.stop()
            except sql.exc.OperationalError as error:
                log.error("runs go on, and nothing else begins: the database does not answer: %s", say_cause(error))
                self.stopping.wait(REST)
            except Exception:
                log.exception("the runs could not be looked after; it is tried again")
                self.stopping.wait(REST)

    def look(self) -> None:
        """Do what is to be done now. Raises ClaimedError if that is another service's to do."""
        self.database.keep_claim()
        fleet = self.fleet()
        awaits = int(self.file.two_people)
        look_at_schedules(self.database, time.time(), awaits, fleet.labels, self.first_bundle)
        self.without_connection = {}
        for run in list_runs(self.database, RUNNING):
            self.take_turn(run, self.look_after)
        running, waiting = list_runs(self.database, RUNNING), list_queue(self.database)
        reserved = list_reserved(waiting, fleet)
        for run in running:
            self.take_turn(run, self.change_hospitals, running, fleet, reserved)
        queue = line_up(waiting, running, fleet, self.file.most_runs)
        queue.waits |= self.without_connection
        queue.stuck += self.without_connection
        self.queue = queue
        for run, sizes in queue.begin:
            self.take_turn(run, self.mark_running, sizes)

    def take_turn(self, run: Row, do: Callable[..., None], *others: Any) -> None:
        """Do something for one run. An error is logged and keeps no other run from its turn; this one rests a while."""
        if time.monotonic() < self.rests.get(run["id"], 0.0):
            return
        try:
            do(run, *others)
        except Exception:
            log.exception("run %s could not be looked after; it is tried again in %.0f s", run["id"], REST)
            self.rests[run["id"]] = time.monotonic() + REST

    def look_after(self, run: Row) -> None:
        """Look after a run that is running in the table: start its process, note its end, or pass a wish on to it."""
        id = run["id"]
        self.lines_of(id).read_on()
        if (count := len(self.lines_of(id).lines)) != self.shown.get(id):
            self.shown[id] = count
            self.database.changed.set()
        process = self.processes.running.get(id)
        if process is None:
            if run["wish"]:
                self.note_end(run, None)
            else:
                self.spawn(run)
        elif (code := process.poll()) is not None:
            del self.processes.running[id]
            self.connections.pop(id, None)
            self.note_end(run, code)
        elif run["wish"]:
            process.send_signal(signal.SIGTERM)

    def mark_running(self, run: Row, sizes: Mapping[str, int]) -> None:
        """Note that a run that was queued goes on. The next look finds that and starts its process, as that of each run
        that is running in the table and has none: a service that is killed in between starts it all the same."""
        with self.database.transaction() as t:
            now = get_run(t, run["id"])
            if now["state"] != run["state"]:
                return  # somebody was faster
            changes: dict[str, Any] = {"state": RUNNING, "wish": "", "hospitals": dict(sizes), "beside": run["beside"]}
            changes["started"] = run["started"] or time.time()
            t.execute(runs.update().where(runs.c.id == run["id"]).values(**changes))
            audit.note(t, SERVICE, "run.start", run["id"], hospitals=dict(sizes))

    def change_hospitals(self, run: Row, running: Sequence[Row], fleet: PresentFleet, reserved: frozenset[str]) -> None:
        """Let hospitals join and leave a run that goes on: first in the table, then in the settings of its process."""
        id, now = run["id"], run["hospitals"]
        others = [other for other in running if other["id"] != id]
        taken = list_taken(others)[run["beside"]] | find_rivals(run, fleet.present, others, fleet)
        members = find_members(run, fleet, taken, reserved)
        if {*members} != {*now} and not run["wish"]:
            come, gone = sorted({*members} - {*now}), sorted({*now} - {*members})
            with self.database.transaction() as t:
                if get_run(t, id)["state"] != RUNNING:
                    return
                if members:
                    t.execute(runs.update().where(runs.c.id == id).values(hospitals=members))
                    audit.note(t, SERVICE, "run.hospitals", id, come=come, gone=gone)
                else:
                    change_in(t, id, PAUSE, SERVICE)
            run["hospitals"] = members or now
        if id in self.processes.running and {*self.written.get(id, {})} != {*run["hospitals"]}:
            self.rewrite_settings(run)

    def rewrite_settings(self, run: Row) -> Path:
        """Write the settings file of a run's process, with its hospitals of now. Errors as of `write_settings`."""
        model = find_model(self.find_bundle, wanted_of(run))
        bundle = self.find_bundle(wanted_of(run).bundle)
        path = write_settings(self.file, run, bundle, model, self.connections.get(run["id"], 0))
        self.written[run["id"]] = run["hospitals"]
        return path

    def spawn(self, run: Row) -> None:
        """Start the process of a run; a run of which no settings can be written has failed. One for which there is no
        connection waits: more were running than the settings have certificates for since the service was started again.
        """
        used = {self.connections[id] for id in self.processes.running if id in self.connections}
        connection = next(number for number in count() if number not in used)
        if not self.file.has_connection(connection):
            self.without_connection[run["id"]] = (
                f"{run['id']} waits for a certificate: lanes has enough for {connection} at once, and as many runs go "
                "on; it goes on when one of them has ended"
            )
            return
        try:
            self.connections[run["id"]] = connection
            self.processes.start(run["id"], ["aggregator", "--once", self.rewrite_settings(run)])
        except (AuscultError, OSError) as error:
            self.set_state(run, FAILED, str(error))

    def note_end(self, run: Row, code: int | None) -> None:
        """A run's process has ended, or there is none although somebody wished that the run ends."""
        lines = self.lines_of(run["id"])
        lines.read_on()
        if lines.finished and code in (0, None):
            self.on_finish(run, lines)
            self.set_state(run, FINISHED)
        elif run["wish"] == PAUSE:
            self.set_state(run, PAUSED)
        elif run["wish"] == STOP:
            self.set_state(run, STOPPED)
        elif not self.stopping.is_set():
            said = self.read_log(run["id"], LAST_LINES)
            self.set_state(run, FAILED, f"its process {describe_end(code)}\n" + "\n".join(said))

    def set_state(self, run: Row, state: str, why: str = "") -> None:
        """Note where a run stands now."""
        why = why.replace("\0", "\N{REPLACEMENT CHARACTER}")  # which PostgreSQL does not take
        changes: dict[str, Any] = {"state": state, "wish": "", "why": why}
        if state != PAUSED:
            changes["ended"] = time.time()
        with self.database.transaction() as t:
            t.execute(runs.update().where(runs.c.id == run["id"]).values(**changes))
            audit.note(t, SERVICE, f"run.{state}", run["id"], why=why)
        log.info("run %s is %s%s", run["id"], state, f": {why}" if why else "")

    def lines_of(self, id: str) -> RunLines:
        """The metrics of a run. They are read on by whoever wants the newest."""
        if id not in self.lines:
            self.lines[id] = RunLines(run_directory(self.file, id) / METRICS)
            self.lines[id].read_on()
        return self.lines[id]

    def read_log(self, id: str, count: int) -> list[str]:
        """The last lines that the process of a run has said."""
        path = self.processes.logs / f"{id}.log"
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 200 * count))
            return file.read().decode(errors="replace").splitlines()[-count:]


def describe_end(code: int | None) -> str:
    """End of a process, for people: its exit code, or the signal that has ended it."""
    if code is None or code >= 0:
        return f"ended with code {code}"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
    memory = ", as when memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {name}{memory}; it can be resumed"


def run_directory(file: FleetFile, id: str) -> Path:
    """Where the aggregator of a run keeps everything."""
    return file.directory / "runs" / id


def write_settings(file: FleetFile, run: Row, bundle: Path, model: Path | None = None, connection: int = 0) -> Path:
    """Writes the settings file with which the aggregator of a run is started. What is in [run] stays as it was at the
    first start: what is recommended may be something else since then, and a run goes on as it was begun.

    Args:
        connection: number of the run's among those of the runs that go on now.

    Raises:
        UsageError: no run can be made of what is wanted.
    """
    directory = run_directory(file, run["id"])
    path = directory / "settings.toml"
    make_private_directory(directory.parent)
    make_private_directory(directory)
    own = read_run_table(path) if path.exists() else make_run_table(file, run)
    table = {"name": file.name, "broker": file.broker, "bundle": bundle.resolve(), "directory": "."}
    table |= {
        "signing_key": file.directory.resolve() / PRIVATE_FILE,
        "hospitals": run["hospitals"],
        "threads": file.threads,
        "settings": STATED,
        "enrolled": True,
    }
    table["client"], own_wire = file.find_connection(connection)
    table["lane"] = run["beside"]  # at the hospitals
    if is_rollout(run):
        add_settings(table, own, model)
    keys = mask_keys(file)
    if file.masks is not None or keys.key.exists():
        table["masks"] = {key: path.resolve() for key, path in vars(keys).items() if path is not None}
    wire = {key: value.resolve() if isinstance(value, Path) else value for key, value in vars(own_wire).items()}
    wire |= {"metrics_port": None} if connection else {}  # it is the first run's
    return write_toml(path, table | {"run": own, "wire": wire}, lasting=True)  # a run goes on from it


def read_run_table(path: Path) -> dict[str, Any]:
    """The [run] table of a settings file. Raises UsageError if there is none to be read."""
    try:
        return dict(tomllib.loads(path.read_text())["run"])
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path}: is damaged ({error}); put it back from a backup, or ask for the run anew") from None


def make_run_table(file: FleetFile, run: Row) -> dict[str, Any]:
    """The [run] table of a run, with all its settings. Who is asked is waited for as long as that usually takes."""
    made = wanted_of(run).as_run(run["id"], file.classes)
    return {key: value for key, value in run_table(made).items() if key != "deadline"}
