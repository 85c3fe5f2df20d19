"""The graphs of a bundle: in portable operators, and in the blocked layout of the machine that compiles."""

from __future__ import annotations

from collections.abc import Sequence

from edge_sdk.models.derive import targets
from edge_sdk.models.derive.targets import Source, Target
from edge_sdk.models.gate.graphs.check import BLOCKED
from edge_sdk.models.gate.references.blocks import find_block
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.passes.convolutions.blocked import BLOCKS, write_probe


def make_graphs(source: Source, trained: Source, spec: Spec) -> dict[str, Target]:
    """Name -> graph, in portable operators.

    Args:
        source, trained: the module as it is in evaluation and in training.
    """
    graphs = {
        "predict": targets.write_predict(source),
        "loss_grad": write_loss_grad(trained, spec),
        "vjp": targets.write_vjp(trained),
    }
    if spec.features:
        graphs["features"] = targets.write_features(source, spec.features)
        graphs["features_vjp"] = targets.write_features_vjp(trained, spec.features)
    named = sorted({s.group for s in source.parameters} - {""})
    wanted = spec.partial if spec.partial is not None else (named if len(named) > 1 else [])
    return graphs | {f"loss_grad@{group}": write_loss_grad(trained, spec, [group]) for group in wanted}


def write_loss_grad(source: Source, spec: Spec, groups: Sequence[str] | None = None, cut: bool = False) -> Target:
    """The loss of a batch and its gradient, with the loss of the spec; see `targets.write_loss_grad`."""
    return targets.write_loss_grad(source, spec.loss, groups, cut, spec.smoothing, [*spec.heads.values()])


def make_blocked_graphs(source: Source, trained: Source, spec: Spec) -> dict[str, Target]:
    """Second versions of graphs in the blocked layout of this machine, and its probe; none if no convolution fits.

    Raises:
        CompileError: onnxruntime has none here.
    """
    if not (block := find_block()):
        if any(source.use_blocks(b) for b in BLOCKS):
            raise CompileError("onnxruntime has no blocked layout on this machine; compile without --blocked")
        return {}
    other, training = source.use_blocks(block), trained.use_blocks(block)
    if other is None or training is None:
        return {}
    return {
        f"predict{BLOCKED}": targets.write_predict(other),
        f"loss_grad{BLOCKED}": write_loss_grad(training, spec),
        f"probe{BLOCKED}": Target(write_probe(block), ["y"]),
    }
