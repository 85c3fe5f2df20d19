"""Two trainings side by side at one hospital, for devices with different bundles, over a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.replay.planning.bundles import compile_network
from tests.delivery.fleet import eventually
from tests.system.house import LAST_LANE, PATIENCE, PHONES, ROUNDS, WATCHES, House, Top, end, going

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("tomli_w", reason="settings files are written with tomli-w")
pytestmark = pytest.mark.long
BOTH = (*WATCHES, *PHONES)


@pytest.fixture(scope="module")
def bundles() -> dict[str, Path]:
    """Device -> its bundle: two models of one shape that begin otherwise."""
    made = [compile_network("mlp", ["--input", "30", "--classes", "2"], seed, print) for seed in (0, 1)]
    return dict.fromkeys(WATCHES, made[0]) | dict.fromkeys(PHONES, made[1])


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def alone(base: Path, url: str, bundles: dict[str, Path], id: str, method: str, devices: tuple[str, ...]) -> Any:
    """The model of a run at a hospital that has these devices and nothing else to do."""
    with House(base / f"alone-{id}", url, bundles, devices) as house:
        top = Top(house, id, method, devices)
        with going(top):
            end(house, top)
        return top.model()


def side_by_side(phones: Path) -> dict[str, Any]:
    """Settings of a hospital that has both kinds of devices."""
    return {"trainings": 2, "kinds": {"phones": {"bundle": phones, "devices": PHONES}}}


def test_two_trainings_with_two_bundles_end_as_each_of_them_alone_though_the_hospital_is_killed(
    tmp_path: Path, quick: LocalBroker, bundles: dict[str, Path]
) -> None:
    with House(tmp_path / "both", quick.url, bundles, BOTH, **side_by_side(bundles["phone-1"])) as house:
        a = Top(house, "a", "fedavg", WATCHES)
        b = Top(house, "b", "fedbcd", PHONES, lane=LAST_LANE)
        with going(a, b):
            eventually(lambda: min(len(a.counts), len(b.counts)) >= 3, PATIENCE)
            house.kill("h")
            assert not (a.node.finished.is_set() or b.node.finished.is_set()), "it was killed in the middle of both"
            house.start("h")
            end(house, a, b)
        assert a.counts == b.counts == [2] * ROUNDS, "each round was played once, with both devices of its kind"
        made = a.model(), b.model()
        assert "Traceback" not in house.logs()
    assert equal(made[0], alone(tmp_path, quick.url, bundles, "a", "fedavg", WATCHES))
    assert equal(made[1], alone(tmp_path, quick.url, bundles, "b", "fedbcd", PHONES))


def refusal_of(top: Top) -> str:
    """Why the hospital does not take part in a run, once it has said so."""
    eventually(lambda: "h" in top.node.runtime.presence.refusals, PATIENCE)
    return top.node.runtime.presence.refusals["h"]


def test_a_second_training_of_a_device_is_refused_until_the_first_has_ended(
    tmp_path: Path, quick: LocalBroker, bundles: dict[str, Path]
) -> None:
    with House(tmp_path / "both", quick.url, bundles, BOTH, **side_by_side(bundles["phone-1"])) as house:
        a = Top(house, "a", "fedavg", WATCHES)
        b = Top(house, "b", "fedbcd", WATCHES[1:], lane=LAST_LANE, devices=WATCHES[1:])
        with going(a):
            eventually(lambda: len(a.counts) >= 3, PATIENCE)
            with going(b):
                assert refusal_of(b) == "run b: watch-2 is in run a: a device takes part in one training at a time"
                end(house, a, b)
        assert a.counts == [2] * ROUNDS and b.counts == [1] * ROUNDS


def test_who_has_gone_away_gives_its_devices_to_the_next_and_is_taken_up_again(
    tmp_path: Path, quick: LocalBroker, bundles: dict[str, Path]
) -> None:
    with House(tmp_path / "both", quick.url, bundles, BOTH, **side_by_side(bundles["phone-1"])) as house:
        a = Top(house, "a", "fedavg", WATCHES, lane=LAST_LANE)
        with going(a):
            eventually(lambda: len(a.counts) >= 3, PATIENCE)
        c = Top(house, "c", "fedbcd", WATCHES)
        with going(c):
            eventually(lambda: len(c.counts) >= 3, PATIENCE)
            house.kill("h")
            house.start("h")  # it knows of both runs, and whose the devices are
            end(house, c)
        again = Top(house, "a", "fedavg", WATCHES, lane=LAST_LANE)
        again.counts += a.counts
        with going(again):
            end(house, again)
        assert c.counts == again.counts == [2] * ROUNDS


def test_each_run_is_approved_by_itself(tmp_path: Path, quick: LocalBroker, bundles: dict[str, Path]) -> None:
    rules = {"allow": {"scores_of": 1, "methods": ["fedavg"]}}
    with House(tmp_path / "both", quick.url, bundles, BOTH, **side_by_side(bundles["phone-1"]), **rules) as house:
        a, b = Top(house, "a", "fedavg", WATCHES), Top(house, "b", "fedbcd", PHONES, lane=LAST_LANE)
        with going(a, b):
            assert refusal_of(b) == "run b: method fedbcd is not allowed here; allowed: fedavg"
            end(house, a)
        assert a.counts == [2] * ROUNDS and not b.counts
