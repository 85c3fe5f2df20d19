"""Says of torch's errors in tracing and writing a module which layer they are of, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb, walk_tb

import torch
from torch.nn.utils.rnn import PackedSequence

from edge_sdk.models.ir.errors import (
    BatchSpecialised,
    CompileError,
    DataDependentControlFlow,
    DetachedGradient,
    UnsupportedOperator,
    UnsupportedPattern,
)
from edge_sdk.models.rules.advice import ADVICE

SHAPE_ERRORS = ("ConstraintViolationError", "specialized", "Constraints violated", "inferred to be a constant")
NUMBER_ERRORS = ("specialized integer from data-dependent", "expression zuf", ".numpy() is not supported")
IN_LAYER = "in layer "
NOT_OWN = (str(Path(torch.__file__).parent), str(Path(__file__).parent.parent), "<")
CONTROL_ERRORS = ("data-dependent", "GuardOnDataDependent", "DataDependent", "Dynamic control flow", "Could not guard")


def explain(error: Exception, layers: Sequence[str] = ()) -> CompileError:
    """Torch's error as a CompileError that says what to do; torch's own first line is kept.

    Args:
        layers: in which torch restricted the batch size.
    """
    text = f"{type(error).__name__}: {error}"
    first = str(error).strip().split("\n")[0].partition(" For more information")[0][:300]
    where, line = find_layer(error), find_line(error)
    if any(t in text for t in NUMBER_ERRORS):
        told = f"a Python number is computed from values ({line or first}), but a graph is the same for all values"
        return DataDependentControlFlow(f"{where}: {told}; fix the number, or compute with functions of tensors")
    if any(t in text for t in SHAPE_ERRORS):
        guarded = ", ".join(dict.fromkeys(path for path in layers if path)) or "the module"
        return BatchSpecialised(
            f"{guarded}: works for one batch size only ({first}); take sizes from x.shape[0], not len(x), and do not "
            "loop over the samples"
        )
    if any(t in text for t in CONTROL_ERRORS):
        told = f"{where}: a branch or a shape depends on values ({line or first}); use torch.where or masks"
        return DataDependentControlFlow(told)
    if lost := re.search(r"attribute: (?:net\.)?(?:(\S+)\.)?lifted_tensor", text):
        told = ".data or a tensor made outside the module; autograd would stop there"
        return DetachedGradient(f"{lost[1] or 'the module'}: {told}, so compute with parameters and buffers alone")
    if has_packed_sequence(error):
        told = "the sizes of a packed sequence depend on values; give the layer the padded one, and mask its steps"
        return DataDependentControlFlow(f"{where}: {told}")
    return CompileError(f"{where}: torch cannot export this ({first}); rewrite it with functions of tensors alone")


def find_line(error: BaseException) -> str:
    """The line of a module's own code at which an error was raised; "" if it cannot be read."""
    frames = [frame for e in list_chain(error) for frame in extract_tb(e.__traceback__)]
    own = [f.line for f in frames if not any(room in f.filename for room in NOT_OWN)]
    return (own[-1] or "")[:100] if own else ""


def find_layer(error: BaseException) -> str:
    """Path of the layer in which an error was raised."""
    notes = [n for e in list_chain(error) for n in getattr(e, "__notes__", ()) if n.startswith(IN_LAYER)]
    return notes[0].removeprefix(IN_LAYER) if notes else "the module"


def list_chain(error: BaseException) -> list[BaseException]:
    """An error, what it was raised from, and so on."""
    chain: list[BaseException] = [error]
    while (deeper := chain[-1].__cause__ or chain[-1].__context__) is not None and deeper not in chain:
        chain.append(deeper)
    return chain


def has_packed_sequence(error: BaseException) -> bool:
    """True if an error came out of a function that was given a packed sequence."""
    frames = [f for e in list_chain(error) for f, _ in walk_tb(e.__traceback__)]
    return any(isinstance(v, PackedSequence) for f in frames for v in f.f_locals.values())


def explain_writing(error: Exception, program: torch.export.ExportedProgram) -> CompileError:
    """The error of torch's ONNX exporter as one that names the layer and the function."""
    chain = list_chain(error)
    told = " ".join(map(str, chain))
    missing = re.search(r"No ONNX function found for <OpOverload\(op='\w+\.(\w+)'", told)
    named = re.search(r"translating node %(\w+)", told)
    nodes = [n for n in program.graph.nodes if named and n.name == named[1]]
    if missing:
        nodes = nodes or [n for n in program.graph.nodes if getattr(n.target, "_opname", "") == missing[1]]
        where = find_path(nodes[0]) if nodes else ""
        if "complex" in told:
            advice = "write real and imaginary parts as two real tensors"
            return UnsupportedPattern(f"{missing[1]} of complex numbers", where, advice)
        return UnsupportedOperator(f"{missing[1]} (of torch)", where, ADVICE.get(missing[1], ""))
    if "lazy_load_decompositions" in told:
        advice = "write what is mapped as an axis of its tensors, e.g. with einsum or a product of matrices"
        return UnsupportedPattern("torch.vmap, whose functions are not exported", find_vmap(program), advice)
    first = str(chain[-1]).strip().split("\n")[0][:300]
    where = find_path(nodes[0]) if nodes else "the module"
    function = getattr(nodes[0].target, "_opname", "a function") if nodes else "a function"
    if "Unsupported attribute type" in first and "SymbolicTensor" in first:
        advice = "use a fixed one; for a kernel of each sample, torch.einsum of the kernels and F.unfold of the samples"
        return UnsupportedPattern(f"{function} with a number of groups that grows with the batch", where, advice)
    told = f"torch could not write {function} as ONNX ({first})"
    return CompileError(f"{where}: {told}; rewrite that part with plain layers")


def find_vmap(program: torch.export.ExportedProgram) -> str:
    """Path of the module that calls torch.vmap first."""
    nodes = [n for n in program.graph.nodes if "lazy_load_decompositions" in str(n.target)]
    return find_path(nodes[0]) if nodes else "the module"


def find_path(node: torch.fx.Node) -> str:
    """Path of the torch module that a node of a program came from."""
    stack = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    return path.removeprefix("net").removeprefix(".") or "the module"


def find_coupling(program: torch.export.ExportedProgram | None) -> str:
    """Where a program computes a value of all samples at once, and by which function; "" if nowhere."""
    for node in program.graph.nodes if program is not None else ():
        value = node.meta.get("val")
        given = [a.meta.get("val") for a in node.all_input_nodes]
        read = any(isinstance(g, torch.Tensor) and has_batch(g) for g in given)
        name = getattr(node.target, "_opname", "")
        if read and isinstance(value, torch.Tensor) and not has_batch(value) and not name.endswith("_like"):
            return f"{find_path(node)}: {name} over the samples"
    return ""


def has_batch(value: torch.Tensor) -> bool:
    """True for a value whose size follows the batch."""
    return any(isinstance(d, torch.SymInt) for d in value.shape)
