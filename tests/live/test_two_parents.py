"""Two aggregators of one name: their children stay with one of them. Once they went to and fro, and no run ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

OTHER = Run(id="other", method="count", rounds=10**6)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine, no silence is long enough to go back to an earlier run."""
    monkeypatch.setattr("edge_sdk.live.membership.offers.PATIENCE", 10.0**6)


def second_aggregator(base: Path, url: str, name: str = "agg") -> Runtime:
    """Another node of this name with a run of its own, in a directory of its own."""
    net = Net(base / "second", url)
    run = replace(OTHER)
    return net.node(name, roles.AGGREGATOR, None, ("a",), given={"size": 4}, run=run)


def is_in(node: Runtime, run: str) -> Callable[[], bool]:
    return lambda: node.current is not None and node.current.id == run


def test_a_child_stays_with_the_one_that_it_went_to(
    tmp_path: Path, quick: LocalBroker, caplog: pytest.LogCaptureFixture, patient: None
) -> None:
    caplog.set_level(logging.INFO)
    net = Net(tmp_path, quick.url)
    device = net.device("a", "agg")
    with playing(net.aggregator("a"), device):
        eventually(is_in(device, "count"), 60)
        with playing(second_aggregator(tmp_path, quick.url)):
            eventually(is_in(device, "other"), 60)
            eventually(lambda: device.counters["two_parents"] >= 1, 60)
            assert is_in(device, "other")()
            # now: when the second one has said goodbye, the device may go back to the first
            assert "a: run count resumed" not in caplog.text
    assert "two nodes are called agg; stays in other" in caplog.text


def test_a_run_is_gone_back_to_at_once_after_a_goodbye(tmp_path: Path, quick: LocalBroker, patient: None) -> None:
    """Two runs by turns, one aggregator at a time: as when somebody pauses the one for the other."""
    net = Net(tmp_path, quick.url)
    device = net.device("a", "agg")
    with playing(device):
        with playing(net.aggregator("a")):
            eventually(is_in(device, "count"), 60)
        with playing(second_aggregator(tmp_path, quick.url)):
            eventually(is_in(device, "other"), 60)
        with playing(net.aggregator("a")):
            eventually(is_in(device, "count"), 60)
    assert not device.counters["two_parents"]
