"""Numbers of labelled samples: told by devices in steps, and by hospitals as sums over several devices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.contract.children.limits import MOST_LABELLED
from edge_sdk.data.live.windower import LiveWindows
from edge_sdk.data.store.sample_store import SampleStore
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.live.membership.permission import Willingness
from edge_sdk.live.presence.labels import DEVICE_STEP, LabelSum
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire.frames import Birth, pack_frame, unpack_frame
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

pytestmark = pytest.mark.usefixtures("closed_after")


def test_a_sum_is_told_when_enough_devices_have_added_to_it(tmp_path: Path) -> None:
    kept = LabelSum(tmp_path, cohort=3)
    for device, count in (("a", 120), ("b", 140)):
        kept.note(device, count)
    assert kept.told is None
    kept.note("c", 20)
    assert kept.told == 200  # of 280
    kept.note("a", 520)  # by one alone
    kept.note("b", 160)
    assert kept.told == 200 and LabelSum(tmp_path, cohort=3).told == 200
    kept.note("c", 40)
    assert kept.told == 700


def test_a_sum_never_falls_and_counts_nothing_twice(tmp_path: Path) -> None:
    kept = LabelSum(tmp_path, cohort=1)
    for count in (100, 100, 300, 0, 200):  # the device has lost its disk, and begins anew
        kept.note("a", count)
    again = LabelSum(tmp_path, cohort=1)
    assert (kept.told, kept.total, again.told, again.heard) == (500, 500, 500, {"a": 200})
    (tmp_path / "labels.json").write_text('{"version": 1}')
    with pytest.raises(UsageError, match="counting begins anew"):
        LabelSum(tmp_path)


def test_no_device_makes_a_sum_that_the_service_above_refuses(tmp_path: Path) -> None:
    """One device that told of 2**53 labels once had all reports of its hospital refused, also after a restart."""
    with pytest.raises(PeerError, match="1000000001 labelled"):
        unpack_frame(pack_frame(Birth("a", 1, 2, labelled=MOST_LABELLED + 1)))
    kept = LabelSum(tmp_path, cohort=1)
    kept.note("a", 2**63 - 1)
    assert kept.told == kept.total == MOST_LABELLED
    saved = {"version": 1, "heard": {"a": 2**53}, "total": 2**53 + 80, "adding": ["b"], "told": 2**53 + 8}
    (tmp_path / "labels.json").write_text(json.dumps(saved))  # of a version that knew no bounds
    again = LabelSum(tmp_path, cohort=1)
    assert again.told is not None and 2**53 - 100 < again.told <= again.total == 2**53
    again.note("b", MOST_LABELLED)
    assert again.told <= again.total == 2**53


def test_a_store_counts_labels_that_it_gave_whatever_is_deleted(tmp_path: Path) -> None:
    store = SampleStore(tmp_path, (1, 4))
    times = np.arange(5.0)
    windows = LiveWindows(np.zeros((5, 1, 4), np.float32), times, times + 0.5, np.zeros(5, np.int64))
    store.add(windows)
    assert store.label("walk", 0.0, 2.9) == 3 and store.labels_given == 3
    store.label("sit", 0.0, 1.9)  # the same windows
    store.add(LiveWindows(windows.x[:1], times[:1] + 0.5, times[:1] + 1.0, np.ones(1, np.int64)))
    assert store.labels_given == 4
    store.forget()
    store.close()
    assert SampleStore(tmp_path, (1, 4)).labels_given == 4


def test_a_birth_that_tells_nothing_of_labels_has_the_bytes_that_it_had() -> None:
    birth = Birth("a", 1, 2, run="count", devices=3)
    told = Birth("a", 1, 2, run="count", devices=3, labelled=40)
    assert unpack_frame(pack_frame(told)) == told and unpack_frame(pack_frame(birth)) == birth
    assert pack_frame(birth)[2:] != pack_frame(told)[2:] and pack_frame(birth)[2:3] == b"\x9c"  # 12 fields, as before


def test_a_hospital_hears_of_labels_in_steps_and_only_from_who_tells(tmp_path: Path, quick: LocalBroker) -> None:
    net, given = Net(tmp_path, quick.url), [0]
    hospital = net.hospital("h", "a", "b")
    hospital.neighbours.labels = kept = LabelSum(tmp_path, cohort=1)
    teller = net.device("a", "h", willingness=Willingness(count=lambda: given[0]))
    with playing(hospital, teller, net.device("b", "h")):
        eventually(lambda: {*hospital.presence.children} == {"a", "b"})
        assert not kept.heard
        given[0] = 3 * DEVICE_STEP + 7
        teller.wake()
        eventually(lambda: kept.heard)
    assert kept.heard == {"a": 3 * DEVICE_STEP}
