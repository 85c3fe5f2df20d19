"""Tables that a module makes in forward (windows, frequencies, even steps): a bundle has torch's own float32 numbers.

The exporter would write such a function out of others, whose last bits differ; a spectrum near 0 shows that as an error
of 1e-5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from edge_sdk.models.frontend.decomposition.decompose_geometry import lay_grid

WINDOWS = (
    torch.bartlett_window,
    torch.blackman_window,
    torch.hamming_window,
    torch.hann_window,
    torch.kaiser_window,
)
TABLES = frozenset({*WINDOWS, torch.linspace, torch.logspace, torch.fft.fftfreq, torch.fft.rfftfreq})
GRIDS = frozenset({F.affine_grid, torch.affine_grid_generator})
MADE = frozenset({torch.tensor, torch.full, torch.scalar_tensor})
DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
PLAIN = (int, float, bool, str, torch.dtype, torch.device, torch.layout, type(None))


class TablesAsMade(TorchFunctionMode):
    """Lets the tracer take tables for the numbers that they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func not in TABLES or not all(type(v) in PLAIN for v in (*args, *given.values())):
            return func(*args, **given)
        with _disable_current_modes():
            table = func(*args, **given)
        return torch.tensor(table.tolist(), dtype=table.dtype)


class TablesInFloat32(TorchFunctionMode):
    """Gives a module that runs in float64 the numbers that it makes in float32: those that a device has.

    What it computes stays in float64 where it asks for float32, as norms and a softmax do for the sake of shorter
    types: a graph in float64 has no such rounding. A module that runs in float32 keeps its own casts.
    """

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in GRIDS and (laid := lay_in_float32(*args, **(kwargs or {}))) is not NotImplemented:
            return laid
        given = kwargs or {}
        if self.dtype == torch.float64:
            func, args, given = keep_float64(func, args, given)
        made = func(*args, **given)
        if is_of_whole_numbers(made, (*args, *given.values())):
            return made.to(DOUBLE[made.dtype])
        if func not in TABLES | MADE or made.dtype != torch.float64:
            return made
        return func(*args, **{**given, "dtype": torch.float32}).double()


def lay_in_float32(theta: torch.Tensor, size: Sequence[int], align_corners: bool | None = None) -> Any:
    """What `affine_grid` gives, from the places of pixels that a device has."""
    return lay_grid(theta, list(size), bool(align_corners))


def is_of_whole_numbers(made: Any, given: Sequence[Any]) -> bool:
    """Has a module that runs in float64 asked for float32 in numbers that no float has gone into?

    Truth values and classes as floats, zeros that name their type: exact in float32, and nothing of float64 can be
    multiplied with them. Where torch itself makes floats of float32 the module runs in that.
    """
    is_single = isinstance(made, torch.Tensor) and made.dtype in DOUBLE
    if not is_single or torch.get_default_dtype() != torch.float64:
        return False
    tensors = [a for a in given if isinstance(a, torch.Tensor)]
    return not any(a is made or a.is_floating_point() or a.is_complex() for a in tensors)


def keep_float64(func: Any, args: Any, given: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """A call on a value of float64, without a cast of it to float32."""
    if not (args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float64):
        return func, args, given
    func = torch.Tensor.double if func is torch.Tensor.float else func
    args = tuple(torch.float64 if a is torch.float32 else a for a in args)
    return func, args, {k: torch.float64 if v is torch.float32 else v for k, v in given.items()}
