"""The comparison of native graphs with those of standard operators, with the library as devices use it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from edge_sdk.algebra.vectors import Slot
from edge_sdk.model.bundle import BundleError
from edge_sdk.model.sessions.kernels import takes_products
from edge_sdk.model.sessions.operator_probe import check_operators
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.derive.tensors import TensorGraph
from edge_sdk.models.gate.graphs.check import YShape
from edge_sdk.models.gate.graphs.gate import FLOAT32_LIMIT, FLOAT32_SEEDS, FLOAT32_WORST, TORCH_FACTOR, Truth
from edge_sdk.models.gate.graphs.tensors import cut, draw_cotangent
from edge_sdk.models.gate.references.cases import Case
from edge_sdk.models.gate.references.measure import relative_error
from edge_sdk.models.gate.references.runnable import RunnableGraph
from edge_sdk.models.ir.errors import CompileError, ParityError

BATCH = 3
ADVICE = "install the auscult-native that belongs to this release, or compile with AUSCULT_NATIVE=0"

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class NativeGraph:
    """A native graph, and what it is made of.

    Attributes:
        target: the graph. tensors: how it takes theta; None: as a whole. plain: the session of the graph that it is of.
    """

    target: Target
    tensors: TensorGraph | None
    plain: RunnableGraph


def check_sides(name: str, native: Target, plain: Target) -> None:
    """Check that a native form takes and gives the same values as the graph that it is made of.

    Raises:
        CompileError: it does not.
    """
    for side, order in (("input", sorted), ("output", list)):
        got, want = (order(v.name for v in getattr(target.model().graph, side)) for target in (native, plain))
        if got != want:
            raise CompileError(f"the native form of {name} has the {side}s {', '.join(got)}, not {', '.join(want)}")


def check_native(
    forms: Mapping[str, NativeGraph], library: str, slots: Sequence[Slot], fixed: Arrays, truth: Truth, y_shape: YShape
) -> float:
    """Run native graphs on the batches of the gate's comparison in float32; the largest error of a median batch.

    Limits are those of the gate: they depend on torch's own float32 errors there.

    Args:
        forms: by name. slots: of theta. fixed: theta, statistics.

    Raises:
        ParityError: a graph's outputs differ from those of the graph that it is made of by more.
        CompileError: the library cannot run it.
    """
    batches = [truth.draw(Case("float32", seed, BATCH), y_shape) for seed in FLOAT32_SEEDS]
    wholes = [truth.loss_grad(batch)[2] for batch in batches]
    rounding = [relative_error(truth.loss_grad(b, torch.float32)[2], g) for b, g in zip(batches, wholes, strict=True)]
    middle = max(FLOAT32_LIMIT, TORCH_FACTOR * float(np.median(rounding)))
    limits = {"median": middle, "worst": max(FLOAT32_WORST, TORCH_FACTOR * max(rounding))}
    largest, products = 0.0, takes_products(len(fixed["theta"]))
    try:
        check_operators(library, products)
    except BundleError as wrong:
        raise CompileError(f"{wrong}; {ADVICE}") from wrong
    for name, form in forms.items():
        run, errors = open_native(name, form.target, library, products), defaultdict[str, list[float]](list)
        for batch, whole in zip(batches, wholes, strict=True):
            data, least = {k: v.numpy() for k, v in batch.items()}, float(np.linalg.norm(whole)) if "@" in name else 0.0
            for output, error in measure_outputs(form, run, slots, {**fixed, **data}, least).items():
                errors[output].append(error)
        for output, found in errors.items():
            for which, error in (("median", float(np.median(found))), ("worst", max(found))):
                if not error <= limits[which]:
                    case = f"float32, {which} seed"
                    raise ParityError(f"the native form of {name}", case, output, error, limits[which])
            largest = max(largest, float(np.median(found)))
    return largest


def open_native(name: str, target: Target, library: str, products: bool) -> RunnableGraph:
    try:
        return RunnableGraph(target.model(), library, products)
    except Exception as error:  # onnxruntime's exceptions have no common base
        first = str(error).strip().split("\n")[0][:200]
        raise CompileError(f"the native form of {name} cannot be run: {first}; {ADVICE}") from error


def measure_outputs(
    form: NativeGraph, run: RunnableGraph, slots: Sequence[Slot], given: Arrays, least: float
) -> dict[str, float]:
    """Output -> L2 distance of the native form's from the plain one's, relative to that, or to `least`.

    Args:
        least: size of the whole gradient, for that of a group, which may be no more than rounding beside it.
    """
    given = {**given, **draw_cotangent(form.target.graph, BATCH)}
    found = run(given, cut(form.tensors, given["theta"], slots) if form.tensors else {})
    errors = {}
    for output, want in form.plain(given).items():
        with np.errstate(invalid="ignore"):
            apart = np.where(found[output] == want, 0, found[output] - want)  # infinities may be equal
        size = float(np.linalg.norm(want[np.isfinite(want)]))
        errors[output] = float(np.linalg.norm(apart)) / max(size, least if output == "grad" else 0.0, 1e-30)
    return errors
