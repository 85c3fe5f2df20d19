"""Normalisation by layer, group or instance, and by batch with fixed statistics."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from edge_sdk.models.ir.errors import TrainModeExport, UnsupportedPattern
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.shapes import as_numbers, multiply
from edge_sdk.models.rules.table import Adjoints, Want, rule


def write_normalised_adjoint(g: OnnxGraph, gx: str, xhat: str, rstd: str, axes: Sequence[int]) -> str:
    """The adjoint of x for xhat = (x - mean) rstd over `axes`: rstd (gx - mean(gx) - xhat mean(gx xhat))."""
    centred = g.sub(gx, g.mean(gx, axes, keep=True))
    slope = g.mean(g.mul(gx, xhat), axes, keep=True)
    return g.mul(g.sub(centred, g.mul(xhat, slope)), rstd)


@rule("LayerNormalization")
def layer_norm(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """The adjoints of a layer norm; the operator's own further outputs give the mean and 1/std."""
    x, scale = n.inputs[:2]
    shape = g.shape(x)
    axis = n.attributes.get("axis", -1) % len(shape)
    axes = list(range(axis, len(shape)))
    size = prod(as_numbers(shape[axis:], "LayerNorm", n.where))
    n.outputs += [g.new_name("norm") for _ in range(3 - len(n.outputs))]
    mean, rstd = n.outputs[1:3]
    g.shapes[mean] = g.shapes[rstd] = (*shape[:axis], *(1 for _ in axes))
    many = multiply(shape[:axis])
    x, gy, scale = g.reshape(x, (many, size)), g.reshape(gy, (many, size)), g.reshape(scale, (size,))
    xhat = scale_rows(g, x, g.reshape(rstd, (many,)), mean=g.reshape(mean, (many,)))
    slopes = g.mul(gy, xhat)
    gx = g.reshape(write_layer_norm_adjoint(g, gy, xhat, slopes, scale, rstd), shape) if want[0] else None
    gs = g.reshape(g.sum(slopes, [0]), g.shape(n.inputs[1])) if want[1] else None
    gb = g.reshape(g.sum(gy, [0]), g.shape(n.inputs[2])) if len(n.inputs) > 2 and want[2] else None
    return gx, gs, gb


def write_layer_norm_adjoint(g: OnnxGraph, gy: str, xhat: str, slopes: str, scale: str, rstd: str) -> str:
    """rstd (scale gy - mean(scale gy) - xhat mean(scale gy xhat)); the means are products with a vector."""
    many, size = g.shape(gy)[0], g.sample_shape(gy)[0]
    weights = g.reshape(scale, (size, 1))
    # the factor comes after the Reshape: onnxruntime would fuse it into the product, which is then slower
    shift, slope = (g.scale(g.reshape(g.matmul(v, weights), (many,)), -1 / size) for v in (gy, slopes))
    centred = g.add(g.mul(gy, scale), scale_rows(g, xhat, slope, shift))
    return g.mul(centred, g.reshape(rstd, (many, 1)))


def scale_rows(g: OnnxGraph, rows: str, slope: str, shift: str = "", mean: str = "") -> str:
    """slope (row - mean) + shift with one of each per row.

    Written as a BatchNormalization with variance 1, which is one pass over the rows instead of two or three.
    """
    shape = g.shape(rows)
    zero, one = (g.fill(shape[0], value, like=rows) for value in (0.0, 1.0))
    inputs = (g.reshape(rows, (1, *shape)), slope, shift or zero, mean or zero, one)
    return g.reshape(g.op("BatchNormalization", *inputs, epsilon=0.0, shape=(1, *shape)), shape)


@rule("InstanceNormalization")
def instance_norm(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Adjoints of a norm per sample and channel; its mean and 1/std are computed again."""
    x, scale, _ = n.inputs
    shape = g.shape(x)
    axes = list(range(2, len(shape)))
    channel = (shape[1], *(1 for _ in axes))
    d = g.sub(x, g.mean(x, axes, keep=True))
    variance = g.mean(g.mul(d, d), axes, keep=True)
    rstd = invert_root(g, variance, n)
    xhat = g.mul(d, rstd)
    gx = write_normalised_adjoint(g, g.mul(gy, g.reshape(scale, channel)), xhat, rstd, axes) if want[0] else None
    over = [0, *axes]
    return gx, g.sum(g.mul(gy, xhat), over) if want[1] else None, g.sum(gy, over) if want[2] else None


def invert_root(g: OnnxGraph, variance: str, n: OnnxNode) -> str:
    """1 / sqrt(variance + epsilon) with the epsilon of a norm."""
    epsilon = n.attributes.get("epsilon", 1e-5)
    return g.unary("Reciprocal", g.unary("Sqrt", g.add(variance, g.scalar(epsilon))))


@rule("BatchNormalization")
def batch_norm(g: OnnxGraph, n: OnnxNode, gy: str, want: Want) -> Adjoints:
    """Adjoints with fixed statistics: the norm is an affine map per channel."""
    if n.attributes.get("training_mode", 0):
        raise TrainModeExport(f"{n.where}: BatchNormalization in training mode; call eval() and choose a norm policy")
    x, scale, _, mean, variance = n.inputs
    if want[3] or want[4]:
        raise UnsupportedPattern("the gradient of running statistics", n.where)
    shape = g.shape(x)
    channel = (shape[1], *(1 for _ in shape[2:]))
    rstd = invert_root(g, variance, n)
    gx = g.mul(gy, g.reshape(g.mul(scale, rstd), channel)) if want[0] else None
    over = [0, *range(2, len(shape))]
    gs = g.mul(g.sum(g.mul(gy, g.sub(x, g.reshape(mean, channel))), over), rstd) if want[1] else None
    return gx, gs, g.sum(gy, over) if want[2] else None


def write_group_norm_adjoints(
    g: OnnxGraph, gy: str, xhat: str, rstd: str, scale: str, groups: int
) -> tuple[str, str, str]:
    """Adjoints of x, scale and shift for y = scale xhat + shift, with mean and 1/std per sample and group.

    From two sums per sample and channel, s0 = sum gy and s1 = sum gy xhat over positions:
        gshift = sum s0, gscale = sum s1 over samples
        gx = rstd scale gy + (b xhat + d), with b, d = -rstd/N sum over the group's channels of scale s1, scale s0
    `b xhat + d` is one affine map per group, which BatchNormalization does in a single pass.

    Args:
        gy, xhat: (B, C, *positions). rstd: (B, groups, 1). scale: (C,).
    """
    shape = g.shape(gy)
    batch, (channels, *spatial) = shape[0], g.sample_shape(gy)
    count = channels // groups * prod(spatial)
    s0 = g.sum(gy, range(2, len(shape)))
    s1 = g.sum(g.mul(gy, xhat), range(2, len(shape)))
    per_group = g.reshape(scale, (1, groups, channels // groups))
    shrink = g.scale(rstd, -1 / count)
    b, d = (sum_groups(g, s, per_group, shrink, groups) for s in (s1, s0))
    offset = scale_groups(g, xhat, b, d, groups, count)
    slope = g.reshape(g.mul(rstd, per_group), (batch, channels, *(1 for _ in spatial)))
    return g.add(g.mul(gy, slope), g.reshape(offset, shape)), g.sum(s1, [0]), g.sum(s0, [0])


def sum_groups(g: OnnxGraph, sums: str, scale: str, shrink: str, groups: int) -> str:
    """Sums over each group's channels, weighted by scale: (B, C) -> (B * groups,)."""
    batch, channels = g.shape(sums)[0], g.sample_shape(sums)[0]
    split = g.reshape(sums, (batch, groups, channels // groups))
    summed = g.mul(g.sum(g.mul(split, scale), [2], keep=True), shrink)
    return g.reshape(summed, (multiply(g.shape(summed)),))


def scale_groups(g: OnnxGraph, xhat: str, b: str, d: str, groups: int, count: int) -> str:
    """b xhat + d with one b and d per sample and group."""
    rows = g.reshape(xhat, (g.shape(b)[0], count))
    return scale_rows(g, rows, b, d)
