"""Torch functions spelled out in others, before a module is written as ONNX.

ONNX has no operator of its own for these. Torch's exporter would spell them out, too, but in a way whose derivative by
the chain rule is not torch's at some points, or that overflows where torch does not.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from edge_sdk.models.frontend.decomposition.decompose_attention import ATTENTION, has_heads, has_mask
from edge_sdk.models.frontend.decomposition.decompose_choices import CHOICES
from edge_sdk.models.frontend.decomposition.decompose_geometry import GEOMETRY
from edge_sdk.models.frontend.decomposition.diagonals import repeats, sum_products_of_diagonals
from edge_sdk.models.frontend.decomposition.plain_arguments import write_plain_arguments

aten = torch.ops.aten
Axes = int | list[int] | None


def std(x: torch.Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> torch.Tensor:
    """The standard deviation, whose gradient is 0 where it is 0; the chain rule through a plain root gives NaN there.

    The inner `where` keeps the root away from 0, the outer one puts the 0 back.
    """
    variance = torch.var(x, dim, correction=correction, keepdim=keepdim)
    flat = variance == 0
    return torch.where(flat, 0.0, torch.sqrt(torch.where(flat, 1.0, variance)))


def std_of_axes(x: torch.Tensor, dim: Axes, unbiased: bool = True, keepdim: bool = False) -> torch.Tensor:
    """`std` with the arguments of an older overload."""
    return std(x, dim, correction=float(unbiased), keepdim=keepdim)


def std_mean(
    x: torch.Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The standard deviation as in `std`, and the mean."""
    return std(x, dim, correction=correction, keepdim=keepdim), torch.mean(x, dim, keepdim)


def std_mean_of_axes(
    x: torch.Tensor, dim: Axes, unbiased: bool = True, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`std_mean` with the arguments of an older overload."""
    return std_mean(x, dim, correction=float(unbiased), keepdim=keepdim)


def turn_matrices(x: torch.Tensor) -> torch.Tensor:
    """Matrices with rows in the place of columns, as a transpose; the exporter writes an Einsum of one operand."""
    return x.transpose(-2, -1)


def log_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """log(1 / (1 + e^-x)) as -softplus(-x): the logarithm of a sigmoid is that of 0 from x = -104 on in float32."""
    return -F.softplus(-x)


def logaddexp(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """log(e^a + e^b) without a power that overflows."""
    return torch.maximum(a, b) + F.softplus(-(a - b).abs())


def cross_entropy_of_logits(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    """The binary cross entropy without the logarithm of a sigmoid, which may be that of 0."""
    share = target if pos_weight is None else target * pos_weight
    losses = share * F.softplus(-x) + (1 - target) * F.softplus(x)
    losses = losses if weight is None else losses * weight
    return losses if not reduction else losses.mean() if reduction == 1 else losses.sum()


def xlogy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x log(y), and 0 with a gradient of 0 where x = 0 and y <= 0."""
    return x * torch.log(torch.where((x == 0) & (y <= 0), 1.0, y))


def largest_of_windows(x: torch.Tensor, output_size: list[int]) -> Any:
    """Adaptive max pooling: the largest value of each window, and its index.

    For one window the exporter would write `amax`, which shares the gradient among equal elements; pooling gives it to
    the first. Windows of one size are plain pooling.
    """
    axes = len(output_size)
    if all(size == 1 for size in output_size):
        values, index = torch.max(x.flatten(-axes), -1)
        shape = (*values.shape, *output_size)
        return values.reshape(shape), index.reshape(shape)
    sizes = x.shape[-axes:]
    if any(size % out for size, out in zip(sizes, output_size, strict=True)):
        return largest_of_uneven_windows(x, output_size)
    return POOLS[axes](x, [size // out for size, out in zip(sizes, output_size, strict=True)])


def largest_of_uneven_windows(x: torch.Tensor, output_size: list[int]) -> Any:
    """Adaptive max pooling whose windows differ in size: a shorter one has its last element twice."""
    axes, table = len(output_size), torch.zeros(1, 1, dtype=torch.int64)
    for size, out in zip(x.shape[-axes:], output_size, strict=True):
        longest = max(-(-(i + 1) * size // out) - i * size // out for i in range(out))
        first, last = torch.arange(out) * size // out, ((torch.arange(out) + 1) * size - 1) // out
        rows = torch.minimum(first[:, None] + torch.arange(longest), last[:, None])
        joined = table[:, None, :, None] * size + rows[None, :, None, :]
        table = joined.reshape(table.shape[0] * out, -1)
    values, index = torch.max(x.flatten(-axes)[..., table], -1)
    at = torch.gather(table.expand(*x.shape[:-axes], *table.shape), -1, index.unsqueeze(-1))
    shape = (*x.shape[:-axes], *output_size)
    return values.reshape(shape), at.reshape(shape)


def maxima_of_line(x: torch.Tensor, kernel: list[int]) -> Any:
    """Max pooling of one axis, with indices, as that of two: the exporter has no function for the first."""
    values, index = aten.max_pool2d_with_indices.default(x.unsqueeze(-2), [1, *kernel])
    return values.squeeze(-2), index.squeeze(-2)


POOLS: dict[int, Callable[[torch.Tensor, list[int]], Any]] = {
    1: maxima_of_line,
    2: aten.max_pool2d_with_indices.default,
    3: aten.max_pool3d_with_indices.default,
}


def as_strided(x: torch.Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Any:
    """Windows of each sample as entries of its row at fixed places; other uses are left to the exporter.

    The exporter would take them from all samples together, where no sample has a place of its own.
    """
    width = math.prod(x.shape[1:])
    if storage_offset or not x.is_contiguous() or size[0] != x.shape[0] or stride[0] != width:
        return NotImplemented
    places = torch.zeros((), dtype=torch.int64)
    for axis, (count, step) in enumerate(zip(size[1:], stride[1:], strict=True)):
        places = places.unsqueeze(-1) + step * torch.arange(count) if axis else step * torch.arange(count)
    return x.reshape(x.shape[0], -1)[:, places]


def mean_of_plane(x: torch.Tensor, output_size: list[int]) -> Any:
    """Adaptive average pooling to one value; the exporter would take it by strides where channels lie last."""
    return x.mean((-2, -1), keepdim=True) if list(output_size) == [1, 1] else NotImplemented


def mean_of_line(x: torch.Tensor, output_size: list[int]) -> Any:
    """Adaptive average pooling of one axis to one value; strides would take it along the batch behind a transpose."""
    return x.mean(-1, keepdim=True) if list(output_size) == [1] else NotImplemented


def means_by_a_divisor(
    x: torch.Tensor,
    kernel: list[int],
    stride: list[int] | None = None,
    padding: int | list[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Sums over windows divided by a number of one's own: means of whole windows, as a multiple."""
    if divisor_override is None or ceil_mode:
        return NotImplemented
    pool = F.avg_pool2d if len(kernel) == 2 else F.avg_pool3d
    means = pool(x, kernel, stride or kernel, padding or 0, False, True)
    return means * (math.prod(kernel) / divisor_override)


def one_hot_taps(x: torch.Tensor, kernel: list[int]) -> torch.Tensor:
    """One kernel for each tap of a window, with a one there: (taps, 1, *kernel)."""
    taps = torch.arange(math.prod(kernel))
    return (taps.unsqueeze(1) == taps).to(x.dtype).reshape(-1, 1, *kernel)


def unfold(x: torch.Tensor, kernel: list[int], dilation: list[int], padding: list[int], stride: list[int]) -> Any:
    """Windows as columns, by a convolution of each channel with a kernel for every tap."""
    if x.dim() != 4:
        return NotImplemented
    planes = x.reshape(-1, 1, *x.shape[2:])
    made = F.conv2d(planes, one_hot_taps(x, kernel), None, stride, padding, dilation)
    return made.reshape(x.shape[0], x.shape[1] * math.prod(kernel), -1)


def fold(
    x: torch.Tensor,
    output_size: list[int],
    kernel: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Any:
    """Columns put back where `unfold` takes them from, and added up."""
    if x.dim() != 3:
        return NotImplemented
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    room = [s + 2 * p - r for s, p, r in zip(output_size, padding, reach, strict=True)]
    sizes = [m // step + 1 for m, step in zip(room, stride, strict=True)]
    rest = [m % step for m, step in zip(room, stride, strict=True)]
    planes = x.reshape(-1, math.prod(kernel), *sizes)
    made = F.conv_transpose2d(planes, one_hot_taps(x, kernel), None, stride, padding, rest, 1, dilation)
    return made.reshape(x.shape[0], x.shape[1] // math.prod(kernel), *output_size)


def standardise_channels(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """A norm over all axes but the second of what is no batch: weights that `F.batch_norm` standardises."""
    if not isinstance(x.shape[0], int):
        return NotImplemented
    axes, ends = [i for i in range(x.dim()) if i != 1], [1, x.shape[1], *[1] * (x.dim() - 2)]
    mean = x.mean(axes, keepdim=True)
    inverse = torch.rsqrt(((x - mean) * (x - mean)).mean(axes, keepdim=True) + eps)
    found = (x - mean) * inverse
    found = found if weight is None else found * weight.reshape(ends)
    return found if bias is None else found + bias.reshape(ends), mean.reshape(-1), inverse.reshape(-1)


DIVIDED = (aten.avg_pool2d.default, aten.avg_pool3d.default)
DECOMPOSITIONS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.mT.default: turn_matrices,
    aten.mH.default: turn_matrices,
    aten.std.correction: std,
    aten.std.dim: std_of_axes,
    aten.std_mean.correction: std_mean,
    aten.std_mean.dim: std_mean_of_axes,
    aten.log_sigmoid.default: log_sigmoid,
    aten.logaddexp.default: logaddexp,
    aten.xlogy.Tensor: xlogy,
    aten.binary_cross_entropy_with_logits.default: cross_entropy_of_logits,
    aten.as_strided.default: as_strided,
    aten.im2col.default: unfold,
    aten.col2im.default: fold,
    aten.adaptive_avg_pool1d.default: mean_of_line,
    aten.adaptive_avg_pool2d.default: mean_of_plane,
    **dict.fromkeys(DIVIDED, means_by_a_divisor),
    aten.einsum.default: sum_products_of_diagonals,
    aten.adaptive_max_pool1d.default: largest_of_windows,
    aten.adaptive_max_pool2d.default: largest_of_windows,
    aten.adaptive_max_pool3d.default: largest_of_windows,
    aten._native_batch_norm_legit.no_stats: standardise_channels,
    **ATTENTION,
    **CHOICES,
    **GEOMETRY,
}


def free_views(program: torch.export.ExportedProgram) -> None:
    """Write views as reshapes, in place.

    torch notes a reshape as a view where the value's memory allows it. The exporter writes some functions (attention
    with a mask) with others, whose results lie otherwise in memory, and then there is no such view.
    """
    for node in program.graph.nodes:
        if node.target is aten.view.default:
            node.target = aten.reshape.default


def spell_out(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program without the functions of DECOMPOSITIONS; the same program if it has none.

    Its code, which torch writes anew at each change, is written here, after all that rewrites a program's graph.
    """
    free_views(program)
    write_plain_arguments(program)
    program.graph_module.recompile()
    if not any(is_to_spell_out(n) for n in program.graph.nodes if n.op == "call_function"):
        return program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own use of its tree library
        made: torch.export.ExportedProgram = program.run_decompositions(dict(DECOMPOSITIONS))
    free_views(made)
    made.graph_module.recompile()
    return made


def is_to_spell_out(node: torch.fx.Node) -> bool:
    """True for a call that the exporter would write wrongly, or not at all."""
    if node.target in ATTENTION:
        return has_mask(node) or not has_heads(node)
    if node.target is aten.batch_norm.default:
        x, mean, training = node.args[0], node.args[3], node.args[5]
        return mean is None and bool(training) and isinstance(x.meta["val"].shape[0], int)  # type: ignore[union-attr]
    if node.target in DIVIDED:
        return len(node.args) > 6 and node.args[6] is not None
    if node.target is aten.einsum.default:
        return repeats(str(node.args[0]))
    pooled = node.target in (aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default)
    return node.target in DECOMPOSITIONS and not (pooled and node.args[0].meta["val"].is_contiguous())  # type: ignore[union-attr]
