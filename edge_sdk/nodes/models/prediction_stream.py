"""Predictions as windows come: `for prediction in device.predictions()`, or `async for`.

Windows wait in a short queue; who does not keep up misses the oldest. The model is the one that works at the moment of
each prediction, so a new one takes over between two windows.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np
import numpy.typing as npt

from edge_sdk.data.live.windower import LiveWindows
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.nodes.models.predictions import Prediction
from edge_sdk.nodes.models.working_model import WorkingModel

WAITING = 64
"""Windows that wait at most."""


class PredictionStream(Iterator[Prediction], AsyncIterator[Prediction]):
    """Predictions of a device's live windows, until it is closed.

    Args:
        working: the model that works now.
        signal: how windows are normalised.
        which, abstain: as for `Device.predict`.
        smooth: decide by the mean probabilities of the last so many windows of a recording.
    """

    def __init__(
        self,
        working: Callable[[], WorkingModel],
        signal: SignalSpec,
        which: str | None = None,
        smooth: int = 1,
        abstain: float = 0.0,
    ) -> None:
        if smooth < 1 or not 0 <= abstain <= 1:
            raise UsageError(f"predictions: smooth = {smooth}, abstain = {abstain}; at least 1, and a probability")
        working().find_model(which)
        if smooth > 1 and (model := working().model).task.steps:
            raise UsageError(f"predictions: smooth = {smooth}: {model.name} tells the steps of each window, no others")
        self.working, self.signal, self.which, self.abstain = working, signal, which, abstain
        self.queue: deque[tuple[npt.NDArray[np.float32], float, int]] = deque(maxlen=WAITING)
        self.latest: deque[npt.NDArray[np.floating]] = deque(maxlen=smooth)
        self.of: tuple[int, WorkingModel] | None = None  # recording and model of the latest probabilities
        self.wake, self.closed = threading.Condition(), False
        self.wakers: list[Callable[[], object]] = []

    # -- from the thread that makes windows

    def show(self, windows: LiveWindows) -> None:
        """Take windows to be predicted."""
        with self.wake:
            self.queue.extend(zip(windows.x, windows.ended.tolist(), windows.recording.tolist(), strict=True))
            self.rouse()

    def close(self) -> None:
        """End the stream, after what waits in it."""
        with self.wake:
            self.closed = True
            self.rouse()

    def rouse(self) -> None:
        self.wake.notify_all()
        wakers, self.wakers = self.wakers, []
        for waker in wakers:
            with suppress(RuntimeError):  # the loop that waited is closed
                waker()

    # -- from the application

    def __iter__(self) -> PredictionStream:
        return self

    def __next__(self) -> Prediction:
        with self.wake:
            while not self.queue and not self.closed:
                self.wake.wait()
            if not self.queue:
                raise StopIteration
            item = self.queue.popleft()
        return self.predict(*item)

    def __aiter__(self) -> PredictionStream:
        return self

    async def __anext__(self) -> Prediction:
        import asyncio  # two megabytes, for applications that have it anyway

        loop = asyncio.get_running_loop()
        while True:
            come = asyncio.Event()
            with self.wake:
                if self.queue:
                    item = self.queue.popleft()
                    break
                if self.closed:
                    raise StopAsyncIteration
                self.wakers.append(partial(loop.call_soon_threadsafe, come.set))
            await come.wait()
        return self.predict(*item)

    def predict(self, x: npt.NDArray[np.float32], ended: float, recording: int) -> Prediction:
        """Predict one window, together with those before it."""
        working = self.working()
        found = working.predict(self.signal.normalise(x[None]), self.which, abstain=self.abstain)
        if self.of is None or self.of[0] != recording or self.of[1] is not working:
            self.latest.clear()
            self.of = recording, working
        self.latest.append(found.rows[0])
        row = found.rows[0] if len(self.latest) == 1 else np.mean(self.latest, axis=0)
        return found.one(row, ended)
