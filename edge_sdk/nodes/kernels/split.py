"""The split family: a model whose parts lie at different nodes, and each node differentiates its own part.

The bundle has towers "hospital" and "device", and parties of the same names; the hospital owns the head too. Its theta
is [head; hospital; device], which are theta_0, theta_1 and theta_2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge_sdk.algebra.metrics import classification
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.kernels import Floats, Rows, Split
from edge_sdk.contract.run import Run
from edge_sdk.data.patients import NO_ROWS, Patients, rows_of
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel
from edge_sdk.model.tasks.task import class_codes
from edge_sdk.nodes.kernels.family import AggregatorParts, Array, DeviceParts, Family, Fields, HospitalParts

HEAD, HOSPITAL, DEVICE = "head", "hospital", "device"
GROUPS = HEAD, HOSPITAL, DEVICE
PARTIES = {HOSPITAL: (HEAD, HOSPITAL), DEVICE: (DEVICE,)}


# A run and its bundle -------------------------------------------------------------------------------------------
def check(run: Run, settings: Any, bundle: Bundle) -> None:
    """Raises UsageError if the bundle is of a whole model, or cannot do what the setting `columns` asks for."""
    if not bundle.is_split:
        name = bundle.manifest["name"]
        raise UsageError(f"method = {run.method!r} trains a split model, and bundle {name} is none")
    if getattr(settings, "columns", False):
        check_columns(SplitModel(bundle, check=False))


def check_columns(model: SplitModel) -> None:
    """Raises UsageError if a tower has nothing that says how much each column of its embedding matters."""
    for tower in (HOSPITAL, DEVICE):
        if last_bias(model, tower) is None:
            raise UsageError(
                f"columns = true: the last layer of {model.name}'s tower {tower} has no bias with an entry for each "
                "column of its embedding; without columns, the largest entries of each row are kept"
            )


def split_of(model: SplitModel) -> Split:
    """The sizes of its parts.

    Raises:
        UsageError: its parties are others, or its parameters lie in another order.
    """
    order = tuple(dict.fromkeys(s.group for s in model.layout.slots))
    owned = {party: tuple(sorted(groups)) for party, groups in model.parties.items()}
    if order != GROUPS or owned != {p: tuple(sorted(g)) for p, g in PARTIES.items()}:
        raise UsageError(
            f"{model.name}: groups {', '.join(order)} of {owned}; a run needs {', '.join(GROUPS)} of {PARTIES}"
        )
    sizes = (model.group(model.theta0, g).size for g in GROUPS)
    widths = (model.bundle.manifest["split"]["towers"][t]["embedding"] for t in (HOSPITAL, DEVICE))
    return Split(*sizes, *widths)


def last_bias(model: SplitModel, tower: str) -> slice | None:
    """Where in its group the bias of a tower's last layer lies; None: it has none, with an entry for each column of
    its embedding."""
    slots = [s for s in model.layout.slots if s.group == tower]
    width, last = model.bundle.manifest["split"]["towers"][tower]["embedding"], slots[-1]
    if last.kind != "bias" or last.size != width:
        return None
    return slice(last.offset - slots[0].offset, last.offset - slots[0].offset + width)


def device_kernels(
    model: SplitModel, x2: Array, y: Array, judged: Sequence[tuple[Array, Array]] = ()
) -> dict[str, Any]:
    """Fields of a device's env.

    Args:
        x2: (samples, ...), its features. y: (samples,), labels.
        judged: the same of samples that it is judged on: of its validation part, if it has one, then of its test part.
    """

    def h2(theta_2: Vector, rows: Rows) -> Floats:
        return model.embed(DEVICE, theta_2, x2[rows])

    def grad_device(theta_0: Vector, zeta_1: Floats, theta_2: Vector, rows: Rows) -> tuple[float, Vector]:
        thetas, given = {HEAD: theta_0, DEVICE: theta_2}, {HOSPITAL: zeta_1}
        loss, grads = model.party_grad(DEVICE, thetas, {DEVICE: x2[rows]}, given, y[rows])
        return loss, grads[DEVICE]

    def score_part(part: int, theta_0: Vector, zeta_1: Floats, theta_2: Vector) -> Mapping[str, float]:
        x, labels = judged[part]
        logits = model.party_logits(DEVICE, {HEAD: theta_0, DEVICE: theta_2}, {DEVICE: x}, {HOSPITAL: zeta_1})
        return classification.sums(labels, logits)

    kernels = {"samples": len(y), "h2": h2, "grad_device": grad_device, "bias": last_bias(model, DEVICE)}
    sizes = tuple(len(labels) for _, labels in judged)
    return kernels | ({"score_part": score_part, "judged": sizes} if sum(sizes) else {})


def hospital_kernels(
    model: SplitModel,
    x1: Array,
    y: Array,
    rows: Mapping[str, Rows],
    judged: Sequence[tuple[Array, Mapping[str, Rows]]] = (),
) -> dict[str, Any]:
    """Fields of a hospital's env.

    Args:
        x1: (samples, ...), its features of all its patients. y: (samples,), labels.
        rows: device -> rows of its samples in x1 and y, in the device's order.
        judged: the same features of samples that devices are judged on, and whose they are: of their validation parts,
            if they have such, then of their test parts.
    """

    def h1(theta_1: Vector, at: Rows) -> Floats:
        return model.embed(HOSPITAL, theta_1, x1[at])

    def grad_hospital(theta_0: Vector, theta_1: Vector, zeta_2: Floats, at: Rows) -> tuple[float, Vector, Vector]:
        thetas, given = {HEAD: theta_0, HOSPITAL: theta_1}, {DEVICE: zeta_2}
        loss, grads = model.party_grad(HOSPITAL, thetas, {HOSPITAL: x1[at]}, given, y[at])
        return loss, grads[HEAD], grads[HOSPITAL]

    def h1_judged(theta_1: Vector, device: str, final: bool) -> Floats:
        parts = judged if final else judged[:1]
        x = np.concatenate([x[whose.get(device, NO_ROWS)] for x, whose in parts])
        return model.embed(HOSPITAL, theta_1, x)

    kernels = {"rows": rows, "h1": h1, "grad_hospital": grad_hospital, "bias": last_bias(model, HOSPITAL)}
    return kernels | ({"h1_judged": h1_judged} if judged else {})


# The family -----------------------------------------------------------------------------------------------------
def for_device(parts: DeviceParts) -> Fields:
    """The sizes of the model's parts, and the device's own part with its features and labels behind it."""
    model = split_model(parts.model)
    judged = [part for part in (parts.validation, parts.held_out) if part is not None]
    return {"split": split_of(model), **device_kernels(model, parts.x, parts.y, judged)}


def for_hospital(parts: HospitalParts) -> Fields:
    """The sizes of the model's parts, and the hospital's own part with its patients' features behind it."""
    if parts.patients is None:
        raise UsageError(f"{parts.whose}: {parts.run.method} needs what it holds of its patients: a [data] table")
    model, train = split_model(parts.model), parts.patients.train
    y = class_codes(train.labels, parts.run.classes, parts.whose)
    kernels = hospital_kernels(model, train.x, y, rows_of(parts.patients.devices), judged_rows(parts.patients))
    return {"split": split_of(model), **kernels}


def judged_rows(patients: Patients) -> Sequence[tuple[Array, Mapping[str, Rows]]]:
    """Features of the samples that devices are judged on, and whose they are, part by part."""
    test = patients.held_out, rows_of(patients.held_out_devices)
    return ([(patients.validation, rows_of(patients.validation_devices))] if len(patients.validation) else []) + [test]


def for_aggregator(parts: AggregatorParts) -> Fields:
    return {"split": split_of(SplitModel(parts.bundle, check=False))}


def split_model(model: Model | None) -> SplitModel:
    """The model as a split one, which `check` has found it to be."""
    assert isinstance(model, SplitModel)
    return model


SPLIT = Family(
    check=check, for_device=for_device, for_hospital=for_hospital, for_aggregator=for_aggregator, divided=True
)
