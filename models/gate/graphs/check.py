"""Puts all graphs of a bundle through the gate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from edge_sdk.model.dropout import MASKS
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.gate.graphs.gate import (
    FLOAT32_LIMIT,
    Truth,
    check_float32,
    check_semantics,
)
from edge_sdk.models.gate.references.cases import Case
from edge_sdk.models.gate.references.losses import compute_losses
from edge_sdk.models.gate.references.measure import SEMANTIC_LIMIT, relative_error
from edge_sdk.models.gate.references.runnable import RunnableGraph
from edge_sdk.models.ir.errors import CompileError, ParityError, UnsupportedPattern

BLOCKED = "+blocked"  # suffix of the names of graphs in the blocked layout
VJP_LIMIT = 1e-4  # float32 against float32

SUMS = ((Case("sums", 403, 3), SEMANTIC_LIMIT), (Case("sums, inputs times 30", 404, 4, 30.0), 1e-4))
"""Batches whose gradients must be the sums of those of their samples, and how nearly; the second one where the traced
module has a value of all samples."""
SUMS_ADVICE = (
    "a device divides batches, and trains with other ones: a weight, or a backward pass of its own, must treat each "
    "sample alone; leave means over samples to the loss"
)

Arrays = Mapping[str, np.ndarray]
YShape = tuple[int, ...]


def check_graphs(
    graphs: Mapping[str, Target], runs: Mapping[str, RunnableGraph], truth: Truth, fixed: Arrays, y_shape: YShape
) -> dict[str, float]:
    """Check loss_grad against torch, and all other graphs against loss_grad; the errors that were measured.

    Raises:
        ParityError: a graph is not right.
        UnsupportedPattern: samples depend on each other.
    """
    check_independence(truth, y_shape)
    if not truth.train:
        check_sums(truth, y_shape)
    whole = graphs["loss_grad"]
    errors = {"float64": check_semantics(whole, whole.slots, truth, fixed, y_shape)}
    errors["float32"] = check_float32(lambda data: runs["loss_grad"](fixed, data)["grad"], truth, y_shape)
    check_consistency(graphs, runs, truth, fixed, y_shape)
    if f"loss_grad{BLOCKED}" in runs:
        check_blocked(runs, truth, fixed, y_shape)
        fast = runs[f"loss_grad{BLOCKED}"]
        errors["float32 blocked"] = check_float32(lambda data: fast(fixed, data)["grad"], truth, y_shape)
    return errors


def check_independence(truth: Truth, y_shape: YShape) -> None:
    """Check that the module's output for a sample does not depend on the others: devices split batches into steps.

    Raises:
        UnsupportedPattern: it does. CompileError: it is no number.
    """
    data = truth.draw(Case("independence", 402, 3), y_shape)
    if not np.isfinite(truth.predict(data)).all():
        raise CompileError("the module: its output is not finite for normal inputs; give it the state that it needs")
    alone = [truth.predict({k: v[i : i + 1] for k, v in data.items()}) for i in range(3)]
    error = relative_error(np.concatenate(alone), truth.predict(data))
    if not error <= SEMANTIC_LIMIT:
        what = f"the output for a sample changes by {error:.0e} with the other samples of its batch"
        raise UnsupportedPattern(what + truth.name_coupling(), "", "samples must not depend on each other")


def check_sums(truth: Truth, y_shape: YShape) -> None:
    """Check that gradients of samples add up: what stops or weighs gradients may make them depend on each other.

    Samples whose masks lie among those of others have no masks of their own; these are compared in evaluation.

    Raises:
        UnsupportedPattern: they do not.
    """
    shared = truth.drops is not None and any(d.times > 1 for d in truth.drops.draws)
    for case, limit in SUMS if truth.coupling else SUMS[:1]:
        data = truth.draw(case, y_shape)
        if shared:
            data.pop(MASKS)
        whole = truth.loss_grad(data)[2]
        alone = [truth.loss_grad({k: v[i : i + 1] for k, v in data.items()})[2] for i in range(case.batch)]
        size = sum(float(np.linalg.norm(g)) for g in alone)
        if not np.isfinite(whole).all():
            continue
        error = float(np.linalg.norm(np.sum(alone, axis=0) - whole)) / max(size, 1e-30)
        if not error <= limit:
            what = f"the gradient of a sample changes by {error:.0e} with the other samples of its batch"
            raise UnsupportedPattern(what + truth.name_coupling(), "", SUMS_ADVICE)


def check_blocked(runs: Mapping[str, RunnableGraph], truth: Truth, fixed: Arrays, y_shape: YShape) -> None:
    """Check the graphs in the blocked layout.

    Raises:
        ParityError: their output differs from that of the portable graphs.
    """
    data = {k: v.numpy() for k, v in truth.draw(Case("blocked", 401, 3), y_shape).items()}
    plain, fast = (next(iter(runs[name](fixed, data).values())) for name in ("predict", f"predict{BLOCKED}"))
    error = relative_error(fast, plain)
    if not error <= FLOAT32_LIMIT:
        raise ParityError("blocked predict", "float32", "the output", error, FLOAT32_LIMIT)


def check_consistency(
    graphs: Mapping[str, Target], runs: Mapping[str, RunnableGraph], truth: Truth, fixed: Arrays, y_shape: YShape
) -> None:
    """Check that partial gradients are slices of the whole one, bit for bit, and that vjp gives the same gradient."""
    data = draw_consistency(truth, y_shape)
    whole = runs["loss_grad"](fixed, data)["grad"]
    for name, error in measure_parts(graphs, runs, fixed, data).items():
        if error:
            raise ParityError(name, "bit for bit", name.split("@")[1], error, 0.0)
    if "vjp" in graphs:
        if truth.heads:  # vjp has the output alone
            whole = truth.loss_grad_of_output({k: torch.from_numpy(v) for k, v in data.items()})
        for s in (s for s in graphs["loss_grad"].slots if s.name in truth.running):
            whole[s.span] = 0  # its output does not depend on running statistics
        check_vjp(runs["vjp"], truth, fixed, data, whole)


def draw_consistency(truth: Truth, y_shape: YShape) -> Arrays:
    """The batch on which graphs are compared with each other."""
    return {k: v.numpy() for k, v in truth.draw(Case("consistency", 400, 3), y_shape).items()}


def measure_parts(
    graphs: Mapping[str, Target], runs: Mapping[str, RunnableGraph], fixed: Arrays, data: Arrays
) -> dict[str, float]:
    """Partial gradient -> its L2 error relative to the whole gradient; 0: equal bit for bit."""
    whole, errors = runs["loss_grad"](fixed, data)["grad"], {}
    for name, target in graphs.items():
        if name.startswith("loss_grad@"):
            part, want = runs[name](fixed, data)["grad"], np.concatenate([whole[s.span] for s in target.slots])
            error = float(np.linalg.norm(part - want)) / max(float(np.linalg.norm(whole)), 1e-30)
            errors[name] = 0.0 if np.array_equal(part, want) else max(error, 1e-30)
    return errors


def find_unequal_parts(
    graphs: Mapping[str, Target], runs: Mapping[str, RunnableGraph], truth: Truth, fixed: Arrays, y_shape: YShape
) -> list[str]:
    """The partial gradients whose float32 rounding differs from that of the whole one.

    In a shorter graph onnxruntime joins other operators, and joined ones round differently. Methods rely on equal bits.
    """
    errors = measure_parts(graphs, runs, fixed, draw_consistency(truth, y_shape))
    return [name for name, error in errors.items() if 0 < error <= VJP_LIMIT]


def check_vjp(run: RunnableGraph, truth: Truth, fixed: Arrays, data: Arrays, whole: np.ndarray) -> None:
    """Check that vjp, given the cotangent of the loss, reproduces the output and the gradient."""
    zeros = np.zeros(
        (len(data["weights"]), *truth.predict({k: torch.from_numpy(v) for k, v in data.items()}).shape[1:])
    )
    output = run(fixed, data, {"cotangent": zeros})[run.outputs[0]]
    made = run(fixed, data, {"cotangent": find_loss_cotangent(truth, output, data)})
    error = relative_error(made["grad"], whole)
    if not np.array_equal(made[run.outputs[0]], output) or not error <= VJP_LIMIT:
        raise ParityError("vjp", "the loss's cotangent", "the gradient", error, VJP_LIMIT)


def find_loss_cotangent(truth: Truth, output: np.ndarray, data: Arrays) -> np.ndarray:
    """dloss/doutput by autograd on the output alone."""
    z = torch.from_numpy(output.astype(np.float64)).requires_grad_()
    losses = compute_losses(truth.loss, truth.smoothing, z, torch.from_numpy(data["y"]))
    value = (torch.from_numpy(data["weights"]) * losses).sum()
    cotangent: np.ndarray = torch.autograd.grad(value, z)[0].numpy()
    return cotangent
