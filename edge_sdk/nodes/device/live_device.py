"""A device's live side, made when first used: what it observes, and the streams of predictions; and its thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edge_sdk.data.recording import Recording
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle

if TYPE_CHECKING:
    from edge_sdk.data.live.windower import LiveWindows
    from edge_sdk.model.tasks.signal_spec import SignalSpec
    from edge_sdk.nodes.device.live_samples import LiveSamples
    from edge_sdk.nodes.models.prediction_stream import PredictionStream


class LiveDevice:
    """Live samples, which are on the disk from their first use on, and who is shown the windows.

    Args:
        directory: of the store.

    Attributes:
        saved: called when more windows are on the disk, with their number and how many of them have a label; None:
            nobody wants to hear it.
    """

    def __init__(self, name: str, bundle: Bundle, directory: Path, recording: Recording, log: logging.Logger) -> None:
        self.name, self.bundle, self.directory, self.recording, self.log = name, bundle, directory, recording, log
        self.samples: LiveSamples | None = None
        self.saved: Callable[[int, int], None] | None = None
        self.streams: tuple[PredictionStream, ...] = ()
        self.opening, self.closed = threading.Lock(), False

    def open(self) -> LiveSamples:
        """The live samples.

        Raises:
            UsageError: the bundle does not say of which signal its input is a window, or the device was closed.
        """
        found = self.samples
        if self.closed:
            raise UsageError(f"device {self.name} is closed: make another one to observe, label or ask it anything")
        return found if found is not None else self.open_first()

    def signal(self) -> SignalSpec:
        """What the bundle's windows are made of. Raises UsageError: see `open`."""
        signal, name = self.bundle.signal, self.bundle.manifest["name"]
        if signal is None:
            raise UsageError(
                f"device {self.name}: {name} does not say what signal it takes; compile it with --rate and --channels, "
                "or hand over windows to train_on() and predict()"
            )
        return signal

    def open_first(self) -> LiveSamples:
        signal = self.signal()
        from edge_sdk.nodes.device.live_samples import LiveSamples  # with the store, which not every device has

        with self.opening:
            if self.samples is None:
                self.samples = LiveSamples(
                    self.name, signal, self.directory, self.recording, self.show, self.note_saved, self.log
                )
            return self.samples

    def show(self, windows: LiveWindows) -> None:
        """Give new windows to those who predict."""
        for stream in self.streams:
            stream.show(windows)

    def note_saved(self, count: int, labelled: int) -> None:
        """Tell whoever waits for windows how many more are on the disk."""
        if self.saved is not None:
            self.saved(count, labelled)

    def add_stream(self, stream: PredictionStream) -> PredictionStream:
        with self.opening:
            self.streams = (*(other for other in self.streams if not other.closed), stream)
        return stream

    def count_labels(self) -> int:
        """Windows that were given a label so far, whatever was deleted since; 0 where nothing was ever observed."""
        return 0 if self.samples is None and not self.directory.exists() else self.open().store.labels_given

    def all_erased(self) -> bool:
        """Has the owner erased every sample of the run that is under way?"""
        return self.samples is not None and self.samples.all_erased()

    def end_run(self) -> None:
        """Let go the copy of the samples that the run had."""
        if self.samples is not None:
            self.samples.end_run()

    def close(self) -> None:
        """Save what was observed, and end the streams. Again: nothing."""
        was, self.closed = self.closed, True
        if self.samples is not None and not was:
            self.samples.close()
        for stream in self.streams:
            stream.close()


def start_beside(
    name: str, check: Callable[[], None], serve: Callable[[], None], failed: Callable[[Exception], None]
) -> threading.Thread:
    """The thread on which a device serves from now on.

    Args:
        check: raises what stands against it, which is raised here. failed: is told by what it has ended too early.
    """

    def work() -> None:
        try:
            serve()
        except Exception as error:
            failed(error)

    check()
    thread = threading.Thread(target=work, name=f"auscult-{name}", daemon=True)
    thread.start()
    return thread
