"""What `auscult aggregator` does with its settings file."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import torch

from aggregator.server import Aggregator
from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.atomic import write_bytes
from edge_sdk.contract.run import Run
from edge_sdk.data.public_inputs import read_public
from edge_sdk.errors import UsageError
from edge_sdk.nodes.ledgers import count_bytes, list_counters, write_json
from edge_sdk.nodes.serve import serve
from edge_sdk.nodes.service_files import AggregatorFile
from edge_sdk.nodes.settings import read_toml
from hardware.probe import peak_memory_mb


def serve_aggregator(path: Path, once: bool) -> None:
    """Serve one run; ends with it.

    Raises:
        UsageError: anything in the file is wrong; nothing has been started.
    """
    file = read_toml(path, AggregatorFile)
    try:
        aggregator = aggregator_of(file)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    settings, noted = path.read_bytes(), list[bool]()
    torch.set_num_threads(file.threads)
    began = time.monotonic()

    def note() -> None:
        if aggregator.runtime.holds_directory:  # and no other process, whose notes these would be
            write_json(file.directory / "ledger.json", list_traffic(aggregator))
            if not noted:
                write_bytes(file.directory / "run.toml", settings)
                noted.append(True)

    serve([aggregator], once=True, meanwhile=note, ports=[file.wire.metrics_port])
    if aggregator.finished.is_set():
        write_json(file.directory / "result.json", make_result(aggregator, time.monotonic() - began))


def aggregator_of(file: AggregatorFile) -> Aggregator:
    from edge_sdk.model.bundle import read_bundle

    table = dataclasses.asdict(file.run)
    public = "" if file.public is None else read_public(file.public).sha256
    run = Run(**table, bundle=read_bundle(file.bundle).sha256, public=public)
    return Aggregator(
        file.name,
        broker=file.broker,
        bundle=file.bundle,
        directory=file.directory,
        run=run,
        hospitals=file.hospitals,
        companions=file.companions,
        public=file.public,
        deadline=file.deadline,
        quorum=file.quorum,
        wait_for=file.wait_for,
        device=file.device,
        private=file.private,
        wire=file.wire,
    )


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
        "model": describe_model(aggregator),
    }


def describe_model(aggregator: Aggregator) -> dict[str, Any]:
    """Size of the final model, and the rank of each layer that has a matrix form. Devices may have their own: 0."""
    if aggregator.global_model() is None:
        return {"parameters": 0, "parameters_sent": 0, "ranks": {}, "full_ranks": {}}
    layout, packed = aggregator.bundle.layout, getattr(aggregator.newest, "model", None)
    if not isinstance(packed, Packed):
        return {"parameters": layout.size, "parameters_sent": layout.size, "ranks": {}, "full_ranks": {}}
    return {
        "parameters": layout.size,
        "parameters_sent": lowrank.floats(layout, packed.ranks),
        "ranks": lowrank.ranks(layout, packed),
        "full_ranks": {slot.name: min(lowrank.matrix_shape(slot)) for slot in lowrank.matrix_slots(layout)},
    }
