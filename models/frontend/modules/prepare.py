"""Modules as they come: layers without sizes are given them, and what nobody can read is refused first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from edge_sdk.models.frontend.modules.outputs import check_output
from edge_sdk.models.ir.errors import CompileError, UnsupportedPattern

WHOLE = "the module"
DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel")


def prepare_module(net: nn.Module, examples: Sequence[torch.Tensor], name: str, arguments: Sequence[str] = ()) -> None:
    """Give lazy layers their sizes by running the module once; their weights are drawn then, by torch's generator.

    Args:
        net: is changed: its lazy layers become plain ones. examples, name, arguments: as of `check_output`.

    Raises:
        CompileError: a part or tensor cannot be trained as it is, or lazy layers have no sizes after that.
    """
    refuse_parts(net)
    if not list_lazy(net):
        return
    check_output(net, examples, [name], arguments)
    if left := list_lazy(net):
        raise CompileError(f"{left[0]}: has no size after the module has run once; use its layer, or give it a size")


def list_lazy(net: nn.Module) -> list[str]:
    """Names of the tensors that have no size yet."""
    return [name for name, tensor in (*net.named_parameters(), *net.named_buffers()) if is_lazy(tensor)]


def refuse_parts(net: nn.Module) -> None:
    """Raise CompileError for a part that nobody can read, and for a tensor that cannot be trained as it is."""
    for path, part in net.named_modules():
        refuse_part(path or WHOLE, part)
    for name, tensor in (*net.named_parameters(), *net.named_buffers()):
        if not is_lazy(tensor):
            refuse_tensor(name, tensor)


def refuse_part(path: str, part: nn.Module) -> None:
    """Raise CompileError for a part that is no plain layer, or one that no bundle can have."""
    if isinstance(part, torch.jit.ScriptModule):
        told = "torch.jit has put its code out of sight"
        raise CompileError(f"{path}: {told}; give the class itself, without torch.jit.script or torch.jit.trace")
    kind = type(part).__name__
    if kind in DISTRIBUTED or (isinstance(part, nn.DataParallel) and path == WHOLE):
        raise CompileError(f"{path}: is wrapped in {kind}; compile net.module, the module within")
    if told := find_quantisation(part):
        raise CompileError(f"{path}: {told}; compile the module as it was before that")
    if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.max_norm is not None:
        told = "an embedding with max_norm, which rewrites its rows as they are read"
        raise UnsupportedPattern(told, path, "leave it out, or divide the rows that are read by their norm in forward")
    if getattr(part, "proj_size", 0) and isinstance(part, nn.LSTM):
        raise UnsupportedPattern("an LSTM with proj_size", path, "leave it out, and put a Linear layer behind the LSTM")


def find_quantisation(part: nn.Module) -> str:
    """What `torch.ao` has done to a layer: one of the sentences here, or nothing."""
    rooms = type(part).__module__.split(".")
    if rooms[:2] != ["torch", "ao"]:
        return ""
    if "quantized" in rooms:
        return "is quantised, and has no parameters that could be trained"
    return "is there for quantisation" if "qat" in rooms or rooms[-1] in ("fake_quantize", "observer") else ""


def refuse_tensor(name: str, tensor: torch.Tensor) -> None:
    """Raise CompileError for a tensor that is elsewhere, and for a parameter of another precision."""
    told = ""
    if tensor.is_meta:
        told = "has no values (it is on the meta device); load its weights first, with to_empty and load_state_dict"
    elif tensor.device.type != "cpu":
        told = f"is on {tensor.device}; call net.cpu() before it is compiled"
    elif isinstance(tensor, nn.Parameter) and tensor.is_inference():
        told = "was made under torch.inference_mode, where nothing can be trained; make the module outside of it"
    elif isinstance(tensor, nn.Parameter) and tensor.is_floating_point() and tensor.dtype != torch.float32:
        kind = str(tensor.dtype).removeprefix("torch.")
        told = f"is of {kind}, but devices train in float32; call net.float() before it is compiled"
    if told:
        raise CompileError(f"{name}: {told}")
