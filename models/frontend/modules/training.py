"""Refuses modules that do something else in training than in evaluation, beside what is known to differ.

A bundle's gradient is that of what a module does in evaluation, with masks for dropout and statistics of the batch
where they are asked for. Here the module runs in both modes, with nothing dropped and norms in evaluation. Then both
must return the same; else a branch on `self.training` would be trained as evaluation takes it, without a word. Where
they return the same, torch's gradients must be the same as well, at the module's own parameters and at others.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from edge_sdk.models.frontend.modules.outputs import pick, run_module
from edge_sdk.models.frontend.modules.randomness import Still, follow_path, set_training
from edge_sdk.models.ir.errors import CompileError, TrainModeExport, UnsupportedPattern

BATCH = 3
LIMIT = 1e-4  # both ways are the same float32 operators, but for the masks
NOISE = 1e-3  # a gradient below this part of the largest one is measured against that
SEEDS = 8
LARGER = 30.0
"""What inputs or parameters are multiplied by, in search of a bound that is there in one mode only."""
EVALUATION = "or compile with --dropout off, which trains what the module does in evaluation"


@dataclass
class Pass:
    """What was seen of a module in one pass.

    Attributes:
        made: its result. steps: path and size of each layer's result, in the order in which they were there.
        gradients: name -> gradient of a parameter, of a fixed sum of what counts of the result; None: nothing does.
        norms: paths of modules that normalised with statistics of the batch by the function `batch_norm`.
        drew: generators beside torch's that were asked for numbers. dropped: torch's was, for dropout or noise.
    """

    made: Any = None
    steps: list[tuple[str, float]] = field(default_factory=list)
    gradients: dict[str, torch.Tensor] | None = None
    norms: list[str] = field(default_factory=list)
    drew: list[str] = field(default_factory=list)
    dropped: bool = False


def refuse_training_only(
    net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str], output: str, norm: str, dropout: str
) -> None:
    """Raise if a module would be trained as it is not in training mode.

    Args:
        output, norm, dropout: as of Spec. With dropout "off" results may differ: the user has said so. Gradients of
            equal results may not.

    Raises:
        UnsupportedPattern: it normalises with statistics of the batch, which are wanted, by a function.
        TrainModeExport: it does something else in training.
    """
    given = [e[:BATCH] for e in examples]
    try:
        evaluated, trained = (run_pass(net, given, arguments, training, output) for training in (False, True))
    except Exception:  # a module that runs in one mode only is refused by those that look for draws
        return
    if norm != "frozen" and (found := [p for p in trained.norms if p not in evaluated.norms]):
        what = f"F.batch_norm with statistics of the batch, which --norm {norm} does not find in a function"
        raise UnsupportedPattern(what, found[0], "use nn.BatchNorm1d or its like, or compile with --norm frozen")
    if dropout != "off":
        refuse_another_result(net, given, arguments, output, evaluated, trained)
    refuse_another_gradient(evaluated, trained, output)
    larger = [e * LARGER if e.is_floating_point() else e for e in given]
    ways = ((move_parameters(net), given, True), (net, larger, False), (enlarge_parameters(net), given, False))
    for other, inputs, moved in ways:
        try:
            evaluated, trained = (run_pass(other, inputs, arguments, training, output) for training in (False, True))
        except Exception:  # it may have reasons to refuse other parameters or inputs
            continue
        if dropout != "off" and not trained.dropped:  # or what is left of rounding may grow; the gate sees to those
            refuse_another_result(other, inputs, arguments, output, evaluated, trained)
        if not trained.dropped or moved:
            refuse_another_gradient(evaluated, trained, output)


def refuse_another_result(
    net: nn.Module,
    given: Sequence[torch.Tensor],
    arguments: Sequence[str],
    output: str,
    evaluated: Pass,
    trained: Pass,
) -> None:
    """Raise TrainModeExport if a module returns something else in training than in evaluation."""
    refuse_foreign_draws(net, given, arguments, evaluated, trained)
    try:
        results = [pick(p.made, output) for p in (evaluated, trained)]
    except CompileError as error:
        told = f"in training {error}; in evaluation it returns another result. Take the other results out of the module"
        raise TrainModeExport(f"{told}, {EVALUATION}") from error
    if not is_same(*results):
        told = "does something else in training than in evaluation, apart from what is dropped or normalised"
        raise TrainModeExport(
            f"{find_difference(evaluated, trained)}: {told}; take the branch on self.training out, {EVALUATION}"
        )


def enlarge_parameters(net: nn.Module) -> nn.Module:
    """A copy with larger parameters: a bound in training may lie beyond the first ones."""
    net = copy.deepcopy(net)
    with torch.no_grad():
        for p in net.parameters():
            if p.is_floating_point():
                p.mul_(LARGER)
    return net


def move_parameters(net: nn.Module) -> nn.Module:
    """A copy with other parameters: at the first ones a gradient may be 0, as behind a last layer of zeros."""
    net, generator = copy.deepcopy(net), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in net.parameters():
            if p.is_floating_point():
                p.add_(0.1 * torch.randn(p.shape, generator=generator))
    return net


def refuse_another_gradient(evaluated: Pass, trained: Pass, output: str) -> None:
    """Raise TrainModeExport if equal results have other gradients in training."""
    there, wanted = evaluated.gradients, trained.gradients
    if there is None or wanted is None or not is_same(*(pick(p.made, output) for p in (evaluated, trained))):
        return
    whole = max([0.0, *(float(g.norm()) for g in there.values())])
    for name in there | wanted:  # a module may also change what requires a gradient
        found, want = (g.get(name, torch.zeros(())) for g in (there, wanted))
        size = max(float(found.norm()), float(want.norm()), NOISE * whole)
        if float((found - want).norm()) > LIMIT * size:
            path, _, leaf = name.rpartition(".")
            raise TrainModeExport(
                f"{path or 'the module'}: the gradient of {leaf} is another one in training than in evaluation "
                f"(of size {float(want.norm()):.2g}, not {float(found.norm()):.2g}), although results are equal: a "
                "branch on self.training stops it or multiplies it, and a bundle would train without that. Take the "
                "branch out; freeze what is not to be trained with requires_grad_(False)"
            )


def refuse_foreign_draws(
    net: nn.Module, given: Sequence[torch.Tensor], arguments: Sequence[str], evaluated: Pass, trained: Pass
) -> None:
    """Raise TrainModeExport if training depends on numbers of Python's or numpy's generators.

    Where evaluation asks for such numbers, too, it is enough that results do not depend on them.
    """
    if not trained.drew:
        return
    runs = []
    for seed in range(SEEDS if trained.drew == evaluated.drew else 0):
        with keep_generators():
            random.seed(seed)
            np.random.seed(seed)
            runs.append(run_pass(net, given, arguments, True, None))
    if runs and all(r.steps == runs[0].steps for r in runs):
        return
    told = f"draws numbers from {' and '.join(trained.drew)} while it trains, which would be traced as one number"
    where = find_difference(runs[0], next(r for r in runs if r.steps != runs[0].steps)) if runs else "the module"
    raise TrainModeExport(f"{where}: {told}; use dropout or stochastic depth of torch.bernoulli, {EVALUATION}")


def run_pass(
    net: nn.Module, given: Sequence[torch.Tensor], arguments: Sequence[str], training: bool, output: str | None
) -> Pass:
    """One pass of a copy of the module, with gradients: without, torch's encoder layers go another way.

    Args:
        output: what counts of the result, as of `pick`; None: gradients are not wanted.
    """
    net, found = copy.deepcopy(net), Pass()
    set_training(net, others=training)
    with warnings.catch_warnings(), follow_path(net) as stack, keep_generators(found.drew), Still() as still:
        warnings.simplefilter("ignore")
        handles = [
            m.register_forward_hook(lambda m, a, out, path=path: note_step(found, path, out))
            for path, m in net.named_modules()
        ]
        with note_functions(found, stack):
            found.made = run_module(net, given, arguments)
        for handle in handles:
            handle.remove()
        if output is not None:
            found.gradients = find_gradients(net, found.made, output)
    found.dropped = still.drew
    return found


def find_gradients(net: nn.Module, made: Any, output: str) -> dict[str, torch.Tensor] | None:
    """Name -> gradient of each parameter, of a fixed sum of a result; None: no result counts, or it is no number."""
    named = {n: p for n, p in net.named_parameters() if p.requires_grad}
    try:
        result = pick(made, output)
    except CompileError:
        return None
    total = (result * torch.randn(result.shape, generator=torch.Generator().manual_seed(0))).sum()
    if not total.requires_grad:
        return {n: torch.zeros_like(p) for n, p in named.items()}
    try:
        grads = torch.autograd.grad(total, list(named.values()), allow_unused=True, materialize_grads=True)
    except RuntimeError:  # the gate says of a module that torch cannot differentiate it
        return None
    finite = all(bool(torch.isfinite(g).all()) for g in grads)
    return dict(zip(named, (g.detach().double() for g in grads), strict=True)) if finite else None


def note_step(found: Pass, path: str, out: Any) -> None:
    """Note the size of a layer's result."""
    first = out[0] if isinstance(out, (tuple, list)) and out else out
    if isinstance(first, torch.Tensor) and first.is_floating_point():
        found.steps.append((path, float(first.detach().double().norm())))


@contextmanager
def note_functions(found: Pass, stack: Sequence[tuple[str, nn.Module]]) -> Iterator[None]:
    """Note who normalises with statistics of the batch, and let it use running ones, if there are any."""
    original = torch.batch_norm

    def normalise(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any) -> Any:
        if training and mean is not None:
            found.norms.append((stack[-1][0] if stack else "") or "the module")
        return original(x, weight, bias, mean, var, training and mean is None, *rest)

    with mock.patch.object(torch, "batch_norm", normalise):
        yield


@contextmanager
def keep_generators(drew: list[str] | None = None) -> Iterator[None]:
    """Leave Python's and numpy's generators as they were, and note which of them were asked."""
    python, legacy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        if drew is not None:
            drew += ["Python's random"] if random.getstate() != python else []
            alike = (np.array_equal(a, b) for a, b in zip(np.random.get_state(), legacy, strict=True))
            drew += [] if all(alike) else ["numpy's random"]
        random.setstate(python)
        np.random.set_state(legacy)


def is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True for equal results; what is no number in evaluation is not compared."""
    if a.shape != b.shape:
        return False
    a, b = a.detach().double(), b.detach().double()
    return not bool(torch.isfinite(a).all()) or float((a - b).norm()) <= LIMIT * float(a.norm())


def find_difference(a: Pass, b: Pass) -> str:
    """Path of the first layer whose result differs."""
    for (path, size), (other, changed) in zip(a.steps, b.steps, strict=False):
        if path != other or not abs(size - changed) <= LIMIT * size:
            return path if path == other else path.rpartition(".")[0] or path or "the module"
    return "the module"
