"""HSGD's kernels from a split model: what each node is given so that it differentiates its own part.

The bundle has towers "hospital" and "device", and parties of the same names; the hospital owns the head too. Its theta
is [head; hospital; device], which are theta_0, theta_1 and theta_2.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra import classification
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.methods.hsgd.compression import Floats
from edge_sdk.methods.hsgd.settings import Rows, Split
from edge_sdk.model.bundle import Bundle, read_bundle
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel
from edge_sdk.nodes.assembly import method_of, settings_of

Array = npt.NDArray[Any]

HEAD, HOSPITAL, DEVICE = "head", "hospital", "device"
GROUPS = HEAD, HOSPITAL, DEVICE
PARTIES = {HOSPITAL: (HEAD, HOSPITAL), DEVICE: (DEVICE,)}


def is_split(bundle: Bundle) -> bool:
    return bool(bundle.manifest.get("split"))


def loaded(bundle: str | Path, threads: int = 1) -> Model:
    """The model of a bundle, as a split one if it is one."""
    file = read_bundle(bundle)
    return (SplitModel if is_split(file) else Model)(file, threads=threads)


def shapes(bundle: Bundle) -> dict[str, tuple[int, ...]]:
    """Of one sample: {"x": ...}, or {"x.hospital": ..., "x.device": ...} of a split model."""
    return {str(i["name"]): tuple(i["shape"]) for i in bundle.manifest["inputs"]}


def own_shape(model: Model, party: str) -> tuple[int, ...]:
    """Of what a party holds of one sample: in a split model its part, else the whole."""
    return shapes(model.bundle)[f"x.{party}"] if isinstance(model, SplitModel) else model.input_shape


def divides(run: Run, bundle: Bundle) -> bool:
    """Whether the method of a run trains a split model.

    Raises:
        UsageError: method and bundle do not go together.
    """
    splits, name = method_of(run).splits, bundle.manifest["name"]
    if splits and not is_split(bundle):
        raise UsageError(f"method = {run.method!r} trains a split model, and bundle {name} is none")
    if splits and settings_of(run).columns:
        check_columns(SplitModel(bundle, check=False))
    if is_split(bundle) and not splits:
        raise UsageError(f"bundle {name} is a split model, and method = {run.method!r} trains a whole one")
    return splits


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
            f"{model.name}: groups {', '.join(order)} of {owned}; HSGD needs {', '.join(GROUPS)} of {PARTIES}"
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
    model: SplitModel, x2: Array, y: Array, held_out: tuple[Array, Array] | None = None
) -> dict[str, Any]:
    """Fields of hsgd_settings.Env for a device.

    Args:
        x2: (samples, ...), its features. y: (samples,), labels.
        held_out: the same of samples that it is judged on.
    """

    def h2(theta_2: Vector, rows: Rows) -> Floats:
        return model.embed(DEVICE, theta_2, x2[rows])

    def grad_device(theta_0: Vector, zeta_1: Floats, theta_2: Vector, rows: Rows) -> tuple[float, Vector]:
        thetas, given = {HEAD: theta_0, DEVICE: theta_2}, {HOSPITAL: zeta_1}
        loss, grads = model.party_grad(DEVICE, thetas, {DEVICE: x2[rows]}, given, y[rows])
        return loss, grads[DEVICE]

    def score_held_out(theta_0: Vector, zeta_1: Floats, theta_2: Vector) -> Mapping[str, float]:
        x, labels = held_out or (x2[:0], y[:0])
        logits = model.party_logits(DEVICE, {HEAD: theta_0, DEVICE: theta_2}, {DEVICE: x}, {HOSPITAL: zeta_1})
        return classification.sums(labels, logits)

    kernels = {"samples": len(y), "h2": h2, "grad_device": grad_device, "bias": last_bias(model, DEVICE)}
    return kernels | ({"score_held_out": score_held_out} if held_out is not None and len(held_out[1]) else {})


def hospital_kernels(
    model: SplitModel,
    x1: Array,
    y: Array,
    rows: Mapping[str, Rows],
    held_out: tuple[Array, Mapping[str, Rows]] | None = None,
) -> dict[str, Any]:
    """Fields of hsgd_settings.Env for a hospital.

    Args:
        x1: (samples, ...), its features of all its patients. y: (samples,), labels.
        rows: device -> rows of its samples in x1 and y, in the device's order.
        held_out: the same features of samples that devices are judged on, and whose they are.
    """

    def h1(theta_1: Vector, at: Rows) -> Floats:
        return model.embed(HOSPITAL, theta_1, x1[at])

    def grad_hospital(theta_0: Vector, theta_1: Vector, zeta_2: Floats, at: Rows) -> tuple[float, Vector, Vector]:
        thetas, given = {HEAD: theta_0, HOSPITAL: theta_1}, {DEVICE: zeta_2}
        loss, grads = model.party_grad(HOSPITAL, thetas, {HOSPITAL: x1[at]}, given, y[at])
        return loss, grads[HEAD], grads[HOSPITAL]

    def h1_held_out(theta_1: Vector, device: str) -> Floats:
        x, whose = held_out or (x1[:0], {})
        return model.embed(HOSPITAL, theta_1, x[whose.get(device, np.zeros(0, np.intp))])

    kernels = {"rows": rows, "h1": h1, "grad_hospital": grad_hospital, "bias": last_bias(model, HOSPITAL)}
    return kernels | ({"h1_held_out": h1_held_out} if held_out is not None else {})
