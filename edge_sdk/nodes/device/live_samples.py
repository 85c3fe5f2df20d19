"""What a sensor gives a device: taken at the sensor's rate without ever waiting, cut, saved and shown to predictors.

observe()  ->  a queue of bounded length  ->  one thread: another rate, windows, the store, those who predict
"""

from __future__ import annotations

import logging
import os
import threading
import time as clocks
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from edge_sdk.data.live.barren import BarrenMeter, read_times
from edge_sdk.data.live.cutter import Block, StreamCutter, group_blocks
from edge_sdk.data.live.loss_log import LossLog
from edge_sdk.data.live.rate import RateMeter
from edge_sdk.data.live.windower import LiveWindows
from edge_sdk.data.recording import Recording
from edge_sdk.data.samples import Samples
from edge_sdk.data.store.cipher import read_key
from edge_sdk.data.store.every_window import every_window
from edge_sdk.data.store.frozen import Choose, FrozenSamples, copy_held_out, drop_frozen, erase_copies, freeze
from edge_sdk.data.store.frozen_unlabelled import freeze_unlabelled
from edge_sdk.data.store.index import StoreUnusable, erase_damaged
from edge_sdk.data.store.sample_store import SampleStore
from edge_sdk.data.store.step_windows import mean_windows, step_windows
from edge_sdk.data.store.timeline import check_stretch
from edge_sdk.errors import UsageError, say_reason
from edge_sdk.live.presence.directory import disown, own_directory
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task_protocol import ModelTask, StepTask, combines

WAITING = 60.0
"""Seconds of the signal that wait at most for the thread; where it does not keep up, the oldest are lost."""
SAY_EVERY = 60.0  # seconds between two lines about the rate


class LiveSamples:
    """A device's live samples. `observe` may be called from any thread; windows are made on one of its own.

    Args:
        name: of the device.
        signal: what the bundle takes.
        directory: of the store.
        show: called with each group of new windows, on this object's thread. saved: with their number, and that of
            those with a label, when they are on the disk.
    """

    def __init__(
        self,
        name: str,
        signal: SignalSpec,
        directory: Path,
        recording: Recording,
        show: Callable[[LiveWindows], None],
        saved: Callable[[int, int], None],
        log: logging.Logger,
    ) -> None:
        self.name, self.signal, self.directory, self.log = name, signal, directory, log
        self.show, self.saved = show, saved
        self.owned = own_directory(directory)
        try:
            self.store = SampleStore(
                directory, signal.shape, recording.limits, read_key(recording.key), name_signal(signal)
            )
        except BaseException:
            self.owned.close()
            raise
        self.source = recording.sensor_hz or signal.rate_hz
        channels, rate = len(signal.channels), signal.rate_hz
        self.cutter = StreamCutter(self.source, channels, rate, signal.window, signal.stride)
        self.meter, self.fault, self.too_slow = RateMeter(self.source), "", False
        self.barren = BarrenMeter(max(signal.window, signal.stride) * self.source / rate, channels)
        self.frozen: FrozenSamples | None = None
        self.unlabelled: FrozenSamples | None = None  # in a run that wants them
        self.copying = threading.Lock()  # nothing is erased while a copy is made, which would still have it
        self.queue: deque[Block] = deque()
        self.most = int(WAITING * self.source) + 1
        self.waiting, self.lost = 0, 0
        self.unsaved, self.why_unsaved, self.told_taken = 0, "", False
        self.wake_at = 1  # samples that wait: with so many the thread is woken
        self.say_rate_at, self.losses = 0.0, LossLog(name, log)
        self.wake = threading.Condition()
        self.busy, self.stopping = False, False
        self.thread: threading.Thread | None = None
        self.process = os.getpid()

    # -- from any thread

    def observe(self, samples: Any, time: Any, channel: str | None) -> None:
        """Take samples as `Device.observe` describes it."""
        self.check_process()
        if self.fault:
            raise UsageError(self.fault)
        place, block = self.check_block(samples, channel)
        when = self.check_times(time, len(block))
        if time is not None and channel is None and len(when) and self.is_too_slow(when, np.ndim(time) == 0):
            return
        with self.wake:
            if self.stopping:
                raise UsageError(f"device {self.name} is closed, and takes no more samples")
            self.queue.append((place, when, block))
            self.waiting += len(block)
            while self.waiting > self.most and len(self.queue) > 1:
                gone = len(self.queue.popleft()[2])
                self.waiting, self.lost = self.waiting - gone, self.lost + gone
            if self.thread is None:
                self.begin()
            if self.waiting >= self.wake_at:
                self.wake.notify()

    def check_block(self, samples: Any, channel: str | None) -> tuple[int, npt.NDArray[np.float32]]:
        """Place of the channel (-1: all channels), and the samples (n, c) or (n,), copied."""
        try:
            block = np.array(samples, np.float32)
        except (TypeError, ValueError) as error:
            raise UsageError(f"observe: samples are no numbers: {error}") from None
        if channel is None:
            count = len(self.signal.channels)
            if block.ndim > 2 or block.ndim < 1 or block.shape[-1] != count:
                raise UsageError(f"observe: samples of shape {block.shape}, expected ({count},) or (n, {count})")
            return -1, block.reshape(-1, count)
        if channel not in self.signal.channels:
            raise UsageError(f"observe: channel = {channel!r}, there are {', '.join(self.signal.channels)}")
        if block.ndim > 1:
            raise UsageError(f"observe: samples of shape {block.shape} of one channel, expected (n,) or a number")
        return self.signal.channels.index(channel), block.reshape(-1)

    def check_times(self, time: Any, count: int) -> npt.NDArray[np.float64]:
        """Times (n,) of samples, as `Device.observe` describes them."""
        if time is None:
            return clocks.time() + np.arange(1 - count, 1) / self.source
        return read_times(time, count, self.source)

    def is_too_slow(self, when: npt.NDArray[np.float64], are_made: bool) -> bool:
        """Do samples come so slowly that windows of them would be longer than the bundle's? Tells where they come at
        another rate than was said.

        Args:
            when: their times (n,). are_made: all but the first are made of the rate that was said.

        Raises:
            UsageError: they come so fast that windows would be shorter; those that were made are erased.
        """
        with self.wake:
            self.meter.push(float(when[0]), float(when[-1]), len(when))
            said, now, before = self.meter.describe(), clocks.monotonic(), self.too_slow
            stretched = self.cutter.resampler is None or (are_made and len(when) > 1)
            self.too_slow = self.meter.too_slow and stretched
            due = self.meter.too_fast or self.too_slow != before or (bool(said) and now >= self.say_rate_at)
            self.say_rate_at = now + SAY_EVERY if due else self.say_rate_at
        if due:
            again = ["windows are kept again"] if before and not self.too_slow else []
            self.tell_rate("; ".join([said, *again] if said else again), float(when[-1]))
        return self.too_slow

    def tell_rate(self, said: str, now: float) -> None:
        """Tell of the rate at which samples come, until now, and erase windows that are of another length by it.

        Raises:
            UsageError: it is too fast.
        """
        if self.meter.too_fast:
            self.fault = f"device {self.name}: {said}"
            self.erase(self.meter.since, now)
            raise UsageError(self.fault)
        if not self.too_slow:
            return self.log.warning("%s: %s", self.name, said)
        what = "a window of them would last longer than the model's: none is kept or predicted until that is over"
        self.log.warning("%s: %s; %s", self.name, said, what)
        self.erase(self.meter.since, now)

    def label(self, activity: str | tuple[str | None, ...] | None, began: float, ended: float) -> int:
        """Say what was done, after all samples that have come are saved."""
        self.wait_saved()
        return self.store.label(activity, began, ended)

    def forget(self, began: float = -inf, ended: float = inf) -> int:
        """Erase samples in this stretch of time, everywhere. Raises UsageError: it is none."""
        check_stretch("forget", began, ended)
        gone = self.erase(began, ended)
        erase_damaged(self.store.path)
        return gone

    def erase(self, began: float, ended: float) -> int:
        """Erase samples in a stretch of time that is known to be one."""
        self.wait_saved()
        with self.wake:
            while self.busy:
                self.wake.wait(0.1)
            self.cutter.forget(began, ended)
        with self.copying:
            erase_copies(self.directory, (self.frozen, self.unlabelled), began, ended)
            return self.store.forget(began, ended)

    def count(self) -> dict[str, int]:
        """Label -> windows that are saved, after all samples that have come are; "" stands for those without one."""
        self.wait_saved()
        return self.store.count()

    def check_process(self) -> None:
        """Raises UsageError in a fork of the process that made the device: its threads and files are not there."""
        if os.getpid() != self.process:
            raise UsageError(f"device {self.name} belongs to the process that made it; make one in this process")

    def flush(self) -> None:
        """Wait until all that was observed is in windows, and these are saved.

        Raises:
            StoreUnusable: some of it could not be saved, and is lost. Told once.
        """
        self.wait_saved()
        with self.wake:
            unsaved, self.unsaved = self.unsaved, 0
        if unsaved:
            raise StoreUnusable(
                f"{self.directory}: {unsaved} samples could not be saved, and are lost: {self.why_unsaved}"
            )

    def wait_saved(self) -> None:
        """Wait until all that was observed is worked off."""
        self.check_process()
        with self.wake:
            while self.thread is not None and (self.queue or self.busy):
                self.wake_at = 1  # again each time: the thread sets it anew after each piece of work
                self.wake.notify_all()
                self.wake.wait(0.1)

    def close(self) -> None:
        """Save what has come, and end the thread."""
        self.wait_saved()
        with self.wake:
            self.stopping = True
            self.wake.notify_all()
        if self.thread is not None:
            self.thread.join()
        self.losses.close()
        self.store.close()
        disown(self.owned)

    # -- for a run

    def freeze(self, run: str, task: ModelTask, names: Sequence[str]) -> FrozenSamples:
        """The samples of a run, see data/store/frozen.py.

        Args:
            task: of its model, which says what windows it is to have. names: of its outputs.
        """
        self.wait_saved()
        with self.copying:
            self.frozen = freeze(self.store, self.directory, run, self.signal.normalise, chooser(task, names))
        return self.frozen

    def freeze_unlabelled(self, run: str) -> FrozenSamples:
        """The windows without a label of a run whose samples are frozen, see data/store/frozen_unlabelled.py."""
        with self.copying:
            self.unlabelled = freeze_unlabelled(self.store, self.directory, run, self.signal.normalise)
        return self.unlabelled

    def copy_held_out(self, task: ModelTask, names: Sequence[str]) -> Samples:
        """What is held out now, in memory: for a comparison beside a run, whose own copy stays as it is."""
        return copy_held_out(self.store, self.signal.normalise, chooser(task, names))

    def end_run(self) -> None:
        """Let go the copy of the samples that the run had."""
        with self.copying:
            self.frozen = self.unlabelled = None
            drop_frozen(self.directory, "")

    def all_erased(self) -> bool:
        """Has the owner erased every sample of the run that is under way?"""
        frozen = self.frozen
        return frozen is not None and frozen.trained > 0 and bool(np.isinf(frozen.began[: frozen.trained]).all())

    # -- on the thread

    def begin(self) -> None:
        self.thread = threading.Thread(target=self.work, name=f"auscult-{self.name}-samples", daemon=True)
        self.thread.start()

    def work(self) -> None:
        while True:
            with self.wake:
                self.busy = False
                self.wake.notify_all()
                while self.waiting < self.wake_at and not self.stopping:
                    self.wake.wait()
                if self.stopping and not self.queue:
                    return
                items, self.busy = list(self.queue), True
                self.queue.clear()
                lost, self.waiting, self.lost = self.lost, 0, 0
            self.losses.note(lost, "are lost: they come faster than windows are made")
            for item in group_blocks(items):
                try:
                    self.take(*item)
                except Exception as error:  # a full disk, as a rule: what comes later must not be lost for it, too
                    with self.wake:
                        self.unsaved, self.why_unsaved = self.unsaved + len(item[1]), say_reason(error)
                    self.losses.note(len(item[1]), f"could not be saved: {self.why_unsaved}", error)
            self.wake_at = self.cutter.count_missing()  # until then it need not be woken

    def take(self, place: int, time: npt.NDArray[np.float64], block: npt.NDArray[np.float32]) -> None:
        """Make windows of samples, and let them be seen and saved."""
        said, windows = self.barren.push(time, block), self.cutter.push(place, time, block)
        if len(windows):
            self.barren.reset()
            self.show(windows)
            before = self.store.labels_given
            count = self.store.add(windows, clocks.time())
            self.saved(count, self.store.labels_given - before)
            self.say_taken(windows, len(windows) - count)
        elif said:
            self.log.warning("%s: %s", self.name, said)

    def say_taken(self, windows: LiveWindows, left_out: int) -> None:
        """Tell, once for as long as that goes on, that windows are left out."""
        if left_out and not self.told_taken:
            self.log.warning(
                "%s: windows are left out, as of %.1f (seconds since 1970): that time was recorded already; its clock "
                "was set back, or a recording comes again, and what came first stays",
                self.name,
                windows.began[0],
            )
        self.told_taken = left_out > 0


def name_signal(signal: SignalSpec) -> str:
    """All that windows are cut by, as a store keeps it: the normalisation is left out, for stored windows are raw."""
    channels = ", ".join(f"{name} ({unit})" for name, unit in zip(signal.channels, signal.units, strict=True))
    return f"{channels} at {signal.rate_hz:.10g} Hz, windows of {signal.window} samples every {signal.stride}"


def chooser(task: ModelTask, names: Sequence[str]) -> Choose:
    """The windows of a store that a run of these names is to have: those with a label, of steps those of which one has
    some, of values those of most of whose time something was said, or every one."""
    if task.steps:
        return partial(step_windows, steps=task.steps, combine=cast(StepTask, task).in_step)
    if combines(task):
        return partial(mean_windows, combine=cast(StepTask, task).in_step)
    return SampleStore.labelled if task.needs_labels else partial(every_window, abnormal=names[1:])
