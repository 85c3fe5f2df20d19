"""The graphs of a bundle, each from one copy of the forward graph.

    predict      theta, x               -> output
    features     theta, x               -> the value that a named layer returns
    features_vjp theta, x, cotangent    -> that value, and the gradient of its product with the cotangent
    loss_grad    theta, x, y, weights   -> loss, grad            (`loss_grad@<group>`: grad of one group's parameters)
    vjp          theta, x, cotangent    -> output, grad of sum(output * cotangent)

Where a module has running statistics, graphs also take `buffers`; with the statistics of the batch, those that
differentiate return the new `buffers` as well. Running statistics may be part of theta instead: then their gradient is
what descent on them needs to follow those of the batch, and 0 in `vjp`, whose output they do not change.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from edge_sdk.algebra.vectors import Slot
from edge_sdk.models.derive.reverse import find_dependents, take_out_marks, write_flat_gradient
from edge_sdk.models.frontend.tracing.export import Forward
from edge_sdk.models.frontend.tracing.forward import read_forward
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.proto import write_model
from edge_sdk.models.ir.shapes import Shape, as_numbers
from edge_sdk.models.ir.specification.losses import choose_loss, write_losses
from edge_sdk.models.passes.convolutions import winograd
from edge_sdk.models.passes.convolutions.batch_norm import (
    VARIANCE,
    find_momentum,
    is_running,
    mix,
    use_batch_statistics,
    write_pull,
)
from edge_sdk.models.passes.convolutions.blocked import use_blocked_layout
from edge_sdk.models.passes.convolutions.flat_planes import flatten_planes
from edge_sdk.models.passes.convolutions.fold_norm import fold_norms
from edge_sdk.models.passes.convolutions.idle_bias import drop_idle_biases, is_instance_norm
from edge_sdk.models.passes.convolutions.merge_samples import merge_samples
from edge_sdk.models.passes.convolutions.padded_weights import keep_padded_weights
from edge_sdk.models.passes.convolutions.plane_matrices import use_plane_matrices
from edge_sdk.models.passes.convolutions.turned_convolutions import turn_convolutions
from edge_sdk.models.passes.pointwise.broadcast import spread_numbers
from edge_sdk.models.passes.pointwise.precise import write_precise_units
from edge_sdk.models.passes.pointwise.small_values import write_small_values
from edge_sdk.models.passes.pointwise.smooth_units import write_smooth_units
from edge_sdk.models.passes.products.arrange import arrange
from edge_sdk.models.passes.products.rewrite import rewrite
from edge_sdk.models.passes.products.slow_operators import replace_slow_operators
from edge_sdk.models.passes.products.weights_first import put_weights_first
from edge_sdk.models.passes.scheduling.schedule import move_gradients_last


@dataclass
class Target:
    """A finished graph.

    Attributes:
        graph: can still be written in float32 or float64. outputs: names of its results.
        slots: the parameters whose gradient it gives.
    """

    graph: OnnxGraph
    outputs: list[str]
    slots: list[Slot] = field(default_factory=list)

    def model(self, double: bool = False) -> onnx.ModelProto:
        """The graph as ONNX, with floats of 64 bits if `double`, else 32."""
        return write_model(self.graph, self.outputs, double)


class Source:
    """The forward graph of a module on flat vectors, from which every target starts.

    Args:
        forward: the exported forward pass.
        vectors: name of a graph input -> the parameters that it holds; usually {"theta": all of them}.
        buffers: running statistics.
        momentum: path of a batch normalisation -> its momentum, if it trains with the statistics of the batch.
        running: names of the parameters that are running statistics.
        renorm: batch normalisation with the statistics of the batch corrects its output towards the running ones.

    Attributes:
        samples: of the largest step, for choices that depend on it.
        block: channels in a block of the blocked layout; 0: it is not used.
    """

    def __init__(
        self,
        forward: Forward,
        vectors: Mapping[str, Sequence[Slot]],
        buffers: Sequence[Slot] = (),
        momentum: Mapping[str, float] | None = None,
        running: Collection[str] = (),
        renorm: bool = False,
    ) -> None:
        self.renorm, self.block, self.samples = renorm, 0, winograd.SAMPLES
        self.parameters, self.running = [s for slots in vectors.values() for s in slots], frozenset(running)
        self.buffers, self.output, self.momentum = list(buffers), forward.output, momentum or {}
        self._graph = read_forward(forward)
        use_flat_inputs(self._graph, vectors, self.buffers, self.running)
        self._exported = self._graph
        self._graph = self._rewritten()
        self._kept = {self.output}

    def _rewritten(self, *values: str) -> OnnxGraph:
        """The exported graph, rewritten so that it runs fast; `values` keep their names."""
        g = copy.deepcopy(self._exported)
        named = {prefix + s.name for s in (*self.parameters, *self.buffers) for prefix in ("p.", "b.")}
        keep = named | ({*values} or {self.output})
        keep_padded_weights(g)
        drop_idle_biases(g, keep, is_instance_norm)
        rewrite(g, keep)
        if not self.momentum:
            fold_norms(g, keep)
        write_precise_units(g)
        write_small_values(g)
        merge_samples(g)
        return g

    def keep_layer(self, layer: str) -> tuple[Source, str]:
        """A source in which a layer's result keeps its name, and that name."""
        value = find_returned(self._exported, layer)
        other = copy.copy(self)
        other._graph, other._kept = self._rewritten(self.output, value), {self.output, value}
        return other, value

    def copy_exported(self) -> OnnxGraph:
        """A copy of the graph as it was exported, on flat vectors."""
        return copy.deepcopy(self._exported)

    def replace(self, exported: OnnxGraph, keep: Collection[str] = ()) -> Source:
        """A source of another graph on the same vectors, with values that keep their names in place of the output."""
        other = copy.copy(self)
        other._exported, other._kept = exported, {*keep} or {self.output}
        other._graph = other._rewritten(*other._kept)
        return other

    def use_blocks(self, block: int) -> Source | None:
        """A source with convolutions in blocks of so many channels, or None if no convolution fits these."""
        other = copy.copy(self)
        other.block = block
        return other if use_blocked_layout(copy.deepcopy(self._graph), block) else None

    def copy_graph(self) -> OnnxGraph:
        """A copy of the graph for prediction."""
        g = take_out_marks(copy.deepcopy(self._graph))
        if self.block:
            use_blocked_layout(g, self.block)
        use_plane_matrices(g)
        spread_numbers(g)
        return g

    def copy_training_graph(self) -> TrainingGraph:
        """A copy of the graph for training, with the statistics of the batch if it has momenta."""
        g = copy.deepcopy(self._graph)
        biases = drop_idle_biases(g, self._kept, is_running) if self.momentum else {}
        most = winograd.MOST_BESIDE_BLOCKED if self.block else winograd.MOST_BESIDE_PORTABLE
        winograd.use_winograd(g, most, bool(self.momentum), min(winograd.SAMPLES, self.samples))
        if self.block:
            use_blocked_layout(g, self.block)
        use_plane_matrices(g)
        flatten_planes(g, self._kept)
        turn_convolutions(g)
        write_smooth_units(g, self._kept, find_dependents(g, ["p." + s.name for s in self.parameters]))
        fresh = use_batch_statistics(g, biases, self.renorm) if self.momentum else {}
        if self.running or not fresh:
            return TrainingGraph(g, {k: (v, find_momentum(self.momentum, k)) for k, v in fresh.items()})
        mixed = {old: mix(g, old, new, find_momentum(self.momentum, old)) for old, new in fresh.items()}
        parts = [g.reshape(mixed.get("b." + s.name, "b." + s.name), (s.size,)) for s in self.buffers]
        g.op("Identity", g.concat(parts, 0), shape=(sum(s.size for s in self.buffers),), output="new_buffers")
        return TrainingGraph(g, more=["new_buffers"])

    @property
    def output_shape(self) -> Shape:
        """Shape of the module's output, batch first."""
        return self._graph.shape(self.output)


@dataclass
class TrainingGraph:
    """A graph that is about to be differentiated.

    Attributes:
        statistics: running statistic that is part of theta -> the batch's, and the momentum of its layer.
        more: names of further outputs: the new running statistics, where they are not part of theta.
    """

    graph: OnnxGraph
    statistics: dict[str, tuple[str, float]] = field(default_factory=dict)
    more: list[str] = field(default_factory=list)

    def write_pulls(self) -> dict[str, str]:
        """Name of a slot -> gradient, for the running statistics in theta."""
        found = self.statistics.items()
        return {old.removeprefix("b."): write_pull(self.graph, old, new, m) for old, (new, m) in found}


def use_flat_inputs(
    g: OnnxGraph, vectors: Mapping[str, Sequence[Slot]], buffers: Sequence[Slot], running: Collection[str] = ()
) -> None:
    """Replace one input per tensor by flat vectors, split at the start of the graph."""
    forward, g.nodes = g.nodes, []
    data = [i for i in g.inputs if i[:2] not in ("p.", "b.")]
    shapes = {i: g.shapes[i] for i in g.inputs}
    g.inputs = []
    for name, slots in vectors.items():
        cut_vector(g, g.input(name, (sum(s.size for s in slots),)), slots, "p.", running)
    if buffers:
        cut_vector(g, g.input("buffers", (sum(s.size for s in buffers),)), buffers, "b.")
    g.inputs += data
    g.shapes.update({k: v for k, v in shapes.items() if k in data})
    g.nodes += forward


def cut_vector(g: OnnxGraph, vector: str, slots: Sequence[Slot], prefix: str, running: Collection[str] = ()) -> None:
    """Cut a flat vector into the tensors of its slots, named prefix + name, or "b." + name for running statistics.

    Whatever an optimiser makes of a running variance, it is not below 0 where it is used.
    """
    names = [g.new_name("part") for _ in slots]
    if len(slots) == 1:
        g.op("Identity", vector, shape=(slots[0].size,), output=names[0])
    else:
        sizes = g.ints(s.size for s in slots)
        g.ops("Split", vector, sizes, shapes=[(s.size,) for s in slots], outputs=names, axis=0)
    for slot, part in zip(slots, names, strict=True):
        name = ("b." if slot.name in running else prefix) + slot.name
        shape = as_numbers(g.shapes.get(name, slot.shape))
        if slot.name in running and slot.name.endswith(VARIANCE):
            part = g.op("Relu", part, shape=(slot.size,))
        g.op("Reshape", part, g.ints(shape), shape=shape, output=name)


def write_predict(source: Source) -> Target:
    """The output of the module."""
    return Target(source.copy_graph(), [source.output])


def write_loss_grad(
    source: Source,
    loss: str,
    groups: Sequence[str] | None = None,
    cut: bool = False,
    smoothing: float = 0.0,
    heads: Sequence[float] = (),
) -> Target:
    """The loss of a batch and its gradient.

    Args:
        loss: a key of LOSSES.
        groups: layer groups to differentiate; None for all.
        cut: differentiate all, and cut these groups out of the result.
        smoothing: of labels, for the cross entropy. heads: weights of the losses of further results, in their order.
    """
    training = source.copy_training_graph()
    g, more = training.graph, training.more
    value, seeds = write_losses(g, choose_loss(loss, smoothing), source.output, heads)
    slots = choose_slots(source.parameters, groups)
    pulls = training.write_pulls()
    grad = write_flat_gradient(g, seeds, source.parameters if cut else slots, pulls)
    if cut:
        grad = g.concat([g.slice(grad, 0, s.offset, s.offset + s.size) for s in slots], 0)
    g.op("Identity", value, shape=(), output="loss")
    g.op("Identity", grad, shape=g.shape(grad), output="grad")
    return finish(g, ["loss", "grad", *more], slots, source.samples)


def finish(g: OnnxGraph, outputs: list[str], slots: list[Slot], samples: int) -> Target:
    """The target of a graph that has its gradient, in the form in which a device runs it fast; `samples`: of a step."""
    replace_slow_operators(g)
    arrange(g, outputs)
    put_weights_first(g, samples)
    spread_numbers(g)
    if "grad" in outputs:
        move_gradients_last(g)
    return Target(g, outputs, slots)


def write_vjp(source: Source) -> Target:
    """The output, and the gradient of its product with a cotangent."""
    training = source.copy_training_graph()
    g, more = training.graph, training.more
    g.input("cotangent", g.shape(source.output))
    grad = write_flat_gradient(g, {source.output: "cotangent"}, source.parameters)
    g.op("Identity", grad, shape=g.shape(grad), output="grad")
    return finish(g, [source.output, "grad", *more], source.parameters, source.samples)


def write_features(source: Source, layer: str) -> Target:
    """The value that the layer with this path returns."""
    source, last = source.keep_layer(layer)
    g = source.copy_graph()
    g.op("Identity", last, shape=g.shape(last), output="features")
    return Target(g, ["features"])


def write_features_vjp(source: Source, layer: str) -> Target:
    """The value that a layer returns, and the gradient of its product with a cotangent."""
    source, last = source.keep_layer(layer)
    training = source.copy_training_graph()
    g, more = training.graph, training.more
    g.input("cotangent", g.shape(last))
    grad = write_flat_gradient(g, {last: "cotangent"}, source.parameters)
    g.op("Identity", last, shape=g.shape(last), output="features")
    g.op("Identity", grad, shape=g.shape(grad), output="grad")
    return finish(g, ["features", "grad", *more], source.parameters, source.samples)


def find_returned(g: OnnxGraph, layer: str) -> str:
    """The name of the value that the layer with this path returns.

    Raises:
        CompileError: there is no such layer.
    """
    inside = [n for n in g.nodes if n.where == layer or n.where.startswith(layer + ".")]
    if not inside:
        paths = sorted({n.where for n in g.nodes if n.where})
        raise CompileError(f"features: no layer {layer!r} in the graph; there are {', '.join(paths)}")
    return str(inside[-1].outputs[0])


def choose_slots(slots: Sequence[Slot], groups: Sequence[str] | None) -> list[Slot]:
    """The slots of some layer groups, or all.

    Raises:
        CompileError: no parameter is in these groups.
    """
    picked = [s for s in slots if groups is None or s.group in groups]
    if not picked:
        raise CompileError(f"no parameter is in the groups {groups}; there are {sorted({s.group for s in slots})}")
    return picked
