"""The plain family: every device trains one whole model on its own samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast
from zlib import crc32

import numpy as np

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.samples import Labelled, OutputScores, OwnWindows
from edge_sdk.contract.run import Run
from edge_sdk.data.augment import augment, each_copy
from edge_sdk.data.ordered import list_distinct
from edge_sdk.errors import UsageError
from edge_sdk.model.bound import GradFn
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.front import BoundSamples, bind_parts
from edge_sdk.model.inputs import compute_losses
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.task import LABELS, OneClass, OutputTask
from edge_sdk.model.whole_batches import check_step, find_least
from edge_sdk.nodes.kernels.family import Array, DeviceParts, Family, Fields
from edge_sdk.nodes.kernels.own_windows import feature_means, features_of, has_features, own_windows

COPIES = crc32(b"copies")
"""What a generator is for that makes copies of windows: no number of a method's own."""
Bound = tuple[BoundSamples, Array]


def check(run: Run, settings: Any, bundle: Bundle) -> None:
    """Check that methods of this family can train a bundle with these settings.

    Raises:
        UsageError: it is a split model, or normalises with statistics of batches that are larger than it takes at once.
    """
    if bundle.is_split:
        name = bundle.manifest["name"]
        raise UsageError(f"bundle {name} is a split model, and method = {run.method!r} trains a whole one")
    batch, most = getattr(settings, "batch", 0), bundle.manifest["max_batch"]
    if bundle.manifest["norm"] != "frozen" and batch > most:
        name = bundle.manifest["name"]
        raise UsageError(
            f"batch = {batch} is above max_batch = {most} of bundle {name}, whose batch normalisation has no "
            f"statistics of pieces; set batch to at most {most}, or compile with --max-batch {batch}"
        )


def for_device(parts: DeviceParts) -> Fields:
    """grad_fn and samples and, where samples are held out, score; classifiers also judge and may settle.

    Raises:
        UsageError: its samples do not go into batches as its bundle needs them, or another part of it cannot be made.
    """
    check_steps(parts)
    validation, held_out = (bind(parts.model, some) for some in (parts.validation, parts.held_out))
    judged, settling = judges(parts.model, validation, held_out), settles(parts, validation, held_out)
    return {**trains(parts), **judged, **settling, **standardises(parts)}


def trains(parts: DeviceParts) -> Fields:
    """The gradient of a device's training samples; each one that is computed is counted."""
    train = parts.model.bind(parts.x)
    slopes = {"grad_fn": parts.model.grad_fn(train, parts.y, cancel=parts.cancel), **augments(parts, train)}
    counted = {name: parts.gradients.counted(slope, len(train)) for name, slope in slopes.items()}
    return {**counted, "samples": len(train), "least": find_least(parts.model.bundle.manifest)}


def bind(model: Model, samples: tuple[Array, Array] | None) -> Bound | None:
    """Samples whose front all that judges by them shares; None: there are none."""
    return None if samples is None else (model.bind(samples[0]), samples[1])


def check_steps(parts: DeviceParts) -> None:
    """Raises UsageError, before a run begins, if a step of an epoch has more or fewer samples than the bundle takes."""
    count, manifest = len(parts.x), parts.model.bundle.manifest
    batch = min(getattr(parts.settings, "batch", 0) or count, count)
    left = count % batch if batch else 0
    joined = left if left < find_least(manifest) <= batch else 0  # see methods.shared.training.local.batches
    try:
        for size in filter(None, (batch + joined, left - joined)):
            check_step(manifest, size, manifest["max_batch"])
    except UsageError as error:
        raise UsageError(f"{parts.whose} has {count} samples, batch = {batch}: {error}") from None


def augments(parts: DeviceParts, train: BoundSamples) -> Fields:
    """The gradient whose calls draw at random: changes of samples, if the run wants them, and the bundle's dropout.

    Raises:
        UsageError: samples of this shape cannot be augmented so.
    """
    model, x, y, how = parts.model, train.rows, parts.y, parts.augment
    if how.changes and x.dtype != np.float32:
        names = ", ".join(i["name"] for i in model.bundle.manifest["inputs"])
        raise UsageError(
            f"run.augment: {parts.whose} has {model.name} with inputs {names}; only one array is augmented, of floats"
        )
    how.check(x.shape[1:])
    if not how.changes:
        return {"augmented": model.grad_fn(train, y, cancel=parts.cancel)} if model.drop_sites else {}
    if how.copies:
        return {"augmented": from_copies(parts, x)}

    def augmented(theta: Vector, indices: Any, random: np.random.Generator) -> tuple[float, Vector]:
        chosen = np.arange(len(x)) if indices is None else indices
        changed = model.bind(augment(x[chosen], how, random), keep=False)
        return model.grad_fn(changed, y[chosen], cancel=parts.cancel)(theta, None, random)

    return {"augmented": augmented}


def from_copies(parts: DeviceParts, x: Array) -> GradFn:
    """The gradient of mini-batches of which each sample is itself or one of its changed copies.

    Copies are made at the first call, by the run's seed and the node's name: the same ones after a device has died.
    """
    copies, name, made = int(parts.augment.copies), parts.whose.partition(" ")[2], list[GradFn]()
    model, how, y, cancel, seed = parts.model, parts.augment, parts.y, parts.cancel, parts.run.seed
    count, given = len(x), [x]  # given up once there are copies: where these are labelled here, nothing else holds it

    def augmented(theta: Vector, indices: Any, random: np.random.Generator) -> tuple[float, Vector]:
        if not made:
            own = np.random.default_rng([seed, 0, crc32(name.encode()), COPIES])
            rows = bind_parts(model, each_copy(given[0], how, own), count * (copies + 1), "loss_grad")
            made.append(model.grad_fn(rows, np.concatenate([y] * (copies + 1)), cancel=cancel))
            given.clear()
        chosen = np.arange(count) if indices is None else np.asarray(indices)
        which = random.integers(copies + 1, size=len(chosen))
        return made[0](theta, which * count + chosen, random)

    return augmented


def settles(parts: DeviceParts, validation: Bound | None, held_out: Bound | None) -> Fields:
    """What settling needs, in a run that has it.

    Raises:
        UsageError: this device has no validation part, or nothing can be chosen by what the model predicts.
    """
    if not parts.run.settle:
        return {}
    model, whose, is_class = parts.model, parts.whose, isinstance(parts.model.task, OneClass)
    if is_class and not model.classes:
        raise UsageError(f"run.settle: {whose} has {model.name}, which is no classifier (its loss is {model.loss})")
    if validation is None:
        raise UsageError(f"run.settle: {whose} has no validation samples, and settling chooses on them: split some off")
    judged = labelled if is_class else judged_outputs
    found: Fields = {"validation": judged(model, *validation)}
    if held_out is not None and len(held_out[0]):
        found["held_out"] = judged(model, *held_out)
    labels_sets = model.task.kind == LABELS and bool(parts.run.settle.get("label_times"))
    own = own_windows(parts, trains) if is_class or labels_sets else None
    if not is_class:  # a forest, whose classes `own_classes` are, is not for sets of labels
        return {**found, "own": own}
    known = list_distinct(np.concatenate([parts.y, validation[1]]))
    found |= {"own": own, "own_classes": tuple(int(code) for code in known)}
    return {**found, "swapped": swaps(parts, own)} if can_train_on(model, len(validation[0])) else found


def can_train_on(model: Model, samples: int) -> bool:
    """Says whether a step may be on so many samples at once."""
    manifest = model.bundle.manifest
    most = samples if manifest["norm"] == "frozen" else manifest["max_batch"]
    return max(1, find_least(manifest)) <= samples <= most


def swaps(parts: DeviceParts, own: OwnWindows | None) -> Callable[[Any], Any]:
    """The function that changes training and validation samples of a device's env over, as `NodeEnv.swapped` has it.

    What is computed of unlabelled windows is shared. Nothing is bound before the function is called.
    """

    def swapped(env: Any) -> Any:
        assert parts.validation is not None
        x, y = parts.validation
        other = replace(parts, x=x, y=y, validation=(parts.x, parts.y))
        windows = own_windows(other, trains)
        if own is not None and windows is not None:
            windows = replace(windows, unlabelled=own.unlabelled, logits=own.logits, marks=own.marks)
        judged = labelled(parts.model, parts.model.bind(parts.x), parts.y)
        walked = None if env.walked is None else dict[Any, Vector]()
        fields = {**trains(other), "validation": judged, "own": windows, "walked": walked, "swapped": None}
        return replace(env, **fields)

    return swapped


def labelled(model: Model, x: BoundSamples, y: Array) -> Labelled:
    """Samples of known classes."""
    features = (lambda: features_of(x.rows)) if has_features(x.rows) else None
    return Labelled(np.asarray(y, np.int64), model.predict_fn(x), features)


def judged_outputs(model: Model, x: BoundSamples, y: Array) -> Labelled:
    """Samples with targets of a model that predicts no class."""
    task, y = cast(OutputTask, model.task), model.targets(y, len(y))

    def sums(outputs: Array) -> dict[str, float]:
        losses = compute_losses(model.loss, outputs, y)
        if task.evaluates:
            return task.evaluate(y, outputs, losses)
        found = {"samples": float(len(y)), "loss": float(losses.sum()), **task.counts(y, outputs)}
        return found | task.of_a_device(found)

    return Labelled(y, model.predict_fn(x), scores=OutputScores(lambda outputs: task.credits(y, outputs), sums))


def standardises(parts: DeviceParts) -> Fields:
    """The means of what the model standardises, in a run whose fleet's statistics it takes."""
    if not parts.run.settle.get("statistics"):
        return {}
    parts_of = [parts.x] if parts.unlabelled is None else [parts.x, parts.unlabelled[0]]
    return {"feature_means": lambda: feature_means([parts.model.samples(x) for x in parts_of])}


def judges(model: Model, validation: Bound | None, held_out: Bound | None) -> Fields:
    """What judges a model: rounds by the validation samples where the device has such a part, the end by the test part.

    Without a validation part there is only the test part, and rounds are judged by it, too.
    """
    if validation is None:
        return judge_by(model, held_out, "score", "judge")
    return {**judge_by(model, validation, "score", "judge"), **judge_by(model, held_out, "test", "test")}


def judge_by(model: Model, samples: Bound | None, score: str, judge: str) -> Fields:
    """The fields of these names, by some samples; evaluations may also tell how a model's scores are distributed."""
    if samples is None or not len(samples[0]):
        return {}
    x, y = samples
    found: Fields = {score: model.score(x, y)}
    if model.task.evaluates:
        outputs = model.predict_fn(x)

        def judged(theta: Vector) -> dict[str, float]:
            z = outputs(theta)
            return model.task.evaluate(y, z, compute_losses(model.loss, z, y))

        found[judge] = judged
    return found


PLAIN = Family(check=check, for_device=for_device, augments=True)
