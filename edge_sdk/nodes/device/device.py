"""A device: its own samples, a model that it trains without torch, and a personal component that never leaves it.

An application hands over samples with `observe` and says with `label` what was done, or calls `train_on`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Set
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from edge_sdk.contract.children.device_facts import BATTERY
from edge_sdk.data.samples import Label, Unlabelled
from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.model.inputs import Data
from edge_sdk.model.tasks.task_protocol import combines, write_said
from edge_sdk.nodes.device.live_device import start_beside
from edge_sdk.nodes.device.options import DEFAULT_POLICY, DEFAULT_TRAINING, DevicePolicy, LocalTraining
from edge_sdk.nodes.device.participant import Participant
from edge_sdk.wire.options import DEFAULTS, Wire

if TYPE_CHECKING:
    from edge_sdk.data.samples import Samples
    from edge_sdk.model.tasks.signal_spec import SignalSpec
    from edge_sdk.nodes.device.questions import LabelQuestion
    from edge_sdk.nodes.device.run_env import Source
    from edge_sdk.nodes.models.prediction_stream import PredictionStream
    from edge_sdk.nodes.models.predictions import Predictions

LABELS_LOOK = 60.0  # seconds between two looks at how many windows have a label


class Device:
    """One wearable or board.

    Args:
        name: unique in its hospital; also its MQTT client id.
        hospital: name of the hospital that it belongs to.
        broker: URL of the hospital's broker, `mqtts://host[:port]`, or `mqtt://` on this machine.
        bundle: file with the compiled model; must be the one that the run names, unless the method's models differ.
        directory: where it keeps its state; the personal component is nowhere else.
        wire: certificates, MQTT version, durability; see `edge_sdk.wire.options.Wire`.
        policy: what its owner permits: when it trains, in which runs it takes part, what it tells; see `DevicePolicy`.
        training: what it trains with: recordings, threads, code of its own; see `LocalTraining`.

    Attributes:
        finished: set when the run is over, and when it is refused (`refusal` says why) but for want of labels or
            windows, which may come. Another run clears it.
        part: its part in runs: samples, models, the node on the network.

    Raises:
        UsageError: a name, the bundle, the budget or the broker's URL cannot be used.

    >>> import numpy as np
    >>> from edge_sdk.replay.planning.bundles import find_shipped_bundle
    >>> bundle = find_shipped_bundle("wrist.bundle")
    >>> device = Device("watch-7", hospital="north", broker="mqtt://127.0.0.1", bundle=bundle, directory="watch-7")
    >>> device.predict(np.zeros((1, 3, 64), np.float32)).model
    'initial'
    """

    def __init__(
        self,
        name: str,
        *,
        hospital: str,
        broker: str,
        bundle: str | Path,
        directory: str | Path,
        wire: Wire = DEFAULTS,
        policy: DevicePolicy = DEFAULT_POLICY,
        training: LocalTraining = DEFAULT_TRAINING,
    ):
        self.part = Participant(
            name,
            hospital=hospital,
            broker=broker,
            bundle=bundle,
            directory=Path(directory),
            wire=wire,
            policy=policy,
            training=training,
        )
        self.name, self.runtime, self.live, self.finished = name, self.part.runtime, self.part.live, self.part.finished
        self.came, self.fault = 0, ""
        self.live.saved = self.note_windows
        willingness = self.runtime.willingness
        if training.recording.tells_labels:
            willingness.count, willingness.every = self.live.count_labels, min(willingness.every, LABELS_LOOK)
        if policy.tells:
            from edge_sdk.nodes.device.machine_facts import LOOK, facts_reader

            willingness.facts = facts_reader(policy.tells)
            willingness.every = min(willingness.every, LOOK if BATTERY in policy.tells else inf)
        self.thread: threading.Thread | None = None
        self.running = threading.Lock()  # held from the call of run() or start() until the device has stopped

    @property
    def on_event(self) -> Callable[[Any], None] | None:
        """Called with what the run tells this device (scores, models, the end, `RunRefused`, `ModelsDeclined`,
        `OwnKept`), on the network's thread; None: nobody wants to hear it. Set it before `start` or `run`."""
        return self.part.on_event

    @on_event.setter
    def on_event(self, told: Callable[[Any], None] | None) -> None:
        self.part.on_event = told

    @property
    def refusal(self) -> str:
        """Why it cannot take part in the run that it was offered last, or stopped by itself; "": nothing is wrong."""
        return self.fault or self.runtime.refusal

    def train_on(
        self,
        samples: Samples,
        held_out: Samples | None = None,
        validation: Samples | None = None,
        unlabelled: Unlabelled | Source | None = None,
    ) -> None:
        """Set the samples to learn from and, apart from them, those to judge the models by.

        Args:
            validation: apart from both: rounds are judged on them, and a run that settles makes its choices on them.
            unlabelled: samples to learn from whose class nobody has said, for runs whose devices label them; or a
                function that reads them, which is called in such a run only.

        Raises:
            UsageError: they are not what the bundle's inputs take, or the device is running.
        """
        from edge_sdk.nodes.kernels.model_inputs import fit_samples, fit_unlabelled  # of samples that are ready

        if self.running.locked():
            raise UsageError(f"device {self.name} is running: stop() it before train_on()")
        train = fit_samples(self.part.model, samples, whose := f"device {self.name}")
        judged, chosen = (p if p is None else fit_samples(self.part.model, p, whose) for p in (held_out, validation))
        self.part.train, self.part.held_out, self.part.validation = train, judged, chosen
        given = fit_unlabelled(self.part.model, unlabelled, whose) if isinstance(unlabelled, Unlabelled) else None
        self.part.unlabelled = unlabelled if callable(unlabelled) else (lambda: given) if given is not None else None

    # -- when it may train

    def why(self) -> str:
        """Why this device does not train now, e.g. "battery 18 % < 30 %", what is wrong with its broker, or why it
        stopped: its round was over; "": it trains, or nothing is in the way."""
        unwilling, session = "" if self.part.pace is None else self.part.pace.why(), self.runtime.session
        return unwilling or self.runtime.publisher.trouble or ("" if session is None else session.calls.gave_up)

    def allow_training(self, allowed: bool) -> None:
        """Say as its application whether it may train, beside its budget. Raises UsageError: it has no budget."""
        if self.part.pace is None:
            raise UsageError(f"device {self.name} has no budget: give it one, DevicePolicy(budget=TrainingBudget())")
        self.part.pace.allow(allowed)

    # -- live samples

    @property
    def signal(self) -> SignalSpec:
        """What `observe` takes: channels, units, rate, windows. Raises UsageError: the bundle does not say."""
        return self.live.signal()

    def observe(
        self, samples: npt.ArrayLike, time: float | npt.ArrayLike | None = None, channel: str | None = None
    ) -> None:
        """Take samples of the sensor. Never waits: what the device cannot work off in a minute is lost, and said so.

        Args:
            samples: (c,) or (n, c), of all channels of `signal` in its order and units (hardware/sensors/fitted.py
                makes them of a sensor's); one channel's (n,) or a number where `channel` is named. Rows that are not
                finite are left out.
            time: seconds since 1970 of the first sample, or of each (n,); None: the last came now.

        Raises:
            UsageError: they do not fit the signal, come much too fast by their times, or this is a fork of the process.
        """
        self.live.open().observe(samples, time, channel)

    def label(self, activity: Label | Set[str] | list[Any] | npt.NDArray[Any], began: float, ended: float) -> int:
        """Say what was done from `began` to `ended`, seconds since 1970. Later words correct earlier ones.

        Args:
            activity: a name; of a model that predicts sets of labels a set of names, also an empty one; of one that
                predicts values a number, or a tuple of them, in its units: a window has their mean over its time. Of
                values, and of classes of steps, also of parts of windows; and a list of n names, or an array (n,) or
                (values, n), is of n equal parts of this time, with "" or NaN where nobody knows.

        Returns:
            How many windows have another label than before, as a whole.

        Raises:
            UsageError: it is no label of the bundle's task, or no stretch of time.
        """
        task = self.part.own_model.task
        changed = self.live.open().label(write_said(task, activity), began, ended)
        touched = changed > 0 or combines(task)  # parts of windows may be, which nobody counts
        if touched:  # its hospital may want to know, and a run may have been refused for want of labels, or just be
            self.runtime.reconsider()
        return changed

    def note_windows(self, count: int, labelled: int) -> None:
        """Look at a run again that was refused for want of windows, when so many have come. `labelled`: of the new
        ones, about whose time something had been said before they came."""
        task = self.part.own_model.task  # nobody counts windows with a label that is made of all that was said
        self.came += labelled if task.needs_labels and not combines(task) else count
        if 0 < self.part.missing <= self.came:
            self.came = 0
            self.runtime.reconsider()

    def unlabel(self, began: float, ended: float) -> int:
        """Take back what was said of this stretch of time. Returns how many windows lose their label."""
        return self.live.open().label(None, began, ended)

    def forget(self, began: float = -inf, ended: float = inf) -> int:
        """Erase from memory and disk what was recorded from `began` to `ended`; without arguments, all of it.
        Models that were trained on it stay. Returns how many windows there were. Raises UsageError: it is no time."""
        return self.live.open().forget(began, ended)

    def flush(self) -> None:
        """Wait until all that was observed is saved. Raises `StoreUnusable`, once, if some of it could not be saved."""
        self.live.open().flush()

    def count_windows(self) -> Mapping[str, int]:
        """Label -> how many windows are kept; "" stands for those without one, and for those of values or steps of
        whose time more than one thing was said: a run has those, too."""
        return self.live.open().count()

    def questions(self, most: int = 3) -> tuple[LabelQuestion, ...]:
        """Stretches of time whose label would help most, the most useful first; `label` answers them.

        Raises:
            UsageError: no question is asked for, the bundle does not say its signal, or it predicts values.
        """
        from edge_sdk.nodes.device.questions import find_questions

        return find_questions(self.live.open(), self.part.working, most)

    # -- running

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Take part until `stop`, or until `until()` says so.

        Raises:
            UsageError: it has no samples to learn from, or it is running already.
        """
        self.claim()
        self.serve(until)

    def start(self) -> None:
        """Take part in the background, until `stop`. Raises UsageError as `run` does, and AuscultError: it cannot."""
        self.claim()
        self.fault = ""
        try:
            self.thread = start_beside(self.name, self.part.check_start, self.serve, self.end_early)
        except BaseException:
            self.running.release()
            raise

    def end_early(self, error: Exception) -> None:
        """Tell the application by what its device takes part no more."""
        self.fault = f"device {self.name} takes part no more: {error or type(error).__name__}"
        self.part.log.error("%s", self.fault, exc_info=None if isinstance(error, (AuscultError, OSError)) else error)
        self.part.receive_refusal(self.fault)

    def claim(self) -> None:
        """Take the one right to run; `serve` gives it back. Whoever starts the device hears what is missing."""
        if self.part.train is None and self.part.model.bundle.signal is None and self.part.trainer is None:
            raise UsageError(f"device {self.name}: call train_on(samples) before run() or start()")
        if self.live.closed or not self.running.acquire(blocking=False):
            raise UsageError(f"device {self.name} is {'closed' if self.live.closed else 'running already'}")

    def serve(self, until: Callable[[], bool] | None = None) -> None:
        """Takes part in runs on this thread, until `until()` is true or `stop` is called; after `claim`."""
        try:
            self.runtime.run(until)
        finally:
            self.running.release()

    def stop(self) -> None:
        """Leave in good order. What is under way is kept and goes on at the next start."""
        self.runtime.stop()
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def close(self) -> None:
        """Stop, save what was observed, and end the streams of predictions. It cannot be used after that."""
        self.stop()
        self.live.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        import asyncio  # two megabytes, for applications that have it anyway

        await asyncio.to_thread(self.close)

    # -- predicting

    def predict(self, x: Data, which: str | None = None, smooth: int = 1, abstain: float = 0.0) -> Predictions:
        """Predicts the classes of windows, their values with units and intervals (`Prediction.values`), or how unusual
        they are (`Prediction.score`), by the latest models that a run has made here, or the bundle's initial one.

        Works at any time, from any thread, without network, and goes on with the models of the last run while a new one
        is under way. Outputs for which the run has no name are left out: nothing has taught them.

        Args:
            x: float32 or integers (N, ...), of the bundle's input shape, or one window without the first axis; of
                several inputs a dictionary of such arrays, by name.
            which: "personal", "global", "initial" or another model of the run; None: the one that has seen most of the
                device's own samples.
            smooth: for windows of one recording, in time order: decide by the mean over the last so many.
            abstain: a window whose best class has a smaller probability than this gets no label; none for values.

        Raises:
            UsageError: there is no such model, the bundle is one that no device runs alone, or x has a number that is
                not finite.
        """
        return self.part.working.predict(x, which, smooth, abstain)

    def log_probabilities(self, x: Data, which: str | None = None) -> npt.NDArray[np.floating]:
        """Log-probabilities of the classes, (N, classes), by the same models and with the same errors as `predict`.

        After a run that settles, the personal model is what the fleet has chosen: it may take in the local model, and
        classes that this device has never had a label of get -inf.
        """
        return self.part.working.log_probabilities(x, which)

    def predictions(self, which: str | None = None, smooth: int = 1, abstain: float = 0.0) -> PredictionStream:
        """Predictions of live windows as they come, for `for` or `async for`, until the device is closed.

        Args:
            which, abstain: see `predict`.
            smooth: decide by the mean probabilities of the last so many windows of a recording.
        """
        signal = self.live.open().signal
        from edge_sdk.nodes.models.prediction_stream import PredictionStream

        return self.live.add_stream(PredictionStream(lambda: self.part.working, signal, which, smooth, abstain))
