"""Exports a torch module as ONNX: every parameter and buffer an input of its own, the batch size symbolic."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import onnx
import torch
from torch import nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

from edge_sdk.algebra.vectors import Slot
from edge_sdk.model.dropout import MASKS, DropSite
from edge_sdk.models.frontend.decomposition.complex_pairs import ComplexMode
from edge_sdk.models.frontend.decomposition.decompose import spell_out
from edge_sdk.models.frontend.kept.snapshots import take_snapshot
from edge_sdk.models.frontend.modules.outputs import masks_as_they_are, pick
from edge_sdk.models.frontend.modules.randomness import Draw, find_draws, follow_path, refuse_draws, set_training
from edge_sdk.models.frontend.tracing.assignments import set_by_choice, without_assignments
from edge_sdk.models.frontend.tracing.batch_sizes import (
    LARGEST_BATCH,
    cut_batches_by_reshaping,
    note_guards,
    settle_counts,
)
from edge_sdk.models.frontend.tracing.cells import find_cells
from edge_sdk.models.frontend.tracing.detached import DataMode, mark_detached, open_no_grad
from edge_sdk.models.frontend.tracing.diagnose import IN_LAYER, explain, explain_writing
from edge_sdk.models.frontend.tracing.dropout import leave_out_dropout, use_masks
from edge_sdk.models.frontend.tracing.lean_exports import export_leanly, trace_leanly
from edge_sdk.models.frontend.tracing.marks import find_marks, with_heads
from edge_sdk.models.frontend.tracing.own_backward import trace_own_backwards
from edge_sdk.models.frontend.tracing.pick_steps import gather_places
from edge_sdk.models.frontend.tracing.pools import cut_pools
from edge_sdk.models.frontend.tracing.tables import TablesAsMade
from edge_sdk.models.ir.errors import (
    CompileError,
    TrainModeExport,
    UnsupportedPattern,
)
from edge_sdk.models.ir.proto import OPSET
from edge_sdk.models.ir.specification.layout import lay_out_buffers

TRACE_BATCH = 37  # a prime that no dimension of a model is likely to be equal to
Results = str | Sequence[str]
READ = ONNXRegistry.from_torchlib


@dataclass(frozen=True)
class Forward:
    """The exported forward pass.

    Attributes:
        model: its inputs are `p.<name>` per parameter, `b.<name>` per buffer and the names in `inputs`.
        inputs: names of the data inputs. examples: one batch of each.
        output: name of the result.
        program: the torch functions that `model` was written from; values have the same names there. None if unknown.
        traced: the torch functions that the module called.
        sites: the places that drop values, with the last input as their masks.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    examples: tuple[torch.Tensor, ...]
    output: str
    program: torch.export.ExportedProgram | None = None
    traced: torch.export.ExportedProgram | None = None
    sites: tuple[DropSite, ...] = ()


class Functional(nn.Module):
    """The module with its tensors as arguments; it is a registered child, so that paths of layers stay known.

    It takes `count` inputs for the module, by place or as `arguments`; one more, the masks of dropout, is only put in
    its place later. Of several results it returns the one named `output`, or the first of several names, marked with
    the others.
    """

    def __init__(
        self, net: nn.Module, names: Sequence[str], count: int, output: Results, arguments: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.net, self.names, self.count = net, list(names), count
        self.outputs = [output] if isinstance(output, str) else list(output)
        self.arguments = list(arguments) if any(arguments) else []

    def forward(self, tensors: list[torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        state, given = dict(zip(self.names, tensors, strict=True)), inputs[: self.count]
        named = dict(zip(self.arguments, given, strict=True)) if self.arguments else {}
        with (
            follow_path(self.net) as layers,
            ComplexMode(),
            DataMode(layers),
            masks_as_they_are(),
            trace_own_backwards(),
        ):
            try:
                made = torch.func.functional_call(self.net, state, () if named else given, named)
                first, *others = (pick(made, name) for name in self.outputs)
                return with_heads(first, others) if others else first
            except UnsupportedPattern as error:
                path = layers[-1][0] if layers else ""
                raise UnsupportedPattern(error.what, error.where or path, error.advice) from error
            except Exception as error:
                if layers and layers[-1][0]:
                    error.add_note(f"{IN_LAYER}{layers[-1][0]}")
                raise


def export_forward(
    net: nn.Module,
    parameters: list[Slot],
    inputs: Sequence[str],
    examples: Sequence[torch.Tensor],
    output: str = "logits",
    dropout: str = "",
    result: Results = "",
    arguments: Sequence[str] = (),
) -> Forward:
    """Trace `net`.

    Args:
        net: in evaluation mode.
        inputs, examples: name and one batch of each data input.
        dropout: "off" traces what the module does in evaluation, "keep" what it does in training, with masks as a
            further input if it drops values at random; "" is "off" for modules that drop nothing.
        result: which of several results counts, as of `pick`; of several names the first, and the losses of the others
            are added.
        arguments: of the module that the inputs are given as; none: by place.

    Raises:
        CompileError: of the kind that says why it cannot be exported.
    """
    refuse_train_mode(net)
    draws = [] if dropout == "off" else find_draws(net, examples, arguments)
    if not dropout:
        refuse_draws(draws)
    elif draws:
        inputs, examples = [*inputs, MASKS], [*examples, torch.ones(len(examples[0]), sum(d.columns for d in draws))]
    buffers = lay_out_buffers(net)
    state = dict(net.named_parameters()) | dict(net.named_buffers())
    names = [s.name for s in [*parameters, *buffers]]
    tensors = [state[n].detach().clone() for n in names]
    for t in tensors[: len(parameters)]:
        t.requires_grad_()
    whole = Functional(net, names, len(inputs) - bool(draws), result, arguments)
    input_names = [*(f"p.{s.name}" for s in parameters), *(f"b.{s.name}" for s in buffers), *inputs]
    with trace_leanly():
        program, sites = trace_module(whole, (tensors, *examples), len(parameters), draws)
        cut_batches_by_reshaping(program)
        set_by_choice(program)
        gather_places(program)
        mark_detached(program, len(parameters))
        name_outputs(program)
        with leave_out_lost_guards():
            model, written = write_onnx(spell_out(program), input_names, output)
    return Forward(model, tuple(inputs), tuple(examples), output, written, program, sites)


def refuse_train_mode(net: nn.Module) -> None:
    """Raise TrainModeExport for a module in training mode."""
    if net.training:
        raise TrainModeExport(
            "the module is in training mode: call eval(); batch statistics are a norm policy, not a mode"
        )


def trace_module(
    net: Functional, arguments: tuple[Any, ...], parameters: int, draws: Sequence[Draw]
) -> tuple[torch.export.ExportedProgram, tuple[DropSite, ...]]:
    """The program of a module, with the first dimension of every data input symbolic, and the places that drop values.

    Args:
        parameters: how many of the first tensors are trained.
        draws: what it drops at random; if anything, it is traced in training mode, its norms in evaluation.
    """
    batch = torch.export.Dim("B", min=2, max=LARGEST_BATCH)
    shapes = {"tensors": [None] * len(arguments[0]), "inputs": tuple({0: batch} for _ in arguments[1:])}
    kept = take_snapshot(net, copied=False)
    try:
        set_training(net) if draws else net.eval()
        with silence_exporter(), shorten_recurrences(), settle_counts(), TablesAsMade(), note_guards(net.net) as layers:
            program = torch.export.export(net, arguments, dynamic_shapes=shapes, strict=False)
            open_no_grad(program, parameters)
            sites = use_masks(program, draws) if draws else leave_out_dropout(program)  # as the module calls them
            with leave_out_lost_guards():
                return without_assignments(program), sites
    except CompileError:
        raise
    except Exception as error:
        raise explain(error, layers) from error
    finally:
        kept.restore()  # what `forward` keeps would have no numbers
        net.eval()


def name_outputs(program: torch.export.ExportedProgram) -> None:
    """Give a program's signature the names of what it returns, where the last call of all has been replaced."""
    returned: Any = next(node for node in program.graph.nodes if node.op == "output").args[0]
    for spec, node in zip(program.graph_signature.output_specs, returned, strict=True):
        if isinstance(node, torch.fx.Node):
            spec.arg.name = node.name


def write_onnx(
    program: torch.export.ExportedProgram, inputs: Sequence[str], output: str
) -> tuple[onnx.ModelProto, torch.export.ExportedProgram | None]:
    """The program as an ONNX model whose inputs and output have these names, and the program as it was written."""
    try:
        with silence_exporter(), shorten_recurrences(), export_leanly(), keep_registry(), keep_small_constants():
            made = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=[output],
                custom_translation_table=find_cells(program) | find_marks(program) or None,
                verbose=False,
            )
    except Exception as error:
        raise explain_writing(error, program) from error
    if made is None:
        raise CompileError("torch could not write the module as ONNX, and did not say why")
    model = made.model_proto  # written anew at each access
    cut_pools(model)
    return model, made.exported_program


@contextlib.contextmanager
def shorten_recurrences() -> Iterator[None]:
    """Let torch trace one step of GRU and LSTM instead of all of them; a plain RNN is written step by step.

    Torch walks through all steps, several times, only to learn the shapes; one step, repeated, has the same shapes. The
    operators themselves are exported whole; if torch ever wrote out the steps, the gate would refuse the bundle.
    """
    home = torch._decomp.decompositions
    found = {name: getattr(home, name) for name in ("one_layer_rnn", "one_layer_lstm") if hasattr(home, name)}
    try:
        for name, layer in found.items():
            setattr(home, name, repeat_one_step(layer))
        yield
    finally:
        for name, layer in found.items():
            setattr(home, name, layer)


def repeat_one_step(layer: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition of a recurrent layer that repeats its first step instead of computing all."""

    def short(x: torch.Tensor, *rest: Any, **options: Any) -> Any:
        if options.get("hidden_fn", torch._decomp.decompositions.gru_cell) is not torch._decomp.decompositions.gru_cell:
            return layer(x, *rest, **options)
        steps, last = layer(x[:1], *rest, **options)
        return torch.cat([steps] * len(x), 0), last

    return short


@functools.cache
def read_registry(*opset_version: int, **named: int) -> ONNXRegistry:
    """The exporter's table of ONNX functions, read once in a process: that takes longer than most exports. torch
    2.6 asks for it without a version."""
    return READ(*opset_version, **named)


@contextlib.contextmanager
def keep_registry() -> Iterator[None]:
    """Let the exporter use the table that was read before; only functions of one's own would change it."""
    try:
        ONNXRegistry.from_torchlib = staticmethod(read_registry)  # type: ignore[method-assign]
        yield
    finally:
        ONNXRegistry.from_torchlib = READ  # type: ignore[method-assign]


@contextlib.contextmanager
def leave_out_lost_guards() -> Iterator[None]:
    """Let torch write a traced program anew without what it noted of values that are no inputs, and cannot name then.

    torch 2.9 does so of sizes in modules with several inputs, and stops at its own note: name 'L' is not defined.
    """
    home: Any = importlib.import_module("torch.export._unlift")
    convert = getattr(home, "_convert_guards_code_to_fn", None)
    if convert is None:  # before 2.9
        yield
        return

    def convert_found(notes: Sequence[str], paths: Sequence[Any]) -> Any:
        named = [f"L{torch.utils._pytree.keystr(path)}" for path in paths]
        return convert([note for note in notes if "L[" not in remove_all(note, named)], paths)

    try:
        home._convert_guards_code_to_fn = convert_found
        yield
    finally:
        home._convert_guards_code_to_fn = convert


def remove_all(text: str, parts: Sequence[str]) -> str:
    for part in parts:
        text = text.replace(part, "")
    return text


@contextlib.contextmanager
def keep_small_constants() -> Iterator[None]:
    """Let the exporter leave out only what does nothing at all: the sum with 0, the product with 1.

    Its rewriter takes all below 1e-8 for 0 and all within 1e-5 for 1, so that `x / (x.sum() + 1e-8)` would be 0 / 0 for
    values that are 0, and a gate that has no such value would not see it.
    """
    matcher: Any = importlib.import_module("onnxscript.rewriter._matcher")
    tolerant = matcher.math
    try:
        matcher.math = SimpleNamespace(isclose=lambda a, b, **_: a == b)
        yield
    finally:
        matcher.math = tolerant


@contextlib.contextmanager
def silence_exporter() -> Iterator[None]:
    """Hide what the exporter prints, logs and warns about itself."""
    log = logging.getLogger("torch")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
