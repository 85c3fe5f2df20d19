"""An application that waits for the end of a run, for which its device has too few labels as yet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.data.recording import Recording, StoreLimits
from edge_sdk.errors import SamplesMissing, UsageError
from edge_sdk.live.presence.directory import NodeDirectory, encode_run
from edge_sdk.nodes.device.descriptions import RunRefused
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.tools.backups.backup import back_up
from tests.nodes.device.test_app_defects import samples
from tests.nodes.device.test_live_device import BEGAN, make_device, make_run, observe_in_pieces

FEW = Recording(limits=StoreLimits(megabytes=4, days=1e5, held_out=0.0), least=20)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    made = make_device(tmp_path, recording=FEW)
    with closing(NodeDirectory(tmp_path, "normal")) as directory:
        made.runtime.membership.directory = directory  # as while its loop runs
        yield made
        made.runtime.membership.leave_run()
    made.close()


def offer(device: Device, run: Run | None) -> None:
    """A turn of the device's loop; with a run, which a hello of the hospital has brought."""
    if run is not None:
        device.runtime.membership.take_offer(SimpleNamespace(run=run.id, body=encode_run(run)))
    device.runtime.membership.take_up_pending(0.0)


def test_a_device_without_labels_waits_for_them_and_then_takes_part(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[object] = []
    device.on_event = told.append
    device.finished.set()  # the run before is over
    observe_in_pieces(device, 100)
    with caplog.at_level(logging.WARNING):
        offer(device, make_run(device))
    assert not device.finished.is_set(), "it may take part yet"
    assert told == [RunRefused(device.refusal)]
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.levelno == logging.WARNING and line.getMessage().endswith(device.refusal)
    assert "nothing is labelled yet; 20 labelled windows are needed" in device.refusal
    assert "device.label(activity, began, ended), of 'walk', 'sit'" in device.refusal
    device.label("walk", BEGAN, BEGAN + 15)
    offer(device, None)
    assert "14 labelled windows to train on" in device.refusal and "there is none of 'sit'" in device.refusal
    assert not device.finished.is_set()
    device.label("sit", BEGAN + 15, BEGAN + 80)
    offer(device, None)
    assert device.runtime.membership.session is not None and not device.refusal and not device.finished.is_set()


@pytest.mark.parametrize("tells", [False, True])
def test_the_hospital_hears_no_number_of_labels_and_no_class_if_the_owner_does_not_tell_them(
    tmp_path: Path, tells: bool
) -> None:
    device = make_device(tmp_path, recording=replace(FEW, tells_labels=tells))
    with closing(device), closing(NodeDirectory(tmp_path, "normal")) as directory:
        device.runtime.membership.directory = directory
        observe_in_pieces(device, 100)
        device.label("walk", BEGAN, BEGAN + 15)
        offer(device, make_run(device))
        told = device.runtime.membership.standing.refusal
        assert told.startswith("run r: device d1: ") and "14 labelled windows" in device.refusal
        if tells:
            assert told == device.refusal
        else:
            assert told.endswith(
                ": it has too few samples as yet, or too few labels, and takes part when it has enough"
            )
        device.label("sit", BEGAN + 15, BEGAN + 80)
        offer(device, None)
        assert not device.runtime.membership.standing.refusal
        device.runtime.membership.leave_run()


def test_labels_that_come_while_a_run_is_being_refused_are_seen(device: Device) -> None:
    observe_in_pieces(device, 100)
    choose = device.part.choose_samples

    def label_meanwhile(run: Run) -> object:
        found = choose(run)
        device.part.choose_samples = choose  # type: ignore[method-assign]
        device.label("walk", BEGAN, BEGAN + 100)
        return found

    device.part.choose_samples = label_meanwhile  # type: ignore[method-assign,assignment]
    offer(device, make_run(device))
    assert device.refusal
    offer(device, None)
    assert not device.refusal and device.runtime.membership.session is not None


def test_a_run_is_taken_up_when_samples_come_that_were_labelled_before(device: Device) -> None:
    device.label("walk", BEGAN, BEGAN + 200)
    observe_in_pieces(device, 10)
    offer(device, make_run(device))
    assert "9 labelled windows to train on" in device.refusal
    observe_in_pieces(device, 12, first=10)
    device.flush()
    offer(device, None)
    assert device.runtime.membership.session is not None and not device.refusal


def test_a_reason_is_said_once(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    observe_in_pieces(device, 100)
    for _ in range(3):
        offer(device, make_run(device))
        device.label("juggle", BEGAN + 50, BEGAN + 70)
        device.unlabel(BEGAN, BEGAN + 100)
    assert len([line for line in caplog.messages if "nothing is labelled yet" in line]) == 1


def test_a_run_that_nobody_can_look_on_at_ends_no_device(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    """That samples are missing is found before what else is wrong with a run: an aggregator of a later release may
    name what this one does not know."""
    observe_in_pieces(device, 100)
    offer(device, make_run(device))
    assert device.runtime.membership.looks_on
    offer(device, replace(make_run(device, "r2"), augment={"nope": 1.0}))
    assert device.runtime.membership.session is None and "nothing is labelled yet" in device.refusal
    assert "cannot look on at run r2: " in caplog.text and "nope" in caplog.text
    offer(device, make_run(device, "r3"))
    assert device.runtime.membership.looks_on


def test_what_an_onlooker_keeps_is_in_no_backup(
    device: Device, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its store goes at any moment, and a backup that was copying it failed."""
    offer(device, make_run(device))
    assert device.runtime.membership.looks_on and list(tmp_path.rglob("r.db"))
    made = back_up(tmp_path, tmp_path_factory.mktemp("backups") / "d1.tar")
    assert not [file for file in made.members if file.path.endswith("r.db")]


def test_who_may_not_take_part_looks_on_no_more(device: Device) -> None:
    observe_in_pieces(device, 100)
    offer(device, make_run(device))
    membership = device.runtime.membership
    assert membership.looks_on
    device.part.gate.allow = Allow(methods=("fedslr",))
    device.runtime.permission.change_owner(device.part.gate)
    membership.reconsider = True
    offer(device, None)
    assert membership.session is None and "fedavg" in device.refusal


def test_samples_that_are_ready_get_no_labels_by_themselves(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    device.train_on(samples(("juggling",)))
    with pytest.raises(UsageError, match="no training sample has a label of this run") as raised:
        device.part.env(make_run(device))
    assert not isinstance(raised.value, SamplesMissing)
    offer(device, make_run(device))
    assert device.finished.is_set()
