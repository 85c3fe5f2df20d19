"""Work for a round that the aggregator has closed without this hospital: for nothing, or counted in a later round."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.contract import round as rounds
from edge_sdk.contract.node import Record
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.calls import Calls
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.members import Members
from edge_sdk.delivery.storage.store import Store
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env

FIRST, ALONE, ALL = {"cloud": "first-b", "ready": 1}, {"cloud": "rigorous", "ready": 1}, {"cloud": "sync"}


@pytest.mark.parametrize(
    ("method", "settings", "released"),
    [
        *((method, cloud, False) for method in ("fedbcd", "fedbcd-i", "fedslr-b") for cloud in (FIRST, ALONE)),
        ("fedslr-b+fedal", {"shared": FIRST}, False),
        ("fedbcd", ALL, True),
        ("fedslr-b+fedal", {"shared": ALL}, True),
        ("fedavg", {}, True),
    ],
)
def test_a_late_hospital_releases_its_devices_unless_their_work_counts_later(
    tmp_path: Path, method: str, settings: dict[str, Any], released: bool
) -> None:
    """Hospitals that finish a phase alone once let their devices go, and then waited for them."""
    run = Run(id="r", method=method, rounds=2, settings=settings)
    env = make_env(run, EMPTY_LAYOUT, np.zeros(0, np.float32), sizes={"d": 1})
    assembly, store, log = make_assembly(run, "hospital", env), Store(tmp_path / "r.db"), logging.getLogger("test")
    calls = Calls("h", "cloud", assembly, store, Members(store, (), {}), Counters(), None, log)
    below = rounds.ask(rounds.begin(assembly.policy, 0.0), ("d",), True, 0.0)
    record, told = Record(below, above=1, started=True), {"d": 1} if released else {}
    calls.note_closed(2, record)
    assert calls.releases.take() == told
    calls.note_arrival("d", record)
    assert calls.releases.take() == told
    store.close()
