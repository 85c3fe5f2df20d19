"""The padding, strides and dilations of a window, as ONNX writes them: numbers, defaults, and automatic padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from edge_sdk.models.ir.errors import UnsupportedPattern

SAME = ("SAME_UPPER", "SAME_LOWER")


def settle_window(
    auto_pad: str | None,
    spatial: Sequence[int],
    kernel: Sequence[int],
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
) -> tuple[list[int], list[int], list[int]]:
    """Padding (all before, then all after), strides and dilations in numbers; None and () are ONNX's defaults.

    Args:
        auto_pad: ONNX's attribute of that name; None: the numbers in `pads` count.
        spatial: sizes of the input's positions. kernel: taps of the window.
    """
    nd = len(kernel)
    stride, dilation = list(strides or [1] * nd), list(dilations or [1] * nd)
    if auto_pad in SAME:
        return resolve_same_pads(str(auto_pad), spatial, kernel, stride, dilation), stride, dilation
    return list(pads or [0] * 2 * nd), stride, dilation


def resolve_same_pads(
    auto: str, spatial: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """The padding that gives ceil(in / stride) outputs; an odd one goes after (SAME_UPPER) or before (SAME_LOWER)."""
    need = [
        max(0, (ceil(d / s) - 1) * s + (k - 1) * e + 1 - d)
        for d, k, s, e in zip(spatial, kernel, stride, dilation, strict=True)
    ]
    less, more = [v // 2 for v in need], [v - v // 2 for v in need]
    return less + more if auto == "SAME_UPPER" else more + less


def refuse_automatic(operator: str, auto_pad: str | None, output_shape: Sequence[int] | None, where: str = "") -> None:
    """Raise UnsupportedPattern for a transposed convolution whose padding follows from the size of its output."""
    if output_shape or auto_pad in SAME:
        raise UnsupportedPattern(f"{operator} with automatic padding", where, "give padding and output_padding")
