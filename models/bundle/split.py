"""Split models: several towers, each fed by the data of its own holder, and a head on their joined embeddings.

    logits = head(concat(tower_1(x_1), ..., tower_k(x_k)))

A party owns some groups (towers, the head). It runs its own towers on its own data, receives the embeddings of the
other towers, and differentiates with respect to its own groups; all others are frozen. So no party sees another's
samples:

    predict              theta, x.<tower>...                                  -> logits
    loss_grad            theta, x.<tower>..., y, weights                      -> loss, grad              (all of theta)
    embed@<tower>        theta.<tower>, x.<tower>                             -> embedding
    predict@<party>      theta.<group>..., x.<own>..., z.<other>...           -> logits
    loss_grad@<party>    theta.<group>..., x.<own>..., z.<other>..., y, weights -> loss, grad            (its groups)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from edge_sdk.algebra.vectors import Slot
from edge_sdk.models.bundle.compile import Compiled, ShowProgress, make_example, read_vectors, run_batch
from edge_sdk.models.bundle.pack import BundleChecks, BundleFacts, BundleGraphs, BundleState, pack_bundle
from edge_sdk.models.bundle.unlike import refuse_unlike
from edge_sdk.models.derive import targets
from edge_sdk.models.derive.targets import Source, Target
from edge_sdk.models.frontend.kept.python_state import refuse_iterators
from edge_sdk.models.frontend.kept.shared_memory import refuse_shared_memory
from edge_sdk.models.frontend.modules.hooks import refuse_hooks
from edge_sdk.models.frontend.modules.prepare import refuse_parts
from edge_sdk.models.frontend.modules.wrappers import as_written, on_one_thread
from edge_sdk.models.frontend.tracing.diagnose import find_coupling
from edge_sdk.models.frontend.tracing.export import Forward, export_forward
from edge_sdk.models.frontend.tracing.marks import find_marks
from edge_sdk.models.gate.graphs.check import check_graphs
from edge_sdk.models.gate.graphs.gate import Truth
from edge_sdk.models.gate.graphs.golden import make_golden
from edge_sdk.models.gate.operators.calls import check_calls
from edge_sdk.models.gate.references.cases import CASES
from edge_sdk.models.gate.references.measure import SEMANTIC_LIMIT, measure_slot
from edge_sdk.models.gate.references.runnable import RunnableGraph
from edge_sdk.models.ir.errors import CompileError, ParityError
from edge_sdk.models.ir.evaluation import reference
from edge_sdk.models.ir.shapes import as_numbers
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.ir.specification.spec import DataInput, Spec, find_target_shape, set_classes
from edge_sdk.models.passes.scheduling.steps import MOST

HEAD = "head"


class SplitNet(nn.Module):
    """Towers by name, and a head on their embeddings (B, d1), (B, d2), ... joined in that order."""

    def __init__(self, towers: Mapping[str, nn.Module], head: nn.Module) -> None:
        super().__init__()
        if HEAD in towers:
            raise CompileError(f"a tower cannot be named {HEAD!r}")
        self.head = head
        for name, tower in towers.items():
            self.add_module(name, tower)
        self.towers = tuple(towers)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(
            torch.cat([getattr(self, t)(x) for t, x in zip(self.towers, inputs, strict=True)], 1)
        )
        return output


class PartyNet(nn.Module):
    """The part that one party runs: its towers and the head; the other towers' embeddings are inputs."""

    def __init__(self, net: SplitNet, own: Sequence[str]) -> None:
        super().__init__()
        self.head, self.towers, self.own = net.head, net.towers, tuple(own)
        for t in own:
            self.add_module(t, getattr(net, t))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        given = zip(self.towers, inputs, strict=True)
        output: torch.Tensor = self.head(torch.cat([getattr(self, t)(v) if t in self.own else v for t, v in given], 1))
        return output


class TowerNet(nn.Module):
    """One tower alone, under its name."""

    def __init__(self, net: SplitNet, name: str) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, getattr(net, name))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = getattr(self, self.name)(x)
        return output


@dataclass(frozen=True)
class SplitSpec:
    """Settings of the compilation of a split model.

    Attributes:
        name, classes, loss, max_batch: as in Spec.
        inputs: tower -> shape of one sample of its data.
        parties: party -> the groups that it owns (towers, "head").
    """

    name: str
    inputs: Mapping[str, tuple[int, ...]]
    parties: Mapping[str, Sequence[str]]
    classes: int = 0
    loss: str = "cross_entropy"
    max_batch: int = MOST


@as_written()
@on_one_thread()
def compile_split(net: SplitNet, spec: SplitSpec, progress: ShowProgress = lambda text: None) -> Compiled:
    """Compile a split model; the gate covers every party's gradient.

    Raises:
        CompileError: the model cannot be compiled, or its graphs are not right.
    """
    refuse_parts(net)
    refuse_hooks(net)
    refuse_iterators(net)
    refuse_shared_memory(net)
    check_spec(net, spec)
    slots = lay_out_parameters(net)
    inputs = [DataInput(f"x.{t}", tuple(spec.inputs[t])) for t in net.towers]
    progress(f"{spec.name}: {sum(s.size for s in slots):,} parameters, towers {', '.join(net.towers)}")
    examples = [make_example(i) for i in inputs]
    refuse_unlike(net, examples, (), [""], "frozen", "")
    forward = export_forward(net, slots, [i.name for i in inputs], examples)
    whole = Source(forward, {"theta": slots})
    given = Spec(spec.name, inputs[0].shape, spec.classes, spec.loss, max_batch=spec.max_batch)
    base = set_classes(given, whole.output_shape)
    graphs = {"predict": targets.write_predict(whole), "loss_grad": targets.write_loss_grad(whole, spec.loss)}
    graphs |= {
        f"embed@{t}": targets.write_predict(export_tower(net, t, slots, i))
        for t, i in zip(net.towers, inputs, strict=True)
    }
    widths = {t: graphs[f"embed@{t}"].graph.sample_shape("embedding")[0] for t in net.towers}
    for party, owned in spec.parties.items():
        source = export_party(net, owned, slots, inputs, widths)
        graphs[f"predict@{party}"] = targets.write_predict(source)
        graphs[f"loss_grad@{party}"] = targets.write_loss_grad(source, spec.loss, owned)
    models = {k: t.model() for k, t in graphs.items()}
    progress("graphs: " + ", ".join(f"{k} {len(m.graph.node)} nodes" for k, m in models.items()))
    fixed, y_shape = read_vectors(net, slots, []), find_target_shape(base, whole.output_shape)
    runs, truth = {k: RunnableGraph(m) for k, m in models.items()}, Truth(net, inputs, spec.loss)
    plain = {k: graphs[k] for k in ("predict", "loss_grad")}
    check_calls(forward)
    truth.coupling = find_coupling(forward.program)
    errors = check_graphs(plain, runs, truth, fixed, y_shape)
    errors |= {f"float64 {p}": check_party(net, graphs, p, slots, truth, fixed, y_shape) for p in spec.parties}
    progress(f"parity: {max(v for k, v in errors.items() if 'float64' in k):.1e} in float64 (limit 1e-06)")
    vector, tolerance = make_golden(lambda feeds: run_batch(runs, fixed, feeds), truth, slots, y_shape)
    split = {
        "towers": {t: {"embedding": widths[t]} for t in net.towers},
        "parties": {k: list(v) for k, v in spec.parties.items()},
    }
    data = pack_bundle(
        base,
        BundleState(slots=slots, fixed=fixed),
        BundleGraphs(graphs=graphs, models=models),
        BundleChecks(golden=vector, tolerance=tolerance, errors=errors),
        BundleFacts(
            inputs=inputs,
            output=as_numbers(whole.output_shape[1:]),
            split=split,
            own_gradient=bool(find_marks(forward.program)),
        ),
    )
    progress(f"bundle: {len(data):,} bytes")
    return Compiled(base, data, sum(s.size for s in slots), {k: len(m.graph.node) for k, m in models.items()}, errors)


def check_spec(net: SplitNet, spec: SplitSpec) -> None:
    """Raise CompileError if the spec does not fit the model."""
    groups = (*net.towers, HEAD)
    if set(spec.inputs) != set(net.towers):
        raise CompileError(f"inputs for {', '.join(spec.inputs)}, but the towers are {', '.join(net.towers)}")
    for party, owned in spec.parties.items():
        strange = [g for g in owned if g not in groups]
        if strange or not owned:
            raise CompileError(f"party {party!r} owns {strange or 'nothing'}; there are {', '.join(groups)}")
    if not all(p.requires_grad for p in net.parameters()):
        raise CompileError("split models with frozen parameters are not supported; set requires_grad of all of them")
    if any(b.is_floating_point() for b in net.buffers()):
        raise CompileError("split models with running statistics are not supported; use GroupNorm")


def select_groups(slots: Sequence[Slot], groups: Sequence[str]) -> dict[str, list[Slot]]:
    """Name of a graph input -> the slots of the group that it holds."""
    found = {}
    for group in groups:
        chosen = [s for s in slots if s.group == group]
        found[f"theta.{group}"] = chosen
    return {k: v for k, v in found.items() if v}


def export_tower(net: SplitNet, tower: str, slots: Sequence[Slot], data: DataInput) -> Source:
    held = select_groups(slots, [tower])
    chosen = [s for v in held.values() for s in v]
    forward = export_forward(TowerNet(net, tower).eval(), chosen, [data.name], [make_example(data)], "embedding")
    source = Source(forward, held)
    if len(source.output_shape) != 2:
        raise CompileError(
            f"tower {tower}: an embedding must be (batch, features), got {source.output_shape[1:]} per sample"
        )
    return source


def export_party(
    net: SplitNet, owned: Sequence[str], slots: Sequence[Slot], inputs: Sequence[DataInput], widths: Mapping[str, int]
) -> Source:
    """The forward pass of one party, with one vector per group: its own and the head's."""
    own = [t for t in net.towers if t in owned]
    held = select_groups(slots, [HEAD, *own])
    chosen = [s for v in held.values() for s in v]
    given = [i if t in own else DataInput(f"z.{t}", (widths[t],)) for t, i in zip(net.towers, inputs, strict=True)]
    forward: Forward = export_forward(
        PartyNet(net, own).eval(), chosen, [i.name for i in given], [make_example(i) for i in given]
    )
    return Source(forward, held)


def check_party(
    net: SplitNet,
    graphs: Mapping[str, Target],
    party: str,
    slots: Sequence[Slot],
    truth: Truth,
    fixed: Mapping[str, np.ndarray],
    y_shape: tuple[int, ...],
) -> float:
    """Check in float64 that a party's gradient, given the others' embeddings, is its slice of autograd's; the error."""
    target = graphs[f"loss_grad@{party}"]
    ready = reference.Evaluator(target.model(double=True))
    embed = {t: reference.Evaluator(graphs[f"embed@{t}"].model(double=True)) for t in net.towers}
    theta = {k: np.concatenate([fixed["theta"][s.span] for s in v])
             for k, v in select_groups(slots, [HEAD, *net.towers]).items()}  # fmt: skip
    worst = 0.0
    for case in (c for c in CASES if not c.whole):
        data = truth.draw(case, y_shape)
        _, _, grad = truth.loss_grad(data)
        values = {**theta, **{k: v.numpy() for k, v in data.items()}}
        values |= {f"z.{t}": e(values)["embedding"] for t, e in embed.items()}
        got, at = ready(values)["grad"], 0
        for s in target.slots:
            padded = np.zeros_like(grad)
            padded[s.span] = got[at : at + s.size]
            error, at = measure_slot(padded, grad, s, float(np.abs(grad).max(initial=0))), at + s.size
            if not error <= SEMANTIC_LIMIT:
                raise ParityError(f"float64, party {party}", case.name, s.name, error, SEMANTIC_LIMIT)
            worst = max(worst, error)
    return worst
