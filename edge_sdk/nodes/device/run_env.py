"""What a device brings into a run: its samples behind functions of theta. Loaded with the first run, not before.

Windows without a label are read and held only in a run whose devices label them or add up their features.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from edge_sdk.contract.environment.gradients import PURPOSES, GradientCounter
from edge_sdk.contract.method import NodeEnv, Role, Step
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples, Unlabelled
from edge_sdk.errors import SamplesMissing, UsageError
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.around import is_secret
from edge_sdk.nodes.configuration.assembly import augmentation_of, family_of, make_env, settings_of
from edge_sdk.nodes.device.descriptions import describe_labels, describe_want
from edge_sdk.nodes.device.live_device import LiveDevice
from edge_sdk.nodes.kernels.family import Array, DeviceParts
from edge_sdk.nodes.kernels.labels import wants_unlabelled
from edge_sdk.nodes.kernels.model_inputs import fit_unlabelled
from edge_sdk.nodes.models.warm_start import NOTHING, find_earlier
from edge_sdk.nodes.models.working_model import WorkingModel
from edge_sdk.nodes.policy.admission import Gate

if TYPE_CHECKING:
    from edge_sdk.data.public_inputs import Public
    from edge_sdk.nodes.configuration.mask_tables import DeviceKeys
    from edge_sdk.nodes.device.pace import TrainingPace

TOO_FEW = "it has too few samples as yet, or too few labels, and takes part when it has enough"
"""What a hospital hears where the owner does not tell it of labels: neither how many there are nor of what."""
GRADIENTS = "gradients_"
"""Before a purpose: the name of a device's counter."""
Source = Callable[[], Unlabelled | None]
"""Reads windows without a label, each time a run wants them; None: there are none."""


class Taking(Protocol):
    """A device that takes part in a run, as far as its env is made of it; see `participant.Participant`."""

    name: str
    model: Model
    log: logging.Logger
    live: LiveDevice
    gate: Gate
    working: WorkingModel
    pace: TrainingPace | None
    masks: DeviceKeys | None
    public: Public | None
    trainer: Any
    train: Samples | None
    unlabelled: Source | None
    warm_start: bool
    digest: bytes

    def choose_samples(self, run: Run) -> tuple[Samples, Samples | None, Samples | None]: ...
    def select_listed(self, samples: Samples, run: Run, part: str) -> Samples: ...
    def codes(self, samples: Samples, run: Run) -> Array: ...
    def must_give_way(self) -> bool: ...


def env_of(device: Taking, run: Run, cancellable: bool = True) -> NodeEnv:
    """The env of a device. `cancellable`: training stops between two steps when a newer question has come; other
    training is no part of the run, and is not counted.

    Raises:
        UsageError: it cannot take part. SamplesMissing: it could with more samples, which may come.
    """
    given: Mapping[str, Any]
    gradients = GradientCounter()
    if device.trainer is not None:
        from edge_sdk.nodes.device.custom_training import fields_of

        given = fields_of(run, device.trainer, device.model.layout, f"device {device.name}")
    else:
        given = family_of(run).for_device(replace(parts_of(device, run, cancellable), gradients=gradients))
    earlier = find_earlier(device.working, device.model, run, device.log) if device.warm_start else NOTHING
    if is_secret(run):
        from edge_sdk.nodes.secrets.mask_assignment import for_device  # with all that hides answers

        masking = device.masks, device.name, device.model.task.histograms, lambda: device.gate.allow
        given = {**given, **for_device(run, *masking)}
    return make_env(run, device.model.layout, device.model.theta0, earlier=earlier, gradients=gradients, **given)


def counting(role: Role, gradients: GradientCounter, count: Callable[[str, int], None]) -> Role:
    """A device's role, whose gradients are counted call by call, also of a call that is given up.

    Args:
        gradients: of its env. count: called with the name of a counter, and by how much it grows.
    """

    def tell(call: Callable[..., Step], *given: Any) -> Step:
        try:
            return call(*given)
        finally:
            for purpose, more in gradients.counts.items():
                count(f"{GRADIENTS}{purpose}", more)
            gradients.counts.clear()

    return replace(
        role, receive=lambda *given: tell(role.receive, *given), close=lambda *given: tell(role.close, *given)
    )


def gradients_in(counters: Mapping[str, int]) -> dict[str, int]:
    """Purpose -> gradients that a device has computed for it, as its counters have them."""
    return {purpose: counters.get(f"{GRADIENTS}{purpose}", 0) for purpose in PURPOSES}


def parts_of(device: Taking, run: Run, cancellable: bool) -> DeviceParts:
    """What the method's family of kernels makes a device's env of."""
    (given, held_out, chosen), task = device.choose_samples(run), device.model.task
    whose, recording = f"device {device.name}", device.live.recording

    def coded(samples: Samples | None, part: str) -> tuple[Array, Array] | None:
        found = None if samples is None else device.select_listed(samples, run, part)
        return None if found is None else (found.x, device.codes(found, run))

    train = device.select_listed(given, run, "training")
    if len(train) < (1 if len(given) else 0) or (device.train is None and len(train) < recording.least):
        device.live.end_run()  # the run is to have what is labelled when it can begin, not what is now
        why = describe_want(len(train), len(given), len(held_out or ()), recording.least, task.needs_labels)
        if device.train is not None:  # no other samples come while it runs
            raise UsageError(f"{whose}: {why}; its classes are {', '.join(run.classes)}")
        how = describe_labels(task, run.classes, train.labels)
        told = f"{why}{how}" if recording.tells_labels else TOO_FEW
        raise SamplesMissing(f"{whose}: {why}{how}", max(1, recording.least - len(train)), f"{whose}: {told}")
    y = device.codes(train, run)
    live = device.live if device.train is None else None
    loose = read_unlabelled(run, device.model, device.unlabelled, live, whose)
    device.digest = b"" if device.pace is None else device.pace.digest_samples(run.id, train.x, y, *(loose or ()))
    return DeviceParts(
        run=run,
        settings=settings_of(run),
        whose=whose,
        model=device.model,
        x=train.x,
        y=y,
        held_out=coded(held_out, "held-out"),
        validation=coded(chosen, "validation"),
        unlabelled=loose,
        augment=augmentation_of(run),
        public=device.public,
        cancel=device.must_give_way if cancellable else None,
    )


def read_unlabelled(
    run: Run, model: Model, source: Source | None, live: LiveDevice | None, whose: str
) -> tuple[Array, Array] | None:
    """Inputs (M, ...) without a label, as the model takes them, and which stretch of time each lies in; None: there are
    none, or the run does not want them.

    Args:
        source: of samples that the application has ready. live: what the device observes; None: it observes nothing.
    """
    if not wants_unlabelled(run):
        return None
    if live is not None:
        frozen = live.open().freeze_unlabelled(run.id)
        return (frozen.x, frozen.recording) if len(frozen.x) else None
    found = None if source is None else source()
    if found is None or not len(found):
        return None
    return fit_unlabelled(model, found, whose).x, found.recording
