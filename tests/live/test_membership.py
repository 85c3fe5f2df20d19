"""Runs and peers that come and go: restarts, replaced disks, runs that cannot be used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.errors import Cancelled, UsageError
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Live, Net, playing


def test_the_order_of_coming_does_not_matter(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    device, hospital = net.device("a", "h"), net.hospital("h", "a")
    with playing(device):
        eventually(lambda: device.above and device.above.up)
        with playing(hospital):
            eventually(lambda: hospital.presence.children)
            assert hospital.here == () and hospital.current is None
            with playing(net.aggregator("h", rounds=2)):
                eventually(lambda: net.rounds == 2)


def test_a_restarted_node_resumes_without_its_parent(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    with playing(net.aggregator("a", rounds=2), net.device("a", "agg")):
        eventually(lambda: net.rounds == 2)
    device = net.device("a", "agg")
    with playing(device):
        run = eventually(lambda: device.current)
        assert run.id == "count" and device.session is not None
        assert device.session.node.record.state == roles.Tally(2, 2)


def test_a_replaced_child_is_asked_again(tmp_path: Path, quick: LocalBroker) -> None:
    """It had taken the question in, and then lost its disk."""
    begun, free = threading.Event(), threading.Event()

    def work(round: int) -> None:
        begun.set()
        eventually(lambda: free.is_set() or first.cancelled())
        raise Cancelled("unplugged")

    net = Net(tmp_path, quick.url)
    aggregator, first = net.aggregator("a", rounds=2), net.device("a", "agg", work)
    with playing(aggregator):
        with playing(first):
            assert begun.wait(20)
            session = aggregator.session
            assert session is not None
            eventually(lambda: not session.outbox.pending)
        with playing(net.device("a", "agg", directory=tmp_path / "new")):
            eventually(lambda: net.rounds == 2)
        assert aggregator.counters["replaced.a"] == 1


def test_a_run_that_cannot_be_used_is_reported_to_the_parent(tmp_path: Path, quick: LocalBroker) -> None:
    def assemble(run: Run) -> roles.Assembly:
        raise UsageError("bundle 1234 is not here")

    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("a"), net.device("a", "agg", assemble=assemble)
    with playing(aggregator, device):
        eventually(lambda: "bundle 1234" in aggregator.presence.refusals.get("a", ""))
        assert aggregator.here == () and device.current is None


@pytest.mark.parametrize("worker", [True, False], ids=["worker", "inline"])
def test_a_run_that_turns_out_to_be_of_no_use_is_refused_as_well(
    tmp_path: Path, quick: LocalBroker, worker: bool
) -> None:
    """A role may find out only when it works. The others go on, and it takes part again once that is put right."""

    def unfit(round: int) -> None:
        raise UsageError("40 public inputs, a batch has 64")

    net = Net(tmp_path, quick.url)
    aggregator, other = net.aggregator("a", "b"), net.device("b", "agg", lambda round: time.sleep(0.01), worker=worker)
    device = net.device("a", "agg", unfit, worker=worker)
    with playing(aggregator, other):
        with playing(device):
            eventually(lambda: "40 public inputs" in aggregator.presence.refusals.get("a", ""))
            assert "a" not in aggregator.here and device.session is None and "40 public inputs" in device.refusal
            eventually(lambda: net.rounds >= 2)  # nobody waits for it
        with playing(net.device("a", "agg", worker=worker)):
            eventually(lambda: net.told[-1][1].devices == 2)
    assert [done.round for _, done in net.told] == list(range(1, net.rounds + 1))


def test_a_run_that_nobody_can_take_part_in_waits(tmp_path: Path, quick: LocalBroker) -> None:
    """Its rounds are not used up by nobody: they are there when what was wrong is put right."""

    def unfit(round: int) -> None:
        raise UsageError("40 public inputs, a batch has 64")

    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a", "b", rounds=3)
    with playing(aggregator):
        with playing(net.device("a", "agg", unfit), net.device("b", "agg", unfit)):
            eventually(lambda: set(aggregator.presence.refusals) == {"a", "b"})
            assert net.rounds == 0
        with playing(net.device("a", "agg"), net.device("b", "agg")):
            eventually(lambda: net.rounds == 3)
    assert [done.round for _, done in net.told] == [1, 2, 3]
    assert all(done.devices > 0 for _, done in net.told)  # whoever refused first was not waited for in the first one


def test_who_leaves_is_not_here(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a")
    with playing(aggregator):
        with playing(net.device("a", "agg")):
            eventually(lambda: aggregator.here == ("a",))
        eventually(lambda: aggregator.here == ())


def test_two_processes_do_not_share_a_directory(
    tmp_path: Path, quick: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_sdk.live.presence.directory.PATIENCE", 0.1)
    net = Net(tmp_path, quick.url)
    first = net.device("a", "agg")
    with Live(first):
        eventually(lambda: first.above and first.above.up)
        with pytest.raises(UsageError, match="another process"):
            net.device("a", "agg").run()


def test_a_run_begun_with_other_settings_is_refused(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    with playing(net.aggregator(rounds=2)):
        eventually(lambda: (tmp_path / "agg" / "current").exists())
    with pytest.raises(UsageError, match="other settings"):
        net.aggregator(rounds=3).run()


def test_a_replaced_hospital_is_not_refused(tmp_path: Path, quick: LocalBroker) -> None:
    """It counts its questions from 1 again, and its devices have heard higher numbers."""
    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("h"), net.device("a", "h")
    with playing(aggregator, device):
        with playing(net.hospital("h", "a")):
            eventually(lambda: net.rounds >= 5)
        with playing(net.hospital("h", "a", directory=tmp_path / "new")):
            reached = net.rounds
            eventually(lambda: net.rounds >= reached + 5)
        assert device.counters["replaced.h"] == 1 and aggregator.counters["replaced.h"] == 1
    assert all(done.devices == 1 for _, done in net.told)


def test_the_second_device_of_one_name_is_told_so_and_ends(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker throws each out when the other comes. They once did that to each other for ever."""
    net, other = Net(tmp_path, quick.url), Net(tmp_path / "other", quick.url)
    aggregator, first, second = net.aggregator("a"), net.device("a", "agg"), other.device("a", "agg")
    with playing(aggregator, first):
        eventually(lambda: net.rounds >= 2)
        with pytest.raises(UsageError, match="agg says: another node has the name a already"):
            second.run(until=within(30))
        reached = net.rounds
        eventually(lambda: net.rounds >= reached + 5)  # the first may be thrown out once more before it knows
        came = first.above and first.above.connection
        eventually(lambda: net.rounds >= reached + 10)
        assert came and first.above and first.above.connection is came
    assert "a comes by turns from two disks: two nodes use this name" in caplog.text


def within(seconds: float) -> Callable[[], bool]:
    """An end for whatever would go on for longer."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def test_a_device_whose_disk_was_replaced_is_one_device(tmp_path: Path, quick: LocalBroker) -> None:
    net, replaced = Net(tmp_path, quick.url), Net(tmp_path / "new", quick.url)
    aggregator = net.aggregator("a")
    with playing(aggregator):
        for made in (net, net, replaced, replaced):
            reached = net.rounds
            with playing(made.device("a", "agg")):
                eventually(lambda reached=reached: net.rounds >= reached + 2)  # type: ignore[misc]
    assert not aggregator.counters["name_twice.a"]


def test_settings_that_count_other_devices_are_refused_until_one_is_corrected(
    tmp_path: Path, quick: LocalBroker
) -> None:
    """At the first meeting, before anything is counted; and neither run nor hospital has to be begun anew."""
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("h", sizes={"h": 2})
    said = "run count: the settings of h name 3 devices, those of agg say that it has 2"
    with playing(net.device("a", "h"), net.device("b", "h")):
        with playing(aggregator):
            for _ in range(2):  # the second time there is a run to resume
                with playing(wrong := net.hospital("h", "a", "b", "c")):
                    eventually(lambda: said in aggregator.presence.refusals.get("h", ""))
                    assert said in wrong.refusal and wrong.session is None
                reached = net.rounds
                with playing(net.hospital("h", "a", "b")):
                    eventually(lambda reached=reached: net.rounds >= reached + 3)  # type: ignore[misc]
            newcomer = net.hospital("h", "a", "b", "c", wait_for=2)
            newcomer.membership.assemble = lambda run: roles.assembly(roles.HOSPITAL, run)  # asks who is here
            with playing(newcomer):
                reached = net.rounds
                eventually(lambda: net.rounds >= reached + 3)
        with playing(wrong := net.hospital("h", "a", "b", "c", wait_for=3)), playing(net.device("c", "h")):
            with playing(net.aggregator("h", sizes={"h": 2})):
                eventually(lambda: said in wrong.refusal)
            with playing(net.aggregator("h", sizes={"h": 3})):
                eventually(lambda: net.told[-1][1].devices == 3)
    assert {done.devices for _, done in net.told} == {2, 3}
