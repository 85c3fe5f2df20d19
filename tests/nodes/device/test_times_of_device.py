"""Times that an application gives: what are no seconds since 1970 is refused, and where no window comes, it is said."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.data.store.index import StoreUnusable
from edge_sdk.errors import UsageError
from edge_sdk.nodes.device.device import Device
from tests.nodes.device.test_live_device import BEGAN, make_device, observe_in_pieces, signal_of

WRONG: tuple[tuple[Any, Any], ...] = (
    (BEGAN * 1000, BEGAN * 1000 + 5),
    (BEGAN + 90, BEGAN),
    (float("nan"), BEGAN),
    (BEGAN, float("nan")),
    ("a", BEGAN),
    (datetime.fromtimestamp(BEGAN, UTC), BEGAN),
    (np.datetime64("2024-01-01"), np.datetime64("2024-01-02")),
    (True, BEGAN),
)


@pytest.mark.parametrize(("began", "ended"), WRONG)
def test_what_is_no_stretch_of_time_erases_and_labels_nothing_and_is_refused(
    tmp_path: Path, began: Any, ended: Any
) -> None:
    device = make_device(tmp_path)
    observe_in_pieces(device, 10)
    for use in (device.forget, device.unlabel, lambda a, b: device.label("walk", a, b)):
        with pytest.raises(UsageError, match="seconds since 1970"):
            use(began, ended)
    assert device.count_windows() == {"": 9} and device.forget(BEGAN, float("inf")) == 9
    device.close()


@pytest.mark.parametrize(
    "time", [BEGAN * 1e3, BEGAN * 1e6, datetime.fromtimestamp(BEGAN, UTC), np.datetime64(1, "ns"), float("nan"), "now"]
)
def test_times_that_are_no_seconds_are_refused(tmp_path: Path, time: Any) -> None:
    device = make_device(tmp_path)
    with pytest.raises(UsageError, match="seconds since 1970"):
        device.observe(np.zeros((4, 3)), time=time)
    device.close()


def test_why_no_window_comes_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = make_device(tmp_path)
    times, values = signal_of(80)
    with caplog.at_level(logging.WARNING):
        for at in range(0, len(times), 10):
            device.observe(
                values[at : at + 10], time=(times[at : at + 10] - BEGAN) * 1000
            )  # ms since it was switched on
        device.flush()
    said = [line for line in caplog.messages if "no window has come" in line]
    assert len(said) == 1 and "longer than 0.5 s" in said[0] and "not milliseconds" in said[0]
    device.close()


def test_many_samples_at_once_that_make_windows_are_nothing_to_tell_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = make_device(tmp_path)
    with caplog.at_level(logging.WARNING):
        device.observe(signal_of(50)[1], time=BEGAN)
        assert device.count_windows()[""] == 49
    assert not caplog.messages
    device.close()


def spans(device: Device) -> list[tuple[float, float]]:
    """When the windows of a device's store began and ended, in seconds from BEGAN."""
    device.flush()
    found = device.live.open().store.select("1 ORDER BY began")
    return [(a - BEGAN, b - BEGAN) for a, b in zip(found.began.tolist(), found.ended.tolist(), strict=True)]


@pytest.mark.parametrize("size", [50, 320])
@pytest.mark.parametrize("back", [1.0, 7.3, 20.0])
def test_a_clock_that_is_set_back_makes_no_window_of_a_time_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int, back: float
) -> None:
    device = make_device(tmp_path)
    device.label("walk", BEGAN, BEGAN + 20)
    stream = device.predictions()
    with caplog.at_level(logging.WARNING):
        observe_in_pieces(device, 20, size=size)
        before = spans(device)
        observe_in_pieces(device, 40, first=20 - back, size=size)
        found = spans(device)
    assert found[: len(before)] == before and device.count_windows()["walk"] == 19
    later = [began for began in (20 - back + k for k in range(39)) if began > before[-1][1] - 0.5]
    assert [began for began, _ in found[len(before) :]] == pytest.approx(later), "a second is recorded once"
    said = [line for line in caplog.messages if "left out" in line]
    assert len(said) == 1 and "was recorded already" in said[0]
    device.close()
    assert len([*stream]) > 19 + 30, "what is predicted is of this moment, whatever the clock says"


def test_what_is_handed_over_again_counts_once_also_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        for _ in range(2):
            device = make_device(tmp_path)
            for _ in range(2):
                observe_in_pieces(device, 20)
                device.flush()
            assert device.count_windows() == {"": 19}
            device.close()
        device = make_device(tmp_path)
        device.forget(BEGAN, BEGAN + 10)
        observe_in_pieces(device, 20)
        assert device.count_windows() == {"": 18}, "what is erased may come again"
        device.forget()
        device.close()


def test_a_clock_that_was_ahead_takes_no_other_time_up(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    observe_in_pieces(device, 20, first=3e8)
    observe_in_pieces(device, 20)
    assert device.count_windows() == {"": 38}
    device.close()


def test_samples_that_are_lost_on_a_full_disk_are_told_by_flush_once(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    store = device.live.open().store
    add = store.add
    store.add = lambda *_: (_ for _ in ()).throw(OSError(28, "No space left"))  # type: ignore[method-assign]
    device.observe(signal_of(5)[1], time=BEGAN)
    with pytest.raises(StoreUnusable, match=rf"{tmp_path}.*: 160 samples could not be saved.*No space left"):
        device.flush()
    store.add = add  # type: ignore[method-assign]
    device.observe(signal_of(5)[1], time=BEGAN + 5)
    device.flush()
    assert device.count_windows()[""] >= 4
    device.close()


def test_a_probability_above_one_is_refused_by_predict_too(tmp_path: Path) -> None:
    device = make_device(tmp_path)
    for use in (
        lambda a: device.predict(np.zeros((1, 3, 64), np.float32), abstain=a),
        lambda a: device.predictions(abstain=a),
    ):
        for abstain in (70, -0.1, float("nan")):
            with pytest.raises(UsageError, match=r"abstain = .* a probability"):
                use(abstain)
    device.close()
