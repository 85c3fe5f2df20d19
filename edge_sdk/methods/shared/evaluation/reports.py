"""What nodes tell their applications, and the scores in it. Scores are sums: a metric is a ratio of two.

global_accuracy / devices      unweighted mean over devices of their own accuracies, as the papers report it
global_accuracy_squared        sum of the squares of these, for their spread over devices
global_correct / samples       accuracy over all held-out samples
unseen_correct / unseen_samples   the same for a model that only some devices have (unseen_accuracy / unseen_devices);
                               so for "companion"
personal_harmed, personal_density   of an evaluation: devices whose personal model is worse than the global one by more
                               than HARMED; sum of the shares of their personal components that are not zero
loss / (devices - untold) of a Progress   mean training loss of the devices that took part, without those in hospitals
                               that have too few of them to tell their scores
global_f1 / devices            of models that predict sets of labels: unweighted mean of the devices' own macro-F1;
                               "correct" and "accuracy" are of sets that are right in every label then, and of
                               models that tell the class of each step, of steps
global_reconstruction_error / devices   of models that reconstruct windows: unweighted mean of the devices' own errors
test_global_accuracy / test_devices   the same on test samples, in the last evaluation only, where devices have a
                               validation part, which all the others are then on
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from edge_sdk.algebra.arrays import Theta
from edge_sdk.algebra.ensemble import COMPANION, Ensemble, combined, log_probabilities, mixed
from edge_sdk.algebra.metrics import classification
from edge_sdk.algebra.metrics.classification import areas
from edge_sdk.algebra.metrics.label_sets import F1, is_count
from edge_sdk.algebra.metrics.reconstruction import RECONSTRUCTION_ERROR
from edge_sdk.algebra.metrics.regression import ABSOLUTE, MAE
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.samples import Labelled
from edge_sdk.contract.method import OUT, NodeEnv, Send
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.aggregation import exact, gather
from edge_sdk.methods.shared.aggregation.gather import Tally
from edge_sdk.methods.shared.aggregation.scores import LOSS_DEVICES, TEST, UNTOLD

UNSEEN = "unseen"  # the model that a device made of the global one without ever having trained it


HARMED = 0.01
"""A device is harmed where its personal model's accuracy (of sets of labels: macro-F1) is below the global
one's by more than this."""

ACCURACY, EXACT_MATCH, RIGHT_STEPS = "accuracy", "exact match", "steps right"
OF_TASK = {"labels": EXACT_MATCH, "steps": RIGHT_STEPS}
"""Kind of a task, as its bundle and lines of metrics name it -> what the shares of what is right are called; of others
they are accuracies."""
NO_SUMS: Mapping[str, Mapping[str, float]] = {}


@runtime_checkable
class Event(Protocol):
    """What the aggregator's role tells its application and the metrics keep, one line for each."""

    def to_metrics(self) -> dict[str, Any]:
        """The event as a line of metrics, in JSON's types; "kind" is its first key."""

    def to_sentence(self) -> str:
        """The event for people, in the log."""


@runtime_checkable
class Complaint(Event, Protocol):
    """An event about a child that has done something wrong; a warning in the log.

    Attributes:
        sender: the child.
    """

    @property
    def sender(self) -> str: ...


@dataclass(frozen=True)
class Progress:
    """Aggregator: a training round is over.

    Attributes:
        round: rounds that are over.
        devices: how many counted in this one.
        sums: over these devices: "loss" of training, and scores of the models that they started from.
    """

    round: int
    devices: int
    sums: Mapping[str, float]

    def to_metrics(self) -> dict[str, Any]:
        return {"kind": "round", **asdict(self)}

    def to_sentence(self) -> str:
        found = [] if (loss := mean_loss(self.to_metrics())) is None else [f"loss {loss:.4f}"]
        return ", ".join([f"round {self.round}: {self.devices} devices", *found, *to_words(self.sums)])


@dataclass(frozen=True)
class Report:
    """Aggregator: an evaluation on all devices is over. `sums`: over those that answered; `final`: it was the last."""

    round: int
    sums: Mapping[str, float]
    final: bool = False

    def to_metrics(self) -> dict[str, Any]:
        sums, auc = areas(self.sums)
        return {"kind": "evaluation", **asdict(self), "sums": sums, "auc": auc}

    def to_sentence(self) -> str:
        return ", ".join([f"evaluation {self.round}: {self.sums.get('devices', 0):.0f} devices", *to_words(self.sums)])


@dataclass(frozen=True)
class Models:
    """Device: its models at the end of the run, e.g. "global" and "personal".

    Attributes:
        ensemble: how the personal model predicts, together with "local"; None: it predicts alone.
    """

    round: int
    models: Mapping[str, Theta]
    ensemble: Ensemble | None = None


@dataclass(frozen=True)
class Diverged:
    """Device: training has made numbers that are of no use, and what has been done about it.

    Attributes:
        round: of that training, global.
        what: a sentence for people.
    """

    round: int
    what: str


def progress(round: int, tally: Tally | None) -> Send:
    """`round`: rounds that are over with this one."""
    if tally is None:
        return Send(OUT, Progress(round, 0, {}))
    return Send(OUT, Progress(round, tally.count, gather.scores(tally)))


def training_scores(env: NodeEnv, loss: float | None, received: Mapping[str, Vector]) -> dict[str, float]:
    """What rides on a device's upload: its training loss, and the scores of the models that it started from."""
    return loss_scores(loss) | judge(env, received)


def loss_scores(loss: float | None) -> dict[str, float]:
    """A device's training loss as a score, and that it is of one device; nothing where there is none."""
    return {} if loss is None else {"loss": exact.bounded(loss), LOSS_DEVICES: 1.0}


def judge(
    env: NodeEnv, models: Mapping[str, Vector], known: Mapping[str, Mapping[str, float]] = NO_SUMS
) -> dict[str, float]:
    """The scores of one device for each of its models: global_correct, personal_loss, ..., and samples, devices.

    A device without held-out samples (or without env.score) has none, and is not among `devices`.

    Args:
        known: model -> its sums, of models that are more than theta.
    """
    if env.score is None:
        return {}
    sums: dict[str, float] = {}
    for name, theta in models.items():
        found = known.get(name) or env.score(theta)
        if not found["samples"] > 0:
            return {}
        sums |= {
            f"{name}_{key}": exact.bounded(value)
            for key, value in found.items()
            if key != "samples" and not is_count(key)
        }
        sums |= {"samples": float(found["samples"]), "devices": 1.0} if name != COMPANION else {}
        if "correct" in found:
            share = found["correct"] / found["samples"]
            sums |= {f"{name}_accuracy": share, f"{name}_accuracy_squared": share * share}
        sums |= {
            f"{name}_{key.replace(ABSOLUTE, MAE)}": exact.bounded(value / found["samples"])
            for key, value in found.items()
            if key.startswith(ABSOLUTE)
        }
        if name in (UNSEEN, COMPANION):
            sums |= {f"{name}_samples": float(found["samples"]), f"{name}_devices": 1.0}
    return sums


def judge_personal(models: Mapping[str, Theta], sums: Mapping[str, float]) -> dict[str, float]:
    """Facts about one device's personal model beside its scores: is it worse than the global one, and how much of the
    personal component is not zero? Nothing, where it has no scores of both.

    Args:
        sums: the device's own, as `judge` names them.
    """
    metric = F1 if f"personal_{F1}" in sums else "accuracy"
    if not {f"personal_{metric}", f"global_{metric}"} <= {*sums}:
        return {}
    own, shared = models["personal"], models["global"]
    worse = sums[f"global_{metric}"] - sums[f"personal_{metric}"] > HARMED
    return {"personal_harmed": float(worse), "personal_density": float(np.mean(own != shared))}


def judge_test(env: NodeEnv, models: Mapping[str, Vector], ensemble: Ensemble | None = None) -> dict[str, float]:
    """Scores of a device on its test samples, with TEST before each name; nothing where `judge` is on them already."""
    if env.test is None:
        return {}
    known = {} if ensemble is None else ensemble_sums(env.held_out, models, ensemble)
    return {f"{TEST}{name}": value for name, value in judge(replace(env, score=env.test), models, known).items()}


def sums_on_test(sums: Mapping[str, float]) -> dict[str, float]:
    """Sums on test samples, where these are apart, under the names that they would have otherwise."""
    return {name.removeprefix(TEST): value for name, value in sums.items() if name.startswith(TEST)}


def sums_on_validation(sums: Mapping[str, float]) -> dict[str, float]:
    """All sums but those on test samples that are apart."""
    return {name: value for name, value in sums.items() if not name.startswith(TEST)}


def ensemble_sums(
    samples: Labelled | None, models: Mapping[str, Vector], ensemble: Ensemble
) -> dict[str, dict[str, float]]:
    """Sums on some samples of the personal model, as the ensemble has it, and of the local one over its classes."""
    if samples is None or not len(samples.labels):
        return {}
    y, logits = samples.labels, samples.logits
    local = logits(models["local"])
    if samples.scores is not None:
        of = samples.scores.sums
        return {
            "personal": dict(of(mixed(ensemble, logits(models["personal"]), lambda: local))),
            "local": dict(of(local)),
        }
    own = combined(ensemble, logits(models["personal"]), lambda: local, samples.features or no_features)
    found = {"personal": own, "local": log_probabilities(local, ensemble.classes)}
    return {name: classification.sums(y, scores) for name, scores in found.items()}


def no_features() -> Any:
    raise UsageError("a forest predicts of features, and these samples have none")


def mean_accuracies(sums: Mapping[str, float]) -> dict[str, float]:
    """Unweighted means over the devices that have such a model: {"global": ..., "personal": ...}."""
    return device_means(sums, "_accuracy")


def share_name(line: Mapping[str, Any]) -> str:
    """What the shares of `mean_accuracies` are in a line of metrics: "exact match" where labels are in sets, which are
    right in every label or wrong, "steps right" where each step of a window has a class, else "accuracy".

    Lines of version 0.2.0 and before name no task: there whatever has macro-F1 is taken as sets."""
    if "task" in line:
        return OF_TASK.get(str(line["task"]), ACCURACY)
    in_sets = "labels" in line or any(name.endswith(f"_{F1}") for name in line.get("sums", {}))
    return EXACT_MATCH if in_sets else ACCURACY


def accuracy_spreads(sums: Mapping[str, float]) -> dict[str, float]:
    """Standard deviations of these accuracies over the same devices."""
    return device_spreads(sums, "accuracy")


def device_spreads(sums: Mapping[str, float], metric: str) -> dict[str, float]:
    """Model -> standard deviation of a metric over the devices that have such a model."""
    means, squares = device_means(sums, f"_{metric}"), device_means(sums, f"_{metric}_squared")
    return {name: max(0.0, square - means[name] ** 2) ** 0.5 for name, square in squares.items() if name in means}


def mean_macro_f1(sums: Mapping[str, float]) -> dict[str, float]:
    """Unweighted means of macro-F1 over the devices that have such a model; none where labels are in no sets."""
    return device_means(sums, f"_{F1}")


def mean_errors(sums: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Mean absolute errors of each value, `mae:k`, by model: unweighted means over devices, in halves of the range that
    the bundle names (edge_sdk/model/tasks/task.py)."""
    values = dict.fromkeys(name[name.index(f"_{MAE}:") + 1 :] for name in sums if f"_{MAE}:" in name)
    return {value: device_means(sums, f"_{value}") for value in values}


def mean_reconstruction_errors(sums: Mapping[str, float]) -> dict[str, float]:
    """Unweighted means of the errors of reconstructed windows over the devices that have such a model."""
    return device_means(sums, f"_{RECONSTRUCTION_ERROR}")


def device_means(sums: Mapping[str, float], metric: str) -> dict[str, float]:
    """Model -> its sums of a metric over the number of devices that have such a model."""
    totals = {n.removesuffix(metric): v for n, v in sums.items() if n.endswith(metric)}
    having = {name: sums.get(f"{name}_devices", sums.get(f"{part_of(name)}devices", 0)) for name in totals}
    return {name: total / having[name] for name, total in totals.items() if having[name]}


def part_of(name: str) -> str:
    """TEST for a sum on test samples that are apart, else "" """
    return TEST if name.startswith(TEST) else ""


def mean_loss(line: Mapping[str, Any]) -> float | None:
    """Mean training loss of the devices counted in a round that have told it; None for other lines of metrics.

    Lines of earlier versions do not say how many these are: there it is of all but those that have told no scores.
    """
    sums = line.get("sums", {})
    told = sums.get(LOSS_DEVICES, line.get("devices", 0) - sums.get(UNTOLD, 0.0))
    return float(sums["loss"] / told) if line["kind"] == "round" and told > 0 and "loss" in sums else None


def errors_to_words(told: Mapping[str, Any]) -> str:
    """The errors of a line of metrics, in their units, behind a sentence: " (global 7 bpm)"; "" where it has none."""
    units = told.get("units", ())
    found = [
        f"{model}{f' {name}' if len(units) > 1 else ''} {error:.4g} {unit}".rstrip()
        for model, errors in told.get("errors", {}).items()
        for (name, error), unit in zip(errors.items(), units, strict=False)
    ]
    return f" ({', '.join(found)})" if found else ""


def to_words(sums: Mapping[str, float]) -> list[str]:
    untold = [f"no scores of {sums[UNTOLD]:.0f}"] if sums.get(UNTOLD) else []
    errors = [
        f"{name} off by {mean:.3g} of half the range" + ("" if value.endswith(":0") else f" ({value})")
        for value, means in mean_errors(sums).items()
        for name, mean in means.items()
    ]
    errors += [f"{name} reconstruction error {mean:.4g}" for name, mean in mean_reconstruction_errors(sums).items()]
    if f1 := mean_macro_f1(sums):
        return [f"{name} macro-F1 {mean:.3f}" for name, mean in f1.items()] + untold
    return [f"{name} {100 * share:.1f}%" for name, share in mean_accuracies(sums).items()] + errors + untold
