"""Suspensions as a service shows and lifts them: gauges, log, and limits that are taken from the file again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.node import Node, with_record
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.directory import NodeDirectory
from edge_sdk.methods.shared.aggregation.guard import Guard
from edge_sdk.nodes.daemon.hospital_service import HospitalService
from edge_sdk.nodes.daemon.prometheus import exposition
from edge_sdk.nodes.daemon.serve import refuse_rereading
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.nodes.hospital.options import DeviceList
from edge_sdk.nodes.hospital.suspensions import SuspensionLog

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
FILE = f"""name = "north"
aggregator = "cloud"
broker = "mqtt://127.0.0.1:1"
bundle = "{WRIST}"
directory = "state"
devices = ["watch-7", "watch-8"]
"""
LIFT = "\n[limits]\nlift = { watch-7 = 1 }\n"


@pytest.fixture
def hospital(tmp_path: Path) -> Iterator[Hospital]:
    """A hospital in a run, without a network, that has suspended watch-7."""
    made = Hospital(
        "north",
        aggregator="cloud",
        broker="mqtt://127.0.0.1:1",
        bundle=WRIST,
        directory=tmp_path / "state",
        devices=DeviceList(["watch-7", "watch-8"], wait_for=1),
    )
    classes = tuple(f"c{i}" for i in range(made.bundle.manifest["classes"]))
    membership = made.runtime.membership
    membership.directory = NodeDirectory(tmp_path / "state", "normal")
    membership.take_up(Run(id="r", method="fedavg", bundle=made.bundle.sha256, classes=classes))
    session = membership.session
    assert session is not None
    session.settled = True
    session.commit(time.monotonic())
    state = replace(session.node.record.state, guard=Guard(suspended={"watch-7": 1}))
    session.node = with_record(session.node, state=state)
    yield made
    membership.drop_session()
    membership.directory.close()


def turn(hospital: Hospital) -> Node:
    """A turn of the loop, as far as settings are concerned."""
    membership = hospital.runtime.membership
    hospital.runtime.changes.carry_out(membership, lambda: None)
    membership.take_up_pending(time.monotonic())
    assert membership.session is not None
    membership.session.commit(time.monotonic())
    return membership.session.node


def test_who_is_suspended_is_among_the_metrics(hospital: Hospital) -> None:
    assert 'auscult_suspended{node="north",of="watch-7"} 1\n' in exposition(hospital.runtime)
    assert 'auscult_suspended{node="north",of="watch-8"}' not in exposition(hospital.runtime)


def service_of(path: Path, hospital: Hospital) -> HospitalService:
    """The service of a settings file, around a hospital that is there already."""
    service = HospitalService(path)
    service.hospital = hospital
    return service


def test_a_lift_needs_no_restart(hospital: Hospital, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, said = tmp_path / "north.toml", SuspensionLog("north", logging.getLogger("suspensions"))
    path.write_text(FILE)
    service = service_of(path, hospital)
    with caplog.at_level(logging.WARNING):
        said.look(hospital.runtime.gauges())
        path.write_text(FILE + LIFT)
        service.reread()
        assert turn(hospital).env.limits == Limits(lift={"watch-7": 1})
        said.look(hospital.runtime.gauges())
    assert "suspended.watch-7" not in hospital.runtime.gauges()
    still, lifted = caplog.messages
    assert still == (
        "north: watch-7 is still suspended: look at watch-7, set limits.lift.watch-7 = 1 in this node's settings file, "
        "and let the process read it again (kill -HUP)"
    )
    assert lifted == "north: the suspension of watch-7 is lifted"


def test_a_lift_holds_after_the_disk_has_failed_and_in_later_runs(hospital: Hospital) -> None:
    hospital.change_limits(Limits(lift={"watch-7": 1}))
    turn(hospital)
    membership = hospital.runtime.membership
    assert membership.session is not None
    run = membership.session.run
    membership.reopen_session()
    assert turn(hospital).env.limits.lift == {"watch-7": 1}
    membership.take_up(replace(run, id="later"))
    assert turn(hospital).env.limits.lift == {"watch-7": 1}


def test_nothing_else_of_the_file_is_taken_up(hospital: Hospital, tmp_path: Path) -> None:
    path = tmp_path / "north.toml"
    path.write_text(FILE)
    service = service_of(path, hospital)
    path.write_text(FILE.replace('"cloud"', '"sky"') + LIFT)
    with pytest.raises(UsageError, match=r"aggregator changed; .* devices, .*limits, reports may be"):
        service.reread()
    path.write_text(FILE + LIFT.replace("watch-7", "watch-9"))
    with pytest.raises(UsageError, match=r"limits\.lift\.watch-9: is none of watch-7, watch-8"):
        service.reread()
    assert hospital.limits == Limits() == turn(hospital).env.limits
    with pytest.raises(UsageError, match="cannot be changed while it runs"):
        refuse_rereading()
