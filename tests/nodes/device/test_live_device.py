"""A device that observes: windows, labels, predictions as they come, erasure, kills, forks, asyncio."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.data.recording import Recording, StoreLimits
from edge_sdk.data.store.index import StoreUnusable
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.methods.shared.evaluation.reports import Models
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import LocalTraining
from tests.delivery.fleet import eventually

ROOT = Path(__file__).parents[3]
WRIST = ROOT / "models" / "shipped" / "wrist.bundle"
BEGAN, RATE = 1_700_000_000.0, 32.0
NAMES = ("walk", "sit")
RECORDING = Recording(limits=StoreLimits(megabytes=4, days=1e5, held_out=0.0), least=1)


def make_device(directory: Path, recording: Recording = RECORDING) -> Device:
    training = LocalTraining(recording=recording)
    return Device("d1", hospital="h", broker="mqtt://127.0.0.1:1", bundle=WRIST, directory=directory, training=training)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    made = make_device(tmp_path)
    yield made
    made.close()


def signal_of(seconds: float, first: float = 0.0, rate: float = RATE) -> tuple[np.ndarray, np.ndarray]:
    t = first + np.arange(int(seconds * rate)) / rate
    return BEGAN + t, np.stack([np.sin(t), np.cos(t), np.sin(3 * t)], 1).astype(np.float32)


def observe_in_pieces(device: Device, seconds: float, first: float = 0.0, size: int = 50) -> None:
    times, values = signal_of(seconds, first)
    for at in range(0, len(times), size):
        device.observe(values[at : at + size], time=float(times[at]))
        if at % 1000 == 0:
            device.live.open().flush()  # an app would come this fast only from a file


def make_run(device: Device, id: str = "r") -> Run:
    return Run(id=id, method="fedavg", bundle=device.part.model.sha256, classes=NAMES)


def test_what_is_observed_and_labelled_is_trained_on(device: Device) -> None:
    observe_in_pieces(device, 1000)
    assert device.count_windows() == {"": 299 * 3 + 99}  # recordings of 300 s, and no window across their ends
    labelled = device.label("walk", BEGAN + 100, BEGAN + 500) + device.label("sit", BEGAN + 600, BEGAN + 900)
    assert labelled > 600
    env = device.part.env(make_run(device))
    loss, gradient = env.grad_fn(device.part.model.theta0, np.arange(env.samples))
    assert np.isfinite(loss) and gradient.any() and env.samples == labelled
    assert device.unlabel(BEGAN, BEGAN + 2000) == labelled
    with pytest.raises(UsageError, match="nothing is labelled yet"):
        device.part.env(make_run(device, "r2"))


def test_a_device_tells_of_labels_only_if_its_owner_lets_it(device: Device, tmp_path: Path) -> None:
    assert device.runtime.willingness.count() == 0
    teller = make_device(tmp_path / "teller", recording=replace(RECORDING, tells_labels=True))
    for each in (device, teller):
        observe_in_pieces(each, 200)
        each.label("walk", BEGAN, BEGAN + 100)
    assert device.runtime.willingness.count() == 0 and teller.runtime.willingness.count() == 99
    teller.close()
    again = make_device(tmp_path / "teller", recording=replace(RECORDING, tells_labels=True))
    assert again.runtime.willingness.count() == 99  # before anything is observed
    again.close()


def test_samples_wait_in_bounded_memory_and_the_oldest_are_lost(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    live = device.live.open()
    live.begin = lambda: None  # type: ignore[method-assign]  # the thread does not keep up at all
    times, values = signal_of(600)
    for at in range(0, len(times), 32):
        device.observe(values[at : at + 32], time=float(times[at]))
        assert live.waiting <= live.most and len(live.queue) <= 61
    assert live.lost == len(times) - live.waiting
    del live.begin
    with caplog.at_level(logging.WARNING):
        live.begin()
        assert 50 < device.count_windows()[""] < 60
    assert "samples are lost" in caplog.text


def test_channels_may_come_one_by_one(device: Device) -> None:
    times, values = signal_of(20)
    for at in range(0, len(times), 20):
        for place, name in enumerate(("ax", "ay", "az")):
            device.observe(values[at : at + 20, place], time=float(times[at]), channel=name)
    assert device.count_windows()[""] >= 17


def test_predictions_come_with_the_windows_and_a_new_model_takes_over_between_two(device: Device) -> None:
    stream = device.predictions(smooth=3, abstain=0.2)
    observe_in_pieces(device, 10)
    first = [next(stream) for _ in range(9)]
    assert {p.model for p in first} == {"initial"} and first[0].time == pytest.approx(BEGAN + 63 / RATE)
    assert all((p.label is None) == (p.probability < 0.2) for p in first)
    run = make_run(device)
    device.label("walk", BEGAN, BEGAN + 10)
    device.part.assemble(run)
    device.part.receive_event(1, Models(1, {"personal": device.part.model.theta0}))
    device.part.receive_event(2, Finished(1))
    observe_in_pieces(device, 10, first=10)
    then = [next(stream) for _ in range(9)]
    assert {p.model for p in then} == {"personal"} and then[0].classes == NAMES
    x = next(iter(device.live.open().store.labelled().ids))
    window = device.live.open().store.read(int(x))
    np.testing.assert_allclose(device.predict(window)[0].probabilities.sum(), 1)
    device.close()
    assert [*stream] == [] or all(p.run == "r" for p in stream)


def test_a_stream_of_predictions_is_the_mean_over_the_last_windows(device: Device) -> None:
    stream = device.predictions(smooth=4)
    observe_in_pieces(device, 12)
    found = [next(stream) for _ in range(10)]
    _, values = signal_of(12)
    windows = np.stack([values[at : at + 64].T for at in range(0, 320, 32)])
    wanted = device.predict(windows, smooth=4)
    np.testing.assert_allclose([p.probabilities for p in found], wanted.probabilities, rtol=1e-5)
    assert [p.label for p in found] == [*wanted.labels]


def test_what_is_erased_leaves_a_training_that_goes_on(device: Device) -> None:
    observe_in_pieces(device, 400)
    device.label("walk", BEGAN, BEGAN + 400)
    run = make_run(device)
    env = device.part.env(run)
    before = env.grad_fn(device.part.model.theta0, np.arange(4))[0]
    assert device.forget(BEGAN, BEGAN + 350) > 300
    assert env.grad_fn(device.part.model.theta0, np.arange(4))[0] != before
    assert device.forget() > 0 and device.count_windows() == {}
    with pytest.raises(UsageError, match="all samples of this run have been erased"):
        env.grad_fn(device.part.model.theta0, np.arange(4))


def test_who_has_erased_all_does_not_train_on_nothing_after_a_restart(device: Device, tmp_path: Path) -> None:
    """The copy of the run had zeros then, and times of before: the fleet was taught that these are what a walk is."""
    observe_in_pieces(device, 100)
    device.label("walk", BEGAN, BEGAN + 100)
    device.part.env(make_run(device))
    assert device.forget() > 0
    device.close()
    again = make_device(tmp_path)
    again.live.open()
    env = again.part.env(make_run(again))
    with pytest.raises(UsageError, match="all samples of this run have been erased"):
        env.grad_fn(again.part.model.theta0, np.arange(4))
    again.close()


def test_labels_bring_a_device_into_the_run_that_it_had_to_refuse(device: Device) -> None:
    membership = device.runtime.membership
    membership.refused, membership.refusal = b"r", "run r: device d1: nothing is labelled yet"
    observe_in_pieces(device, 10)
    assert device.label("walk", BEGAN + 100, BEGAN + 200) == 0 and not membership.reconsider
    device.label("walk", BEGAN, BEGAN + 10)
    assert membership.reconsider


def test_a_device_that_had_too_few_labels_looks_again_at_all_of_them(tmp_path: Path) -> None:
    """The copy of the samples for a run must not be the one that was made when there were too few."""
    device = make_device(tmp_path, recording=Recording(limits=RECORDING.limits, least=60))
    observe_in_pieces(device, 200)
    for seconds in (20, 40):
        device.label("walk", BEGAN, BEGAN + seconds)
        with pytest.raises(
            UsageError, match=f"{seconds - 1} labelled windows to train on, and 0 held out; 60 are needed"
        ):
            device.part.env(make_run(device))
    device.label("juggle", BEGAN + 100, BEGAN + 190)
    with pytest.raises(UsageError, match="39 labelled windows to train on"):
        device.part.env(make_run(device))
    device.label("sit", BEGAN + 40, BEGAN + 90)
    assert device.part.env(make_run(device)).samples == 39 + 49
    device.close()


def test_what_does_not_fit_the_signal_is_refused_where_it_is_handed_over(device: Device) -> None:
    for samples, time, channel, what in (
        (np.zeros((4, 2)), 1.0, None, r"shape \(4, 2\), expected \(3,\) or \(n, 3\)"),
        (np.zeros((4, 3)), [1.0, 2.0], None, "times of shape"),
        (np.zeros((4, 3)), float("nan"), None, "a time is not finite"),
        (1.0, 1.0, "bx", "channel = 'bx', there are ax, ay, az"),
        (np.zeros((4, 3)), 1.0, "ax", "of one channel"),
    ):
        with pytest.raises(UsageError, match=what):
            device.observe(samples, time=time, channel=channel)
    with pytest.raises(UsageError, match="smooth = 0"):
        device.predictions(smooth=0)
    with pytest.raises(UsageError, match="which = 'best'"):
        device.predictions(which="best")


def test_gaps_in_values_and_a_clock_that_is_set_back_end_no_thread(device: Device) -> None:
    times, values = signal_of(20)
    values[100:140] = np.nan
    device.observe(values, time=times)
    device.observe(values, time=times - 5000)
    assert device.count_windows()[""] > 30


def test_a_full_disk_ends_no_thread(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    live, add = device.live.open(), device.live.open().store.add
    live.store.add = lambda *_: (_ for _ in ()).throw(OSError(28, "No space left"))  # type: ignore[method-assign]
    times, values = signal_of(10)
    for at in range(0, len(times), int(RATE)):
        device.observe(values[at : at + int(RATE)], time=float(times[at]))
        live.wait_saved()
    said = [line for line in caplog.records if "could not be saved" in line.getMessage()]
    assert device.count_windows() == {} and len(said) == 1, "each lost second wrote a traceback to the full disk"
    assert said[0].getMessage().endswith("samples could not be saved: No space left") and said[0].exc_info is None
    live.store.add = add  # type: ignore[method-assign]
    with pytest.raises(StoreUnusable, match="could not be saved"):
        device.flush()
    observe_in_pieces(device, 5, first=10)
    assert device.count_windows()[""] >= 4


def test_asyncio_applications_wait_without_a_thread_of_their_own(tmp_path: Path) -> None:
    async def watch() -> list[str | None]:
        found = []
        async with make_device(tmp_path) as device:
            stream = device.predictions()
            feeding = asyncio.to_thread(observe_in_pieces, device, 8)
            task = asyncio.ensure_future(feeding)
            async for prediction in stream:
                found.append(prediction.label)
                if len(found) == 6:
                    break
            await task
        async for prediction in stream:
            found.append(prediction.label)
        return found

    assert len(asyncio.run(watch())) == 7


def test_a_device_in_a_with_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    with make_device(tmp_path) as device:
        observe_in_pieces(device, 5)
        names = {t.name for t in threading.enumerate() if t not in before}
        assert {"auscult-d1", "auscult-d1-samples"} <= names
        assert all(name.startswith("auscult") or "open" in name for name in names), names
    eventually(lambda: not [t for t in threading.enumerate() if t not in before and t.name.startswith("auscult")])


FORKED = """
import sys
from tests.nodes.device.test_live_device import *
device = make_device(Path(sys.argv[1]))
observe_in_pieces(device, 10)
child = os.fork()
if not child:
    for use in (lambda: device.observe(np.zeros(3)), device.forget, device.close):
        try:
            use()
        except UsageError as error:
            assert "belongs to the process that made it" in str(error)
        else:
            os._exit(1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
observe_in_pieces(device, 10, first=10)
assert device.count_windows() == {"": 19}, device.count_windows()
device.close()
"""


@pytest.mark.filterwarnings("ignore")
def test_a_fork_leaves_the_device_to_the_process_that_made_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKED, str(tmp_path)], cwd=ROOT, check=True, timeout=60)


def test_recordings_are_held_out_and_it_is_said_where_that_leaves_none(tmp_path: Path) -> None:
    device = make_device(tmp_path, recording=Recording(limits=StoreLimits(4, 1e5, held_out=0.99)))
    observe_in_pieces(device, 10)
    device.label("walk", BEGAN, BEGAN + 10)
    device.live.open().store.index.run("UPDATE windows SET held = 1")
    with pytest.raises(UsageError, match="0 labelled windows to train on, and 9 held out; 60 are needed"):
        device.part.env(make_run(device))
    device.close()


KILLED = """
import sys
from tests.nodes.device.test_live_device import *
device = make_device(Path(sys.argv[1]))
for second in range(0, 10_000, 10):
    observe_in_pieces(device, 10, first=second)
    device.label("walk", BEGAN + second, BEGAN + second + 10)
    print(second + 10, sum(device.count_windows().values()), device.count_windows()["walk"], flush=True)
"""


def test_what_was_confirmed_is_there_after_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        lines = [process.stdout.readline() for _ in range(7)]
        process.kill()
        lines += process.stdout.readlines()
    told = [tuple(map(int, line.split())) for line in lines if line.endswith("\n") and len(line.split()) == 3]
    seconds, windows, walked = told[-1]
    device = make_device(tmp_path)
    counts = device.count_windows()
    assert sum(counts.values()) >= windows and counts["walk"] >= walked
    found = device.live.open().store.labelled()
    assert len(np.unique(found.began)) == len(found.ids), "a window is there twice"
    assert (found.began[:walked] <= BEGAN + seconds).all()
    for id in found.ids:
        assert device.live.open().store.read(int(id)) is not None
    device.close()


def test_importing_and_making_a_device_starts_nothing(tmp_path: Path) -> None:
    code = (
        "import threading, sys; from edge_sdk import Device, Recording\n"
        f"Device('d', hospital='h', broker='mqtt://127.0.0.1:1', bundle={str(WRIST)!r}, directory={str(tmp_path)!r})\n"
        "assert threading.active_count() == 1 and 'cryptography' not in sys.modules, threading.enumerate()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)
    assert not (tmp_path / "samples").exists()
