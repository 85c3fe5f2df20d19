"""What `auscult aggregator` does with its settings file."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from aggregator.aggregator import Aggregator
from aggregator.kernels import kernels_on
from aggregator.options import HospitalList, PreparedRun, Process
from aggregator.run_files import RESULT_FILE, RUN_FILE
from aggregator.shared import assist, dismiss
from aggregator.sizes import count_numbers, find_packed
from edge_sdk.algebra import lowrank
from edge_sdk.algebra.running_statistics import lost_variances
from edge_sdk.atomic import write_text
from edge_sdk.contract.run import Run
from edge_sdk.data.public_inputs import read_public
from edge_sdk.errors import UsageError
from edge_sdk.hardware.probe import peak_memory_mb
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.configuration.assembly import with_bundle
from edge_sdk.nodes.configuration.deadlines import parse_deadline
from edge_sdk.nodes.configuration.presets import SettingsTable, complete
from edge_sdk.nodes.configuration.settings import part_of, read_toml, text_without_passwords
from edge_sdk.nodes.daemon.counter_files import count_bytes, list_counters, write_json
from edge_sdk.nodes.daemon.device_file import LEDGER
from edge_sdk.nodes.daemon.serve import serve
from edge_sdk.nodes.daemon.settings_files import AggregatorFile
from edge_sdk.nodes.daemon.settings_reload import FileWatch, check_changes, find_changes
from edge_sdk.nodes.hospital.suspensions import SuspensionLog
from edge_sdk.nodes.policy.trust import signed_by
from edge_sdk.simulation.processes.ranks import Ranks, find_ranks


def serve_aggregator(path: Path) -> None:
    """Serve one run; ends with it.

    Raises:
        UsageError: anything in the file is wrong; nothing has been started.
    """
    watch = FileWatch(path)
    file = read_toml(path, AggregatorFile)
    torch.set_num_threads(file.threads)
    ranks = find_ranks(patience=None)  # for the next heavy step, as rounds may take days
    if ranks.number > 0:
        assist(kernels_on(file.device, file.svt), ranks)
        ranks.close()
        return
    try:
        aggregator = aggregator_of(file, path.parent, ranks)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    began, notes = time.monotonic(), RunNotes(path, file, aggregator)

    def meanwhile() -> None:
        if file.client and watch.has_changed():  # it is the service that writes it
            reread_safely(path, file, aggregator)
        notes.write()

    def reread() -> None:
        reread_aggregator(path, file, aggregator)

    serve([aggregator], once=True, meanwhile=meanwhile, ports=[file.wire.metrics_port], reread=reread)
    if ranks.count > 1:
        dismiss(ranks)
        ranks.close()
    if aggregator.finished.is_set():
        aggregator.keep_earlier_files()
        write_result(file.directory / RESULT_FILE, aggregator, time.monotonic() - began)


class RunNotes:
    """Files that tell of a run while it goes on, in its directory: its settings, once, and what has crossed."""

    def __init__(self, path: Path, file: AggregatorFile, aggregator: Aggregator) -> None:
        self.path, self.file, self.aggregator = path, file, aggregator
        self.suspensions = SuspensionLog(file.name, aggregator.log)
        self.has_settings = False

    def write(self) -> None:
        """Write what is known now, unless the directory is another process's, whose notes these would be."""
        if not self.aggregator.runtime.holds_directory:
            return
        self.aggregator.keep_earlier_files()
        ledger = list_traffic(self.aggregator)
        write_json(self.file.directory / LEDGER, ledger)
        if self.aggregator.runtime.node is not None:
            self.suspensions.look(ledger["gauges"])
        if not self.has_settings:
            write_text(self.file.directory / RUN_FILE, text_without_passwords(self.path))
            self.has_settings = True


def write_result(path: Path, aggregator: Aggregator, seconds: float) -> None:
    """Write what a finished run came to, unless it is there already: a service that is started again after the end
    knows less of the run than the one that played it."""
    try:
        written = json.loads(path.read_text())["run"] == aggregator.job.id
    except (OSError, ValueError, KeyError, TypeError):
        written = False
    if not written:
        write_json(path, make_result(aggregator, seconds))
    aggregator.log.info("%s: run %s is finished: result in %s", aggregator.name, aggregator.job.id, path)


def reread_safely(path: Path, began: AggregatorFile, aggregator: Aggregator) -> None:
    """Take changed settings up; what is wrong with them is said, and everything stays as it is."""
    try:
        reread_aggregator(path, began, aggregator)
    except (UsageError, OSError) as error:
        aggregator.log.error("the settings stay as they are: %s", error)


def reread_aggregator(path: Path, began: AggregatorFile, aggregator: Aggregator) -> None:
    """Take from the settings file what may be changed while a run goes on: how long is waited, and limits.

    Raises:
        UsageError: it cannot be read, or something else in it has been changed.
    """
    file = read_toml(path, AggregatorFile)
    changed = find_changes(began, file, ("deadline", "quorum", "limits", "run", *["hospitals"] * began.enrolled))
    changed += find_changes(began.run, file.run, ("deadline", "quorum"), "run.")
    check_changes(path, changed, "deadline, quorum, run.deadline, run.quorum, limits and, if enrolled, hospitals")
    if {*file.hospitals} != {*aggregator.hospitals}:
        aggregator.change_hospitals(file.hospitals)
    aggregator.change_limits(file.limits)
    aggregator.change_waiting(replace(aggregator.job, **describe_waiting(file)), file.deadline, file.quorum)
    write_text(file.directory / RUN_FILE, text_without_passwords(path))


def aggregator_of(file: AggregatorFile, base: Path = Path(), ranks: Ranks | None = None) -> Aggregator:
    """The aggregator of a settings file. `base`: folder that relative paths in it begin at."""
    return Aggregator(
        file.name,
        broker=file.broker,
        bundle=file.bundle,
        directory=file.directory,
        run=part_of(file, PreparedRun, run=signed_by(run_of(file, base), file.signing_key, file.directory)),
        hospitals=part_of(file, HospitalList),
        wire=file.wire,
        process=part_of(file, Process, ranks=ranks),
    )


def run_of(file: AggregatorFile, base: Path) -> Run:
    """The run of a settings file, with all its settings."""
    own = file.run
    stated = {key: getattr(own, key) for key in (field.name for field in fields(SettingsTable))}
    completed = asdict(complete(file.settings, SettingsTable(**stated), base))
    run = Run(
        id=own.id,
        seed=own.seed,
        classes=own.classes,
        evaluate_every=own.evaluate_every,
        devices=own.devices,
        public="" if file.public is None else read_public(file.public).sha256,
        **completed,
        **describe_waiting(file),
    )
    return with_bundle(run, read_bundle(file.bundle))


def describe_waiting(file: AggregatorFile) -> dict[str, Any]:
    """The fields of a run that say how long hospitals wait for their devices."""
    deadline = parse_deadline(file.run.deadline, "run.deadline")
    return {"deadline": deadline.seconds, "measured": deadline.measured, "quorum": file.run.quorum}


def list_traffic(aggregator: Aggregator) -> dict[str, Any]:
    """What has crossed the aggregator's lines so far."""
    down = {hospital: count_bytes(aggregator.runtime.counters, hospital) for hospital in aggregator.hospitals}
    return {"aggregator": aggregator.name, "down": down, **list_counters(aggregator.runtime)}


def make_result(aggregator: Aggregator, seconds: float) -> dict[str, Any]:
    """What the aggregator can tell at the end of a run."""
    return {
        "run": aggregator.job.id,
        "seconds": round(seconds, 2),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "counters": dict(aggregator.runtime.counters.totals()),
        "deadlines": aggregator.deadlines,
        "model": describe_model(aggregator),
    }


def describe_model(aggregator: Aggregator) -> dict[str, Any]:
    """Size of the final model, and the rank of each layer that has a matrix form. Devices may have their own: 0."""
    theta = aggregator.global_model()
    if theta is None:
        return {"parameters": 0, "parameters_sent": 0, "ranks": {}, "full_ranks": {}}
    layout, packed = aggregator.bundle.layout, find_packed(aggregator.newest)
    found: dict[str, Any] = {"parameters": layout.size, "parameters_sent": count_numbers(aggregator.newest)}
    found |= {"lost_variances": lost} if (lost := lost_variances(layout, theta)) else {}
    if packed is None:
        return {**found, "ranks": {}, "full_ranks": {}}
    return {
        **found,
        "ranks": lowrank.ranks(layout, packed),
        "full_ranks": {slot.name: min(lowrank.matrix_shape(slot)) for slot in lowrank.matrix_slots(layout)},
    }
