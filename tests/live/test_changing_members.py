"""Devices come, leave for good and return while a run goes on: they are asked from the next question on, or no more."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.contract.children.limits import MOST_DEVICES
from edge_sdk.contract.method import UP, Role
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.delivery.roles.sizes import Sizes
from edge_sdk.delivery.storage.store import Store
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.live.membership.roster import Roster
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire import topics
from edge_sdk.wire.frames import Birth, pack_frame
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing
from tests.live.test_log_guard import client


class Group:
    """A hospital of the counting run whose devices can be changed."""

    def __init__(self, net: Net, *devices: str, role: Role = roles.HOSPITAL):
        self.devices = devices

        def assemble(run: Run) -> Assembly:
            return roles.assembly(role, run, sizes=dict.fromkeys(self.devices, 1))

        self.node: Runtime = net.hospital("h", *devices, assemble=assemble, flexible=True)

    def change(self, *devices: str) -> None:
        self.devices = devices
        self.node.change(children=devices)


def in_last_round(net: Net) -> int:
    """Devices that the latest round has counted."""
    return int(net.told[-1][1].devices) if net.told else 0


def sizes_of(node: Runtime) -> dict[str, int]:
    assert node.session is not None
    return dict(node.session.members.sizes.now)


def test_devices_come_leave_and_return_during_a_run(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    group, aggregator = Group(net, "a", "b"), net.aggregator("h", flexible=True, sizes={"h": 2})
    with playing(aggregator, group.node, *(net.device(name, "h") for name in "abc")):
        eventually(lambda: in_last_round(net) == 2)
        group.change("a", "b", "c")
        eventually(lambda: in_last_round(net) == 3)
        eventually(lambda: sizes_of(aggregator) == {"h": 3})
        group.change("a", "c")
        eventually(lambda: in_last_round(net) == 2)
        eventually(lambda: sizes_of(aggregator) == {"h": 2})
        group.change("a", "b", "c")
        eventually(lambda: in_last_round(net) == 3)
        assert [m.round for _, m in net.told] == list(range(1, len(net.told) + 1))  # no round was lost or played twice
        assert all(m.total == 4 * m.round for _, m in net.told)  # and each answer counted once


def test_who_is_gone_for_good_is_waited_for_no_longer(tmp_path: Path, quick: LocalBroker) -> None:
    """Rounds without a deadline wait for everybody: a device that is switched off and then removed ends that."""
    net = Net(tmp_path, quick.url)
    group = Group(net, "a", "b")
    with playing(net.aggregator("h", flexible=True), group.node, net.device("a", "h")):
        with playing(net.device("b", "h")):
            eventually(lambda: in_last_round(net) == 2)
        eventually(lambda: group.node.here == ("a",))
        group.change("a")
        eventually(lambda: in_last_round(net) == 1)


def test_a_question_that_was_being_asked_when_somebody_left_is_waited_for_no_longer(
    tmp_path: Path, quick: LocalBroker
) -> None:
    """The call that asks began before the device was removed, so it asks that one too: rounds once stood still."""
    net, asks, goes_on = Net(tmp_path, quick.url), threading.Event(), threading.Event()

    def receive(env: Any, state: Any, sender: str, m: Any) -> Any:
        if sender == UP and m.round == 3:
            asks.set()
            assert goes_on.wait(60)
        return roles.hospital_receive(env, state, sender, m)

    group = Group(net, "a", "b", role=replace(roles.HOSPITAL, receive=receive))
    with playing(net.aggregator("h", flexible=True), group.node, net.device("a", "h"), net.device("b", "h")):
        assert asks.wait(60)
        group.change("a")
        eventually(lambda: group.node.children == ("a",))
        goes_on.set()
        eventually(lambda: net.rounds > 5)
    assert [m.devices for _, m in net.told[:2]] == [2, 2] and {m.devices for _, m in net.told[3:]} == {1}


def test_what_counts_outlives_the_process(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    group, sizes = Group(net, "a"), {"h": 1}
    with playing(group.node, net.device("a", "h"), net.device("b", "h")):
        with playing(net.aggregator("h", flexible=True, sizes=sizes)):
            eventually(lambda: in_last_round(net) == 1)
            group.change("a", "b")
            eventually(lambda: in_last_round(net) == 2)
        again = net.aggregator("h", flexible=True, sizes=sizes)
        before = net.rounds
        with playing(again):
            assert eventually(lambda: again.session is not None and sizes_of(again)) == {"h": 2}
            eventually(lambda: net.rounds > before + 1)


def test_a_hospital_cannot_say_that_it_has_more_devices_than_can_be_counted(tmp_path: Path, quick: LocalBroker) -> None:
    """2^60 once were taken, and saved: each round of the aggregator raised, and its store could not be read again."""
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("h", flexible=True, sizes={"h": 1})
    with playing(aggregator), client(quick, "h") as other:
        eventually(lambda: aggregator.below and aggregator.below.up)
        nonce, topic = aggregator.presence.nonce_for("h"), topics.upward("agg", "h", "b")
        for i, devices in enumerate((MOST_DEVICES, MOST_DEVICES + 1, 2**60)):
            birth = Birth("h", 1, 7, "count", True, count=i + 1, nonce=nonce, devices=devices)
            other.publish(topic, pack_frame(birth), 1).wait_for_publish(10)
        eventually(lambda: aggregator.counters["refused.malformed.h"] == 2 or sizes_of(aggregator)["h"] > MOST_DEVICES)
        eventually(lambda: sizes_of(aggregator) == {"h": MOST_DEVICES})
    again = Store(tmp_path / "agg" / "count.db")
    assert Sizes(again, {"h": 1}).now == {"h": MOST_DEVICES}
    again.close()


def test_a_parent_that_counts_by_its_settings_says_so(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    group = Group(net, "a")
    with playing(net.aggregator("h", sizes={"h": 1}), group.node, net.device("a", "h")):
        eventually(lambda: in_last_round(net) == 1)
        assert group.node.membership.counted_above


# Sizes ---------------------------------------------------------------------------------------------------------------


def test_who_leaves_counts_until_the_question_of_that_time_is_paid(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db")
    sizes = Sizes(store, {"h": 3, "i": 1})
    sizes.note("h", 2, question=7)
    sizes.apply({"h": 7, "i": 7}, 7, started=True)
    assert sizes.now == {"h": 3, "i": 1}  # its answer may have three devices in it
    sizes.apply({}, 7, started=True)
    assert sizes.now == {"h": 3, "i": 1}
    sizes.apply({"h": 7, "i": 8}, 8, started=True)  # it is late
    assert sizes.now == {"h": 3, "i": 1}
    sizes.apply({"h": 8, "i": 8}, 8, started=True)
    assert sizes.now == {"h": 2, "i": 1}
    sizes.note("h", 5, question=8)
    sizes.apply({"h": 8, "i": 8}, 8, started=True)  # who comes counts at once
    assert sizes.now == {"h": 5, "i": 1} and sizes.unsaved
    with store.transaction():
        sizes.save()
    assert Sizes(store, {"h": 3, "i": 1}).now == {"h": 5, "i": 1}
    assert Sizes(store, {"i": 1}).now == {"i": 1}
    store.close()


def test_before_the_first_question_every_number_counts_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db")
    sizes = Sizes(store, {"h": 3})
    sizes.note("h", 2, question=0)
    sizes.apply({}, 0, started=False)
    assert sizes.now == {"h": 2}
    store.close()


# Rosters -------------------------------------------------------------------------------------------------------------


def roster(**changes: object) -> bytes:
    return json.dumps({"version": 1, "hospital": "north", "number": 3, "devices": ["a", "b"], **changes}).encode()


def test_a_roster_is_kept_and_an_older_one_changes_nothing(tmp_path: Path) -> None:
    heard: list[int] = []
    kept = Roster("north", tmp_path, lambda: heard.append(1))
    kept.take(roster())
    kept.take(roster(number=2, devices=["x"]))  # somebody has recorded it
    kept.take(roster(number=4))  # the same devices
    assert (kept.number, kept.devices, heard) == (4, ("a", "b"), [1])
    again = Roster("north", tmp_path)
    assert (again.number, again.devices) == (4, ("a", "b"))
    (tmp_path / "roster.json").write_text("{")
    with pytest.raises(UsageError, match=r"roster.json: cannot be read"):
        Roster("north", tmp_path)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"null",
        b"[" * 100_000,
        roster(version=2),
        roster(hospital="south"),
        roster(number=0),
        roster(number=True),
        roster(number="4"),
        roster(devices="ab"),
        roster(devices=["a", "a"]),
        roster(devices=["../a"]),
        roster(devices=[3]),
    ],
)
def test_what_is_no_roster_is_refused(tmp_path: Path, payload: bytes) -> None:
    kept = Roster("north", tmp_path)
    with pytest.raises(PeerError):
        kept.take(payload)
    assert kept.number == 0 and not list(tmp_path.iterdir())


def test_a_roster_that_nobody_wants_is_dropped(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    net = Net(tmp_path, quick.url)
    hospital = net.hospital("h", "a")
    with playing(hospital):
        eventually(lambda: hospital.above and hospital.above.up)
        hospital.dispatcher.take_payload("auscult/v1/agg/h/down/r", roster(hospital="h"))
    assert "a roster does not come here" in caplog.text
