"""The padding, strides and dilations of a window, as ONNX writes them: numbers, defaults, and automatic padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from edge_sdk.models.ir.errors import UnsupportedPattern

SAME = ("SAME_UPPER", "SAME_LOWER")


def settle_window(
    at: Mapping[str, Any], spatial: Sequence[int], kernel: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """Padding (all before, then all after), strides and dilations in numbers.

    Args:
        at: ONNX's attributes auto_pad, pads, strides and dilations; a missing one, None and () are its defaults.
        spatial: sizes of the input's positions. kernel: taps of the window.
    """
    nd = len(kernel)
    stride, dilation = (list(at.get(name) or [1] * nd) for name in ("strides", "dilations"))
    if (auto_pad := at.get("auto_pad")) in SAME:
        return resolve_same_pads(str(auto_pad), spatial, kernel, stride, dilation), stride, dilation
    return list(at.get("pads") or [0] * 2 * nd), stride, dilation


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
