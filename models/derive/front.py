"""The front of a module: what it makes of its inputs before a trainable parameter has a say.

Statistics, spectra, frozen layers, a frozen body below adapters or a new head: the same for a sample in every step.
Here the forward graph is cut into two. The front goes from the data (and `buffers`) to the values at the cut, which a
device keeps for each sample; the rest goes from these to the output, and is differentiated as any other forward graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import prod

import numpy as np

from edge_sdk.model.manifest import PREFIX
from edge_sdk.models.derive.reverse import take_out_marks
from edge_sdk.models.derive.targets import Source, Target, finish
from edge_sdk.models.ir.graph import OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads, select_needed
from edge_sdk.models.ir.shapes import BatchDim, Shape
from edge_sdk.models.ir.value_kinds import FLOAT, TRUTH, list_kinds

MOVES = frozenset(
    [
        *("Cast", "Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Shape"),
        *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    ]
)
"""Operators that compute nothing: they only put numbers elsewhere."""
VIEWS = frozenset(["Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"])
"""Those whose result has nothing that is not in their first input: that is kept in its place."""
WORTH = 4
"""A front reads and writes at least so many times the numbers that are kept."""
LARGER, SMALL = 4, 4096
"""Kept for a sample are at most LARGER times the numbers of its inputs, or SMALL numbers (16 kB), whichever is more."""
DTYPES = {FLOAT: "float32", TRUTH: "bool"}


@dataclass(frozen=True)
class Front:
    """A forward graph that is cut into two.

    Attributes:
        source: of the front. rest: of the graphs that begin with the values at the cut.
        values: name of such a value in the front -> the graph input that it is. dtypes: of each input.
    """

    source: Source
    rest: Source
    values: dict[str, str]
    dtypes: dict[str, str]

    def shapes(self) -> list[Shape]:
        """The shapes of the values at the cut, in order."""
        g = self.source.copy_exported()
        return [g.shape(v) for v in self.values]


def cut_front(source: Source, data: Collection[str]) -> Front | None:
    """The front of a module and the rest; None: there is none that is worth it.

    By count: those of its nodes that do more than move numbers have inputs and outputs (of one sample; parameters
    included) of WORTH times the numbers at the cut together, so that one scaling of the data is no front; and at the
    cut there are no more than LARGER times the numbers of the inputs, or SMALL.

    Args:
        data: names of the data inputs. Masks of dropout are none, so nothing behind them is in the front.
    """
    g = source.copy_exported()
    g.nodes = select_needed(g, [source.output])
    fixed, cut = find_small_cut(g, find_fixed(g, data), data, source.output)
    if not cut or not is_worth_it(g, fixed, cut, data):
        return None
    kinds, values = list_kinds(g), {v: f"{PREFIX}{k}" for k, v in enumerate(cut)}
    dtypes = {name: DTYPES.get(kinds[v], "int64") for v, name in values.items()}
    rest = write_rest(source.copy_exported(), g.nodes, fixed, values, dtypes)
    return Front(source.replace(g, cut), source.replace(rest), values, dtypes)


def write_front(front: Front, trains: bool) -> Target:
    """The values at the cut, as a graph for training computes them, or one that predicts."""
    names = [*front.values.values()]
    g = front.source.copy_training_graph().graph if trains else front.source.copy_graph()
    take_out_marks(g)
    for value, name in front.values.items():
        g.op("Identity", value, shape=g.shape(value), output=name)
    g.dtypes |= {name: dtype.removesuffix("32") for name, dtype in front.dtypes.items()}
    return finish(g, names, [], front.source.samples) if trains else Target(g, names)


def find_fixed(g: OnnxGraph, data: Collection[str]) -> set[str]:
    """The values that depend on the data and on nothing that changes; a Shape depends on how many there are alone."""
    fixed, moving = set(data), {i for i in g.inputs if i not in data and i != "buffers"}
    for n in g.nodes:
        reads = list_reads(n)
        if reads & moving:
            moving.update(n.outputs)
        elif reads & fixed and n.op != "Shape":
            fixed.update(n.outputs)
    return fixed


def find_small_cut(g: OnnxGraph, fixed: set[str], data: Collection[str], output: str) -> tuple[set[str], list[str]]:
    """The fixed values before the cut, and those at it: fewer than the last ones, where these are too many to keep.

    Beside what a frozen layer takes, what it makes may be at the cut, as with adapters. The largest saving comes first.
    """
    cut = find_cut(g, fixed, data, output)
    makers = {o: n for n in g.nodes for o in n.outputs}
    while count(g, cut) > find_limit(g, data):
        trials = [fixed - {*makers[v].outputs} for v in cut if v not in data]
        found = [(trial, find_cut(g, trial, data, output)) for trial in trials]
        if not found:
            break
        before, fewer = min(found, key=lambda one: count(g, one[1]))
        if count(g, fewer) > count(g, cut):  # as many may be fewer one node before
            break
        fixed, cut = before, fewer
    return fixed, cut


def find_cut(g: OnnxGraph, fixed: set[str], data: Collection[str], output: str) -> list[str]:
    """The fixed values that others read, in order, as late as they can be kept; what is behind them leaves `fixed`.

    A value can be kept if it is a row of floats or truths for each sample, or an input. Others, and mere views, are
    made again of what is before them. Empty: the rest needs a shape that it cannot tell.
    """
    kinds, makers = list_kinds(g), {o: n for n in g.nodes for o in n.outputs}
    while True:
        others = [n for n in g.nodes if n.outputs[0] not in fixed and n.op != "Shape"]
        wanted = ({i for n in others for i in list_reads(n)} | {output}) & fixed
        again = {v for v in wanted - {*data} if not can_be_kept(g, v, kinds) or makers[v].op in VIEWS}
        if not again:
            break
        fixed -= {o for v in again for o in makers[v].outputs}
    if any(is_unknown(g, n.inputs[0]) for n in g.nodes if n.op == "Shape"):
        return []
    return [v for v in (*data, *(o for n in g.nodes for o in n.outputs)) if v in wanted]


def can_be_kept(g: OnnxGraph, value: str, kinds: dict[str, str]) -> bool:
    """True for a value (B, ...) of a type that devices keep."""
    first, *others = g.shapes.get(value) or (0,)
    return first == BatchDim() and all(isinstance(d, int) for d in others) and kinds.get(value) in DTYPES


def is_unknown(g: OnnxGraph, value: str) -> bool:
    return value not in g.shapes or sum(isinstance(d, BatchDim) for d in g.shapes[value]) > 1


def is_worth_it(g: OnnxGraph, fixed: Collection[str], cut: Collection[str], data: Collection[str]) -> bool:
    """True for a front by whose results little enough is kept, and much enough spared; see `cut_front`."""
    before = [n for n in select_needed(g, cut) if n.outputs[0] in fixed and n.op not in MOVES]
    work = sum(count(g, [*list_reads(n), *n.outputs]) for n in before)
    kept = count(g, cut)
    return WORTH * kept <= work and kept <= find_limit(g, data)


def find_limit(g: OnnxGraph, data: Collection[str]) -> int:
    """The numbers that may be kept for a sample."""
    return max(LARGER * count(g, data), SMALL)


def count(g: OnnxGraph, values: Iterable[str]) -> int:
    """The numbers that values have together, for one sample."""
    shapes = (g.shapes.get(v, ()) for v in values)
    return sum(prod(d.times if isinstance(d, BatchDim) else d for d in shape) for shape in shapes)


def write_rest(
    g: OnnxGraph, nodes: Iterable[OnnxNode], fixed: Collection[str], values: dict[str, str], dtypes: dict[str, str]
) -> OnnxGraph:
    """The graph behind the cut, of a graph that is changed in place and the nodes that it needs of it.

    Args:
        values: at the cut -> the graph input that it becomes. dtypes: of these inputs.
    """
    g.take_nodes()
    g.inputs = [i for i in g.inputs if i not in fixed]
    for value, name in values.items():
        g.input(name, g.shape(value), dtypes[name].removesuffix("32"))
        g.op("Identity", name, shape=g.shape(value), output=value)
    first = next(iter(values.values()))
    for n in nodes:
        if n.op == "Shape" and n.inputs[0] in fixed:
            write_shape(g, n, first)
        elif n.outputs[0] not in fixed:
            g.put_back(n)
    return g


def write_shape(g: OnnxGraph, n: OnnxNode, first: str) -> None:
    """Write the shape of a value that is not there; `first` (B, ...) has the number of samples."""
    shape: Shape = g.shape(n.inputs[0])
    start, end = n.attributes.get("start", 0), n.attributes.get("end", len(shape))
    parts = [write_dimension(g, d, first) for d in shape[start:end]]
    made = g.concat(parts, 0) if parts else g.constant(np.zeros(0, np.int64))
    g.op("Identity", made, shape=(len(parts),), output=n.outputs[0])


def write_dimension(g: OnnxGraph, d: int | BatchDim, first: str) -> str:
    """One dimension as a vector of one number."""
    if isinstance(d, int):
        return g.ints([d])
    batch = g.op("Shape", first, start=0, end=1, shape=(1,))
    return batch if d.times == 1 else g.op("Mul", batch, g.ints([d.times]), shape=(1,))
