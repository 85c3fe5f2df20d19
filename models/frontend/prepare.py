"""Modules as they come: layers without sizes are given them, and what nobody can read is refused first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from edge_sdk.models.frontend.outputs import check_output
from edge_sdk.models.ir.errors import CompileError, UnsupportedPattern


def prepare_module(net: nn.Module, examples: Sequence[torch.Tensor], name: str, arguments: Sequence[str] = ()) -> None:
    """Give lazy layers their sizes by running the module once; their weights are drawn then, by torch's generator.

    Args:
        net: is changed: its lazy layers become plain ones. examples, name, arguments: as of `check_output`.

    Raises:
        CompileError: a part is scripted or projects its states, or lazy layers have no sizes after that.
    """
    for path, part in net.named_modules():
        refuse_part(path or "the module", part)
    if not list_lazy(net):
        return
    check_output(net, examples, name, arguments)
    if left := list_lazy(net):
        raise CompileError(f"{left[0]}: has no size after the module has run once; use its layer, or give it a size")


def list_lazy(net: nn.Module) -> list[str]:
    """Names of the tensors that have no size yet."""
    return [name for name, tensor in (*net.named_parameters(), *net.named_buffers()) if is_lazy(tensor)]


def refuse_part(path: str, part: nn.Module) -> None:
    """Raise CompileError for a scripted module, and for an LSTM that ONNX has no operator for."""
    if isinstance(part, torch.jit.ScriptModule):
        told = "torch.jit has put its code out of sight"
        raise CompileError(f"{path}: {told}; give the class itself, without torch.jit.script or torch.jit.trace")
    if getattr(part, "proj_size", 0) and isinstance(part, nn.LSTM):
        raise UnsupportedPattern("an LSTM with proj_size", path, "leave it out, and put a Linear layer behind the LSTM")
