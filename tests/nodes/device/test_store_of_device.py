"""The store of a device: windows of one signal only, one owner, what is lost or cannot be erased, and said so."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.data.recording import Recording, StoreLimits
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import LocalTraining
from tests.model.bundle_files import repacked
from tests.nodes.device.test_live_device import (
    BEGAN,
    RECORDING,
    WRIST,
    make_device,
    make_run,
    observe_in_pieces,
    signal_of,
)

SIGNAL = read_bundle(WRIST).manifest["signal"]


def bundle_with(folder: Path, **signal: Any) -> Path:
    """The shipped bundle, but of another signal of the same shape."""
    file = folder / f"{abs(hash(str(signal)))}.bundle"
    file.write_bytes(repacked(read_bundle(WRIST), {"signal": SIGNAL | signal}))
    return file


def device_of(bundle: Path, directory: Path) -> Device:
    training = LocalTraining(recording=RECORDING)
    return Device(
        "d1", hospital="h", broker="mqtt://127.0.0.1:1", bundle=bundle, directory=directory, training=training
    )


OTHERS = (
    {"rate_hz": 64.0},
    {"channels": list(reversed(SIGNAL["channels"]))},
    {"units": ["m/s2"] * 3},
    {"stride": SIGNAL["stride"] // 2},
)


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: next(iter(other)))
def test_windows_of_another_signal_do_not_come_into_one_store(tmp_path: Path, other: dict[str, Any]) -> None:
    with_bundle, state = bundle_with(tmp_path, **other), tmp_path / "state"
    device = make_device(state)
    observe_in_pieces(device, 10)
    device.close()
    later = device_of(with_bundle, state)
    with pytest.raises(UsageError, match=r"windows are of ax .* at 32 Hz.*another directory, or erase .*forget\(\)"):
        later.observe(np.zeros((4, 3)), time=BEGAN + 100)
    later.close()
    again = make_device(state)
    assert again.count_windows() == {"": 9} and again.forget() == 9
    again.close()
    later = device_of(with_bundle, state)
    assert later.count_windows() == {}  # it is open, for there is nothing in it
    later.close()


def test_what_was_observed_is_for_the_nodes_user_alone(tmp_path: Path) -> None:
    """The folder was closed to others, and the files in it were not, as docs/operate.md says they are."""
    with make_device(tmp_path) as device:
        observe_in_pieces(device, 10)
        files = [path for path in device.live.directory.iterdir() if path.name.startswith("samples.db")]
        assert len(files) == 3 and all(path.stat().st_mode & 0o077 == 0 for path in files)


def test_windows_stay_with_a_bundle_that_normalises_otherwise(tmp_path: Path) -> None:
    device = make_device(tmp_path / "state")
    observe_in_pieces(device, 10)
    device.close()
    scale = {"normalise": {"mean": [0.5] * 3, "scale": [2.0] * 3}}
    later = device_of(bundle_with(tmp_path, **scale), tmp_path / "state")
    assert later.count_windows() == {"": 9}
    later.close()


def test_a_store_that_knows_no_signal_takes_the_present_one(tmp_path: Path) -> None:
    device = make_device(tmp_path / "state")
    observe_in_pieces(device, 10)
    device.flush()
    device.live.open().store.index.run("DELETE FROM facts WHERE name IN ('signal', 'first_parts')")  # as of 0.2.0
    device.close()
    again = make_device(tmp_path / "state")
    assert again.count_windows() == {"": 9}
    again.close()
    with pytest.raises(UsageError, match="at 64 Hz"):
        device_of(bundle_with(tmp_path, rate_hz=64.0), tmp_path / "state").count_windows()


# Held out --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("attempt", range(3))
def test_of_two_recordings_one_is_trained_on_and_one_held_out(tmp_path: Path, attempt: int) -> None:
    limits = StoreLimits(megabytes=4, days=1e5, held_out=(0.05, 0.5, 0.95)[attempt])
    device = make_device(tmp_path, recording=Recording(limits=limits, least=1))
    observe_in_pieces(device, 10)
    observe_in_pieces(device, 10, first=100)
    device.label("walk", BEGAN, BEGAN + 200)
    found = device.live.open().store.labelled()
    assert found.held.tolist() == [False] * 9 + [True] * 9
    device.close()
    device = make_device(tmp_path, recording=Recording(limits=limits, least=1))
    device.forget()
    observe_in_pieces(device, 10, first=100)  # the second one again: what was decided stays
    device.label("walk", BEGAN, BEGAN + 200)
    assert device.live.open().store.labelled().held.all()
    with pytest.raises(UsageError, match=r"0 labelled windows to train on, and 9 held out.* other recordings"):
        device.part.env(make_run(device))
    device.close()


def test_recordings_of_an_earlier_store_keep_their_part(tmp_path: Path) -> None:
    limits = StoreLimits(megabytes=4, days=1e5)
    device = make_device(tmp_path, recording=Recording(limits=limits, least=1))
    observe_in_pieces(device, 10)
    device.flush()
    index = device.live.open().store.index
    index.run("UPDATE windows SET held = 1")
    index.run("DELETE FROM facts WHERE name = 'first_parts'")  # as 0.2.0 has drawn it
    device.close()
    device = make_device(tmp_path, recording=Recording(limits=limits, least=1))
    observe_in_pieces(device, 10)
    observe_in_pieces(device, 10, first=100)
    device.label("walk", BEGAN, BEGAN + 200)
    found = device.live.open().store.labelled()
    assert found.held[found.began < BEGAN + 50].all() and not found.held[found.began > BEGAN + 50].any()
    device.close()


# Erased ----------------------------------------------------------------------------------------------------------
def marked(seconds: float, first: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """A signal that is found again in any file, unless a window of it is encrypted or erased: 7.25 throughout."""
    times, values = signal_of(seconds, first)
    return times, np.full_like(values, 7.25)


def is_anywhere(directory: Path) -> list[str]:
    """Files in which there is a second of that signal."""
    mark = np.full(32, 7.25, "<f4").tobytes()
    return [str(path.name) for path in directory.rglob("*") if path.is_file() and mark in path.read_bytes()]


def test_what_is_erased_is_in_no_window_that_was_not_whole_then(tmp_path: Path) -> None:
    with make_device(tmp_path) as device:
        times, values = marked(3.9)
        device.observe(values, time=float(times[0]))
        assert device.forget() > 0
        later, rest = signal_of(10, first=3.9)
        device.observe(rest, time=float(later[0]))
        assert device.count_windows()[""] > 5
        store = device.live.open().store
        windows = [store.read(int(id)) for id in store.unlabelled(100, 100).ids]
        assert not any((window == 7.25).any() for window in windows)


@pytest.mark.parametrize("channel", [False, True])
def test_nor_where_the_sensor_has_another_rate(tmp_path: Path, channel: bool) -> None:
    with make_device(tmp_path, recording=replace(RECORDING, sensor_hz=64.0)) as device:
        for seconds, first, mark in ((3.9, 0.0, True), (10.0, 3.9, False)):
            times, values = signal_of(seconds, first, rate=64.0)
            values = np.full_like(values, 7.25) if mark else values
            if channel:
                for place, name in enumerate(("ax", "ay", "az")):
                    device.observe(values[:, place], time=float(times[0]), channel=name)
            else:
                device.observe(values, time=float(times[0]))
            assert not mark or device.forget() > 0
        device.flush()
        store = device.live.open().store
        windows = [store.read(int(id)) for id in store.unlabelled(100, 100).ids]
        assert len(windows) > 5 and not any((window == 7.25).any() for window in windows)


@pytest.mark.parametrize("damaged", [False, True])
def test_what_is_erased_is_in_no_copy_that_a_process_before_this_one_has_made(tmp_path: Path, damaged: bool) -> None:
    with make_device(tmp_path) as device:
        times, values = marked(30)
        device.observe(values, time=float(times[0]))
        device.label("walk", BEGAN, BEGAN + 15)
        run = make_run(device)
        device.part.env(run)
        device.live.open().freeze_unlabelled(run.id)
    copies = [*tmp_path.rglob("*.npy")]
    assert len(copies) == 2 and len(is_anywhere(tmp_path)) >= 3
    if damaged:
        copies[0].with_suffix(".npz").unlink()
    with make_device(tmp_path) as device:
        assert device.forget() == 29
        assert is_anywhere(tmp_path) == []


def test_a_run_goes_on_with_as_many_samples_as_it_had(tmp_path: Path) -> None:
    with make_device(tmp_path) as device:
        observe_in_pieces(device, 60)
        device.label("walk", BEGAN, BEGAN + 60)
        run = make_run(device)
        before = device.part.env(run).samples
    with make_device(tmp_path) as device:
        device.forget(BEGAN, BEGAN + 30)
        assert device.part.env(run).samples == before


def test_what_is_erased_is_in_no_database_that_was_put_aside_as_damaged(tmp_path: Path) -> None:
    with make_device(tmp_path) as device:
        times, values = marked(30)
        device.observe(values, time=float(times[0]))
        database = device.live.directory / "samples.db"
    with database.open("r+b") as file:
        file.write(b"no database")
    with make_device(tmp_path) as device:
        assert device.count_windows() == {} and is_anywhere(tmp_path) == ["samples.db.damaged"]
        device.forget(BEGAN, BEGAN + 1)
        assert is_anywhere(tmp_path) == []


def test_what_is_erased_while_a_copy_is_made_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_device(tmp_path) as device:
        times, values = marked(30)
        device.observe(values, time=float(times[0]))
        device.label("walk", BEGAN, BEGAN + 30)
        live, run = device.live.open(), make_run(device)
        halfway, read = threading.Event(), live.store.read
        erasing = threading.Thread(target=lambda: (halfway.wait(), device.forget()))
        erasing.start()

        def slow(id: int) -> Any:
            if not halfway.is_set() and id > 20:
                halfway.set()
                erasing.join(0.2)  # long enough for it to erase, if nothing holds it up
            return read(id)

        monkeypatch.setattr(live.store, "read", slow)
        live.freeze(run.id, device.part.model.task, run.classes)
        erasing.join()
        assert is_anywhere(tmp_path) == []
