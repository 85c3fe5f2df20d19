"""Dropout as part of a graph: each random function of a traced module becomes a product with its columns of `masks`.

The module is traced in training mode, with norms in evaluation. What drops values is then replaced, function by
function, in the order of execution, which is also that in which `randomness.py` found the draws. If anything random is
left after that, the module is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher

from edge_sdk.model.dropout import NOISE, DropSite
from edge_sdk.models.frontend.decomposition.decompose_attention import HIDDEN
from edge_sdk.models.frontend.modules.drawn_choices import put_mask
from edge_sdk.models.frontend.modules.randomness import NOISES, Draw, is_random, read_moments
from edge_sdk.models.frontend.modules.uniform import ABOVE, BELOW, FLOORS, KEPT, SUMS, is_uniform
from edge_sdk.models.frontend.tracing.diagnose import find_path
from edge_sdk.models.ir.errors import TrainModeExport

aten = torch.ops.aten
Node = torch.fx.Node
Values = tuple[Any, ...]
"""Arguments of a call; torch declares them as whatever a program may hold."""
DROPOUTS = {
    aten.dropout.default: aten.mul.Tensor,
    aten.dropout_.default: aten.mul_.Tensor,
    aten.feature_dropout.default: aten.mul.Tensor,
    aten.feature_dropout_.default: aten.mul_.Tensor,
}
"""Function -> the product that takes its place."""
EMPTY = (aten.empty.memory_format, aten.new_empty.default, aten.empty_like.default)
FILLED = (aten.full.default, aten.full_like.default, aten.new_full.default)
"""Functions whose last argument is what all numbers of a tensor are."""
LEAKS = {aten.rrelu.default: aten.leaky_relu.default, aten.rrelu_.default: aten.leaky_relu_.default}
RECURRENT = (aten.gru.input, aten.lstm.input)


def leave_out_dropout(program: torch.export.ExportedProgram) -> tuple[DropSite, ...]:
    """Replace what drops values in evaluation, too, by what it is given, in place, and noise by its mean.

    Returns:
        the places that are left: none.
    """
    for node in [n for n in program.graph.nodes if n.target in DROPOUTS and n.args[1] and n.args[2]]:
        node.replace_all_uses_with(node.args[0])
        program.graph.erase_node(node)
    for node in [n for n in program.graph.nodes if n.target in NOISES]:
        mean = read_moments(node.target, node.args)[0]
        if isinstance(node.args[0], Node):
            node.target, node.args, node.kwargs = aten.full_like.default, (node.args[0], mean), {}
        else:
            size: Any = node.args[2] if node.target is aten.normal.float_float else node.args[0]
            node.target, node.args = aten.full.default, (size, mean)
    settle_leaks(program.graph)
    for node in program.graph.nodes:
        if node.users and isinstance(node.target, torch._ops.OpOverload) and is_random(*read_call(node)):
            raise TrainModeExport(
                f"{find_path(node)}: draws random numbers ({node.target._opname}) in evaluation, too, and a device's "
                "predictions draw none; write what evaluation does in its place, under `if not self.training`"
            )
    program.graph_module.recompile()
    return ()


def read_call(node: Node) -> tuple[Any, Values, dict[str, Any]]:
    """Function and arguments of a call."""
    return node.target, node.args, dict(node.kwargs)


def settle_leaks(graph: torch.fx.Graph) -> None:
    """Write RReLU as what it is in evaluation: a LeakyReLU of the middle slope."""
    for node in [n for n in graph.nodes if n.target in LEAKS and not is_random(*read_call(n))]:
        bounds: Values = (*node.args[1:3], *(1 / 8, 1 / 3)[len(node.args) - 1 :])
        node.target, node.args = LEAKS[node.target], (node.args[0], (bounds[0] + bounds[1]) / 2)
        node.kwargs = {}


def use_masks(program: torch.export.ExportedProgram, draws: Sequence[Draw]) -> tuple[DropSite, ...]:
    """Replace what is random in a program, whose last input is `masks`, in place; the places that drop values.

    Raises:
        TrainModeExport: something random cannot be replaced.
    """
    graph = program.graph
    masks = [n for n in graph.nodes if n.op == "placeholder"][-1]
    writer = MaskWriter(graph, masks, list(draws))
    settle_leaks(graph)
    for node in list(graph.nodes):
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            writer.replace(node)
    if writer.at != len(draws):
        raise TrainModeExport(f"{draws[writer.at].describe()} cannot be kept; compile with --dropout off")
    graph.eliminate_dead_code()
    graph.lint()
    program.graph_module.recompile()
    return tuple(writer.sites)


def find_uniform(node: Node) -> list[Node]:
    """The calls that a comparison's uniform numbers come from, the one that draws them last; [] if it has others."""
    found = list[Node]()
    while isinstance(node.args[0], Node):
        node = node.args[0]
        found.append(node)
        if node.op != "call_function" or is_uniform(node.target, node.args):
            break
        if node.target not in (*KEPT, *SUMS) or (node.target in SUMS and isinstance(node.args[1], Node)):
            return []
    return found if is_uniform(found[-1].target, found[-1].args) else []


@dataclass
class MaskWriter:
    """One walk over a traced graph.

    Attributes:
        masks: the input that the masks come from. draws: what is to be replaced. at: number of the next one.
        start: first column of the next one. sites: the places that were replaced.
    """

    graph: torch.fx.Graph
    masks: Node
    draws: list[Draw]
    at: int = 0
    start: int = 0
    sites: list[DropSite] = field(default_factory=list)

    def replace(self, node: Node) -> None:
        """Replace one call, if it is random."""
        args: Values = node.args
        target: Any = node.target
        self.before = node
        if target in DROPOUTS:
            share, train = args[1:3]
            made = self.call(DROPOUTS[target], args[0], self.take()) if train and share else args[0]
            self.swap(node, made)
        elif target in (aten.bernoulli_.float, aten.bernoulli.default):
            self.swap_draw(node)
        elif target is aten.scaled_dot_product_attention.default and is_random(target, args, node.kwargs):
            self.swap(node, self.write_attention(node))
        elif target in RECURRENT:
            self.swap_recurrent(node)
        elif target in NOISES:
            self.swap_noise(node)
        elif target in (*BELOW, *ABOVE, *FLOORS) and (drawn := find_uniform(node)):
            self.swap_comparison(node, drawn)
        elif is_uniform(target, args):
            return
        elif is_random(target, args, node.kwargs):
            raise TrainModeExport(f"{self.name_next()}: {target._opname} cannot be kept; compile with --dropout off")

    def name_next(self) -> str:
        """The next draw in words, for an error."""
        return self.draws[self.at].describe() if self.at < len(self.draws) else "the module"

    def call(self, target: Any, *args: Any, value: Any = None) -> Node:
        """Insert a call before the one that is replaced; it knows its value's shape, and the module that it is for.

        Args:
            value: what the call returns, for functions that cannot be asked without numbers.
        """
        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(target, args)
        node.meta = {k: v for k, v in self.before.meta.items() if k in ("nn_module_stack", "stack_trace")}
        if value is None:
            with enable_python_dispatcher():  # without it torch 2.8 knows no shapes with symbols
                value = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
        node.meta["val"] = value
        return node

    def take(self, kept: float | None = None, rest: float = 1.0) -> Node:
        """The next mask, in the shape in which the module draws it.

        Args:
            kept: value of an entry that is kept; None: 1 / probability, as dropout scales what it keeps.
        """
        if self.at == len(self.draws):
            raise TrainModeExport("the traced module drops values that it did not drop before; use --dropout off")
        draw = self.draws[self.at]
        end = self.start + draw.columns
        if draw.probability is None:
            self.sites.append(DropSite(draw.where, draw.columns, NOISE, 1.0, 0.0))
        else:
            value = 1 / draw.probability if kept is None else kept
            self.sites.append(DropSite(draw.where, draw.columns, draw.probability, value, rest))
        part = self.call(aten.slice.Tensor, self.masks, 1, self.start, end)
        fixed = [d for d in draw.shape if d is not None]
        axis = draw.shape.index(None)
        made = self.call(aten.reshape.default, part, [-1, *fixed])
        self.at, self.start = self.at + 1, end
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(draw.shape))]
        return self.call(aten.permute.default, made, order) if axis else made

    def swap(self, node: Node, other: Any) -> None:
        """Put `other` in the place of a call."""
        node.replace_all_uses_with(other)
        self.graph.erase_node(node)

    def swap_draw(self, node: Node) -> None:
        """Put a mask in the place of zeros and ones, as stochastic depth draws them.

        They are drawn into an empty tensor, or from a tensor that was filled with their probability, which is the value
        at rest: the module does in evaluation what it does with that.
        """
        args: Values = node.args
        within, source = node.target is aten.bernoulli_.float, args[0]
        given: Any = args[1] if within and len(args) > 1 else 0.5 if within else source.args[-1]
        known = source.target in (EMPTY if within else FILLED) and isinstance(given, float)
        if not known:
            told = "its probability is none of one number; use F.dropout or x.new_empty(shape).bernoulli_(p)"
            raise TrainModeExport(f"{self.name_next()} cannot be kept: {told}, or compile with --dropout off")
        if not 0 < given < 1:
            raise TrainModeExport(f"{self.name_next()} cannot be kept; compile with --dropout off")
        mask = self.call(aten.clone.default, self.take(1.0, given))
        node.replace_all_uses_with(mask)
        if within:
            source.replace_all_uses_with(mask, lambda user: user is not node)
        self.graph.erase_node(node)

    def swap_comparison(self, node: Node, drawn: Sequence[Node]) -> None:
        """Put a mask in the place of uniform numbers that are compared with one number.

        Args:
            drawn: the calls that draw them and that make of them what is compared, the last ones first.
        """
        draw = self.draws[self.at] if self.at < len(self.draws) else None
        mask = self.call(aten.clone.default, self.take(1.0, draw.probability if draw and draw.probability else 1.0))

        def call(before: Node, target: Any, *args: Any) -> Node:
            self.before = before
            return self.call(target, *args)

        if left := put_mask(node, mask, call):
            told = "multiply by (torch.rand_like(x) < p) / p, use torch.where, or compile with --dropout off"
            raise TrainModeExport(
                f"{self.draws[self.at - 1].describe()}: {left} of what is drawn cannot be kept; {told}"
            )
        for done in (node, *drawn):
            done.replace_all_uses_with(mask)
            self.graph.erase_node(done)

    def swap_noise(self, node: Node) -> None:
        """Put columns of masks in the place of normal numbers."""
        source: Any = node.args[0]
        within = node.target is aten.normal_.default
        if within and source.target not in EMPTY:
            raise TrainModeExport(f"{self.draws[self.at].describe()} cannot be kept; use torch.randn_like")
        mean, deviation = read_moments(node.target, node.args)
        made = self.call(aten.clone.default, self.take())
        made = made if deviation == 1 else self.call(aten.mul.Tensor, made, deviation)
        made = made if mean == 0 else self.call(aten.add.Tensor, made, mean)
        node.replace_all_uses_with(made)
        if within:
            source.replace_all_uses_with(made, lambda user: user is not node)
        self.graph.erase_node(node)

    def write_attention(self, node: Node) -> Node:
        """softmax(q k' scale + mask) with dropout, times v."""
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given: dict[str, Any] = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        q, k, v = given["query"], given["key"], given["value"]
        bias, scale = given.get("attn_mask"), given.get("scale")
        if given.get("enable_gqa") or given.get("is_causal"):
            raise TrainModeExport(
                f"{self.draws[self.at].describe()}: dropout in causal or grouped attention cannot be kept; compile "
                "with --dropout off"
            )
        width = sqrt(q.meta["val"].shape[-1]) if scale is None else 1 / scale
        scores = self.call(aten.matmul.default, q, self.call(aten.transpose.int, k, -2, -1))
        scores = self.call(aten.div.Tensor, scores, width)
        empty = None
        if bias is not None:
            bias, empty = self.settle_bias(bias, scores)
            scores = self.call(aten.add.Tensor, scores, bias)
        shares = self.call(aten.softmax.int, scores, -1)
        made = self.call(aten.matmul.default, self.call(aten.mul.Tensor, shares, self.take()), v)
        return self.call(aten.masked_fill.Scalar, made, empty, 0.0) if empty is not None else made

    def settle_bias(self, bias: Node, like: Node) -> tuple[Node, Node]:
        """`settle_empty_rows` as calls."""
        if bias.meta["val"].dtype == torch.bool:
            hidden = self.call(aten.logical_not.default, bias)
            zeros = self.call(aten.mul.Scalar, self.call(aten.to.dtype, bias, like.meta["val"].dtype), 0.0)
            bias = self.call(aten.masked_fill.Scalar, zeros, hidden, HIDDEN)
        empty = self.call(aten.eq.Scalar, self.call(aten.amax.default, bias, [-1], True), HIDDEN)
        return self.call(aten.masked_fill.Scalar, bias, empty, 0.0), empty

    def swap_recurrent(self, node: Node) -> None:
        """Write a recurrent layer with dropout as one call per layer, with a product between two."""
        args: Values = node.args
        x, hx, weights, biases, layers, dropout, train, both, batch_first = args
        if not (dropout and train and layers > 1):
            node.args = (*node.args[:5], 0.0, False, *node.args[7:])
            return
        states = hx if isinstance(hx, (list, tuple)) else [hx]
        count, ways = len(weights) // layers, 1 + int(both)
        x, last = self.call(aten.transpose.int, x, 0, 1) if batch_first else x, []
        out, *ends = node.meta["val"]
        values = (out.transpose(0, 1) if batch_first else out, *(e[:ways] for e in ends))
        for i in range(layers):
            here = [self.call(aten.slice.Tensor, s, 0, i * ways, (i + 1) * ways) for s in states]
            state = here if isinstance(hx, (list, tuple)) else here[0]
            own = weights[i * count : (i + 1) * count]
            made = self.call(node.target, x, state, own, biases, 1, 0.0, False, both, False, value=values)
            x, *after = (self.call(operator.getitem, made, k) for k in range(1 + len(ends)))
            last.append(after)
            x = self.call(aten.mul.Tensor, x, self.take()) if i < layers - 1 else x
        outputs = [self.call(aten.transpose.int, x, 0, 1) if batch_first else x]
        outputs += [self.call(aten.cat.default, list(states), 0) for states in zip(*last, strict=True)]
        for user in list(node.users):
            place: Any = user.args[1]
            self.swap(user, outputs[place])
        self.graph.erase_node(node)
