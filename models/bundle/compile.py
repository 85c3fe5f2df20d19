"""Compiles a torch module to a bundle: export, differentiate, check, pack. An error leaves no file behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

from edge_sdk.algebra.vectors import Slot
from edge_sdk.model.dropout import DropSite
from edge_sdk.models.bundle import container
from edge_sdk.models.bundle.ahead import kept_from_the_end
from edge_sdk.models.bundle.front_graphs import build_front_graphs
from edge_sdk.models.bundle.graphs import make_blocked_graphs, make_graphs, write_loss_grad
from edge_sdk.models.bundle.last_activation import describe_last_activation
from edge_sdk.models.bundle.native_graphs import build_native_graphs
from edge_sdk.models.bundle.pack import BundleChecks, BundleFacts, BundleGraphs, BundleState, pack_bundle
from edge_sdk.models.bundle.tensor_graphs import build_tensor_graphs
from edge_sdk.models.bundle.unlike import refuse_unlike
from edge_sdk.models.derive.targets import Source, Target
from edge_sdk.models.frontend.kept.python_state import refuse_iterators
from edge_sdk.models.frontend.kept.shared_memory import refuse_shared_memory
from edge_sdk.models.frontend.modules.hooks import refuse_hooks
from edge_sdk.models.frontend.modules.lora import add_adapters
from edge_sdk.models.frontend.modules.prepare import prepare_module
from edge_sdk.models.frontend.modules.randomness import draws_in_evaluation
from edge_sdk.models.frontend.modules.side_effects import explain_parity
from edge_sdk.models.frontend.modules.statistics import settle_statistics
from edge_sdk.models.frontend.modules.wrappers import as_written, on_one_thread, unwrap
from edge_sdk.models.frontend.tracing.diagnose import find_coupling
from edge_sdk.models.frontend.tracing.export import TRACE_BATCH, Forward, export_forward
from edge_sdk.models.frontend.tracing.marks import find_marks
from edge_sdk.models.gate.graphs.check import YShape, check_graphs, draw_consistency, find_unequal_parts
from edge_sdk.models.gate.graphs.gate import Drops, Truth
from edge_sdk.models.gate.graphs.golden import make_golden
from edge_sdk.models.gate.graphs.search import SEARCH, Comparison, search_inputs
from edge_sdk.models.gate.operators.calls import check_calls
from edge_sdk.models.gate.references.runnable import RunnableGraph
from edge_sdk.models.ir.errors import CompileError, UnsupportedPattern
from edge_sdk.models.ir.shapes import as_numbers
from edge_sdk.models.ir.specification.layout import flatten, lay_out_buffers, lay_out_parameters
from edge_sdk.models.ir.specification.spec import DataInput, Spec, find_target_shape, set_classes
from edge_sdk.models.passes.convolutions.batch_norm import find_least_batch, find_momenta, name_statistics
from edge_sdk.models.passes.scheduling.steps import MOST, choose_max_batch

ShowProgress = Callable[[str], None]
Arrays = Mapping[str, np.ndarray]


@dataclass
class Compiled:
    """A bundle in memory.

    Attributes:
        data: the file. parameters: their number. nodes: graph -> its number of nodes. errors: measured by the gate.
        truth: the module's gradient by autograd, for further comparisons; None for split models.
    """

    spec: Spec
    data: bytes
    parameters: int
    nodes: dict[str, int] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    truth: Truth | None = field(default=None, repr=False)

    def save(self, path: Path) -> None:
        """Write the file in one step."""
        container.write_file(path, self.data)


@as_written()
@on_one_thread()
def compile_module(
    net: nn.Module,
    spec: Spec,
    progress: ShowProgress = lambda text: None,
    show: Callable[[Forward], None] | None = None,
    search: int = SEARCH,
) -> Compiled:
    """Compile `net` (in evaluation mode) with its present parameters as theta0.

    Args:
        show: is given the exported forward pass before anything is made of it.
        search: how many inputs the gate tries in search of one at which the gradient is wrong (gate/graphs/search.py).

    Raises:
        CompileError: the module cannot be compiled, or its graphs are not right; see models/ir/errors.py.
    """
    examples = [make_example(i) for i in spec.list_inputs()]
    net = prepare(kept_from_the_end(unwrap(net), spec.task), spec, examples)
    state = lay_out_state(net, spec)
    progress(f"{spec.name}: {state.size:,} parameters in {len(state.slots)} tensors")
    exported = export(net, spec, state, examples)
    if show:
        show(exported.forward)
    shape = exported.source.output_shape
    spec = set_max_batch(set_classes(spec, shape), exported.trained)
    exported.trained.samples = spec.max_batch or MOST
    fixed, y_shape = read_vectors(net, state.slots, state.buffers), find_target_shape(spec, shape)
    truth = make_truth(net, spec, state, exported.drops, examples)
    graphs, models, runs = build_graphs(spec, exported, truth, fixed, y_shape, progress)
    nodes = {k: len(m.graph.node) for k, m in models.items()}
    progress("graphs: " + ", ".join(f"{k} {n} nodes" for k, n in nodes.items()))
    if why := describe_last_activation(models["predict"], spec.loss):
        progress(f"warning: {why}")
    calls = check_calls(exported.forward)
    truth.coupling = find_coupling(exported.forward.program)
    with explain_parity(net, examples, list_arguments(spec), spec.norm):
        errors = check_graphs(graphs, runs, truth, fixed, y_shape)
        errors["searched"] = search_inputs(Comparison(graphs["loss_grad"], state.slots, truth, fixed, y_shape), search)
    found = f"{errors['float64']:.1e} in float64 (limit 1e-06), {errors['float32']:.1e} in float32"
    progress(f"parity: {found}; {calls} calls on their own, {search} searched inputs")
    if truth.undefined:
        progress(f"torch has no finite gradient for: {', '.join(truth.undefined)}; nothing was compared there")
    fronts = build_front_graphs(spec, exported.source, exported.trained, runs, truth, fixed, y_shape, progress)
    graphs, models, runs = graphs | fronts.graphs, models | fronts.models, runs | fronts.runs
    nodes = {k: len(m.graph.node) for k, m in models.items()}
    batch = fronts.compute(fixed, draw_consistency(truth, y_shape))
    tensors = build_tensor_graphs(graphs, runs, state.slots, fixed, batch, progress)
    native = build_native_graphs(graphs, tensors, runs, fixed, truth, y_shape, progress) if spec.native else {}
    vector, tolerance = make_golden(lambda feeds: run_batch(runs, fixed, feeds), truth, state.slots, y_shape)
    least = find_least_batch(exported.trained.copy_graph()) if state.momenta else 1
    data = pack_bundle(
        spec,
        BundleState(slots=state.slots, buffers=state.buffers, fixed=fixed),
        BundleGraphs(graphs=graphs, models=models, tensors=tensors, native=native),
        BundleChecks(golden=vector, tolerance=tolerance, errors=errors),
        BundleFacts(
            inputs=spec.list_inputs(),
            output=as_numbers(shape[1:]),
            sites=exported.sites,
            least=least,
            front=fronts.values,
            own_gradient=bool(find_marks(exported.forward.program)),
        ),
    )
    progress(f"bundle: {len(data):,} bytes")
    return Compiled(spec, data, state.size, nodes, errors, truth)


@dataclass(frozen=True)
class State:
    """The tensors of a module, and which part each has.

    Attributes:
        parameters: what is trained, without running statistics. slots: theta, with them if they are part of it.
        buffers: what is not trained. running: names of the running statistics in theta.
        momenta: path of a batch normalisation that uses the statistics of the batch -> its momentum.
    """

    parameters: list[Slot]
    slots: list[Slot]
    buffers: list[Slot]
    running: list[str]
    momenta: dict[str, float]

    @property
    def size(self) -> int:
        """The length of theta."""
        return sum(s.size for s in self.slots)


def lay_out_state(net: nn.Module, spec: Spec) -> State:
    """The state of a module under the settings of a compilation.

    Raises:
        CompileError: nothing is trained.
        UnsupportedPattern: a parameter is complex.
    """
    for name, parameter in net.named_parameters():
        if parameter.is_complex():
            advice = "make it a real one with a last axis of two, and use torch.view_as_complex in forward"
            raise UnsupportedPattern("a parameter of complex numbers", name, advice)
    running = name_statistics(net) if spec.norm in ("running", "renorm") else []
    momenta = find_momenta(net) if spec.norm != "frozen" else {}
    parameters = lay_out_parameters(net, spec.groups)
    if not parameters:
        raise CompileError("no parameter has requires_grad: there is nothing to train")
    slots, buffers = lay_out_parameters(net, spec.groups, running), lay_out_buffers(net, running)
    return State(parameters, slots, buffers, running, momenta)


@dataclass(frozen=True)
class Exported:
    """A module as graphs that are still to be differentiated.

    Attributes:
        forward: the pass that is trained. source: of the graphs that predict. trained: of those that train.
        drops: what is dropped at random in training; None: nothing.
    """

    forward: Forward
    source: Source
    trained: Source
    drops: Drops | None

    @property
    def sites(self) -> tuple[DropSite, ...]:
        """The places that drop values, as devices know them."""
        return self.drops.sites if self.drops else ()


def prepare(net: nn.Module, spec: Spec, examples: Sequence[torch.Tensor]) -> nn.Module:
    """The module that is compiled: with its lazy sizes, with the statistics that `norm` asks for, with adapters.

    Raises:
        CompileError: it has hooks, does not run, or adapters do not fit; see each step.
    """
    prepare_module(net, examples, spec.output, list_arguments(spec))
    refuse_hooks(net)
    refuse_iterators(net)
    refuse_shared_memory(net)
    net = settle_statistics(net, spec.norm)
    return add_adapters(net, spec.lora, spec.target, spec.also) if spec.lora else net


def export(net: nn.Module, spec: Spec, state: State, examples: Sequence[torch.Tensor]) -> Exported:
    """The module in evaluation and in training, which are one where nothing is dropped.

    Raises:
        CompileError: its results are none that can be trained on, or torch cannot export it.
    """
    arguments = list_arguments(spec)
    drops = refuse_unlike(net, examples, arguments, [spec.output, *spec.heads], spec.norm, spec.dropout)
    forward, source = write_source(net, spec, state, examples, "off")
    if not drops:
        return Exported(forward, source, source, None)
    forward, trained = write_source(net, spec, state, examples, "keep")
    return Exported(forward, source, trained, replace(drops, sites=forward.sites))


def list_arguments(spec: Spec) -> list[str]:
    """The names of `forward`'s arguments, in the order of the inputs."""
    return [i.argument for i in spec.list_inputs()]


def write_source(
    net: nn.Module, spec: Spec, state: State, examples: Sequence[torch.Tensor], dropout: str
) -> tuple[Forward, Source]:
    """The exported forward pass, with `dropout` as of `export_forward`, and the source of its graphs."""
    names, arguments = zip(*((i.name, i.argument) for i in spec.list_inputs()), strict=True)
    forward = export_forward(
        net, state.parameters, names, examples, dropout=dropout, result=[spec.output, *spec.heads], arguments=arguments
    )
    renorm = spec.norm == "renorm"
    return forward, Source(forward, {"theta": state.slots}, state.buffers, state.momenta, state.running, renorm)


def make_example(i: DataInput) -> torch.Tensor:
    """One batch to trace the module with."""
    generator = torch.Generator().manual_seed(0)
    if i.below:
        return torch.randint(0, i.below, (TRACE_BATCH, *i.shape), generator=generator)
    return torch.randn(TRACE_BATCH, *i.shape, generator=generator)


def set_max_batch(spec: Spec, source: Source) -> Spec:
    """The spec with a largest step, chosen here if the caller leaves it open; statistics of a batch need all of it."""
    if spec.max_batch is not None:
        return spec
    if spec.norm != "frozen":
        return replace(spec, max_batch=MOST)
    return replace(spec, max_batch=choose_max_batch(source.copy_graph(), sum(s.size for s in source.parameters)))


def make_truth(
    net: nn.Module, spec: Spec, state: State, drops: Drops | None, examples: Sequence[torch.Tensor]
) -> Truth:
    """Torch's own gradient of the module, by which graphs are judged."""
    train = bool(state.momenta)
    truth = Truth(net, spec.list_inputs(), spec.loss, train, drops, spec.output, state.running, spec.smoothing)
    truth.heads, truth.in_training = spec.heads, spec.dropout != "off"
    truth.still = draws_in_evaluation(net, examples, list_arguments(spec))
    if spec.norm == "renorm":
        truth.renormalise()
    return truth


def build_graphs(
    spec: Spec, exported: Exported, truth: Truth, fixed: Arrays, y_shape: YShape, progress: ShowProgress
) -> tuple[dict[str, Target], dict[str, onnx.ModelProto], dict[str, RunnableGraph]]:
    """Name -> graph, its file and its session, of partial gradients in the form that rounds as the whole one does."""
    source, trained = exported.source, exported.trained
    graphs = make_graphs(source, trained, spec) | (make_blocked_graphs(source, trained, spec) if spec.blocked else {})
    models = {k: t.model() for k, t in graphs.items()}
    runs = {k: RunnableGraph(m) for k, m in models.items()}
    for name in find_unequal_parts(graphs, runs, truth, fixed, y_shape):
        progress(f"{name}: is rounded differently from the whole gradient, so it is cut out of that")
        graphs[name] = write_loss_grad(trained, spec, [name.partition("@")[2]], cut=True)
        models[name] = graphs[name].model()
        runs[name] = RunnableGraph(models[name])
    return graphs, models, runs


def read_vectors(net: nn.Module, slots: Sequence[Slot], buffers: Sequence[Slot]) -> dict[str, np.ndarray]:
    """theta0 and, if there are any, the running statistics, as float64 numbers that are exact in float32."""
    state = dict(net.named_parameters()) | dict(net.named_buffers())
    named = {"theta": list(slots), "buffers": list(buffers)}
    return {k: flatten(state, v).float().double().numpy() for k, v in named.items() if v}


def run_batch(runs: Mapping[str, RunnableGraph], *sources: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The output, loss and gradient of one batch."""
    trained, predicted = runs["loss_grad"](*sources), runs["predict"](*sources)
    return next(iter(predicted.values())), trained["loss"], trained["grad"]
