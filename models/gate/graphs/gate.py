"""The parity gate, which every bundle must pass.

(a) Semantics: the graph in float64, evaluated without onnxruntime, against torch's float64 autograd; worst error of any
    parameter tensor at most 1e-6, for every case. Right graphs are at 1e-16 to 1e-8, broken rules at 1e-5 and above.
(b) Arithmetic: the graph in float32 on onnxruntime against the same float64 gradient; relative L2 error of the median
    seed at most max(1e-4, 20 x the error of torch's own float32), of the worst seed max(1e-2, 20 x torch's worst). The
    median decides, because one ReLU input within rounding of 0 may fall on either side of it in float32, in torch as
    well. Where that is rare, torch's worst of some seeds more is asked for: twice that is allowed, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from edge_sdk.algebra.vectors import Slot
from edge_sdk.model.dropout import MASKS, DropSite, draw_masks
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.frontend.modules.outputs import pick, run_module
from edge_sdk.models.frontend.modules.randomness import Draw, Still, fix_draws, set_training
from edge_sdk.models.frontend.tracing.tables import TablesInFloat32
from edge_sdk.models.gate.references.as_on_devices import StableOrder, norm_as_float32
from edge_sdk.models.gate.references.cases import CASES, Case, draw
from edge_sdk.models.gate.references.layouts import EvenLayouts
from edge_sdk.models.gate.references.losses import compute_losses
from edge_sdk.models.gate.references.measure import SEMANTIC_LIMIT, measure_slots, relative_error
from edge_sdk.models.gate.references.renorm import renormalise
from edge_sdk.models.ir.errors import CompileError, ParityError
from edge_sdk.models.ir.evaluation import reference
from edge_sdk.models.ir.specification.spec import DataInput
from edge_sdk.models.passes.convolutions.batch_norm import STEP

FLOAT32_LIMIT = 1e-4
FLOAT32_WORST = 1e-2
TORCH_FACTOR = 20
TIE_SEEDS, TIE_FACTOR = range(205, 225), 2
"""Where torch is looked at for ties of float32 that three seeds may not have, and how much more one may change here."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Drops:
    """What a module drops at random in training.

    Attributes:
        draws: as torch draws it. sites: the same as the compiled graphs and devices know it.
    """

    draws: tuple[Draw, ...]
    sites: tuple[DropSite, ...]

    def draw(self, seed: int, batch: int) -> torch.Tensor:
        """Masks (batch, columns) as a device draws them, but not rounded to float32."""
        drawn = draw_masks(self.sites, batch, np.random.default_rng(seed))
        kept = np.repeat([s.kept for s in self.sites], [s.columns for s in self.sites])
        noisy = np.repeat([s.is_noise for s in self.sites], [s.columns for s in self.sites])
        return torch.from_numpy(np.where(noisy, drawn, (drawn != 0) * kept))

    def rest(self, batch: int) -> torch.Tensor:
        """Masks (batch, columns) with which nothing is dropped, float64."""
        row = np.repeat([s.rest for s in self.sites], [s.columns for s in self.sites])
        return torch.from_numpy(np.tile(row, (batch, 1)))


def list_cases(truth: Truth) -> Sequence[Case]:
    """The cases for a module; with statistics of the batch none has a single sample, which has no variance."""
    integers, drops = any(i.below for i in truth.inputs), truth.drops is not None
    there = [c for c in CASES if (integers or not c.whole) and (drops or not c.at_rest)]
    return [replace(c, batch=2) if truth.train and c.batch == 1 else c for c in there]


FLOAT32_SEEDS = (200, 201, 202, 203, 204)
FLOAT32_KINDS = (
    Case("normal inputs", 0, 3),
    Case("inputs times 0.01", 0, 3, 1e-2),
    Case("inputs times 0.0001", 0, 3, 1e-4),
    Case("windows of zeros and of one value", 0, 3, flat=True),
)
"""Small inputs are where a sum with 1 loses digits, and flat ones where noise takes the place of 0: float64 shows
neither."""


class Truth:
    """The gradient of a module by torch's autograd, against which everything is measured.

    Args:
        inputs: data inputs of the module, in the order of its arguments.
        train: batch normalisation uses the statistics of the batch.
        drops: what the module drops at random in training; None: nothing.
        output: which of several results counts, as of `pick`.
        running: names of running statistics whose entries follow those of the parameters in theta and gradient.
        smoothing: of labels.
    """

    def __init__(
        self,
        net: nn.Module,
        inputs: Sequence[DataInput],
        loss: str,
        train: bool = False,
        drops: Drops | None = None,
        output: str = "",
        running: Sequence[str] = (),
        smoothing: float = 0.0,
    ) -> None:
        self.running, self.smoothing = list(running), smoothing
        self.in_training = False  # set where a module that drops nothing is trained as it is in training mode
        self.still = False  # set where the module drops values in evaluation, too: here it then drops none
        self.coupling = ""  # where a traced module computes one value of all samples, as far as that is known
        self.heads: Mapping[str, float] = {}  # further results, and the weights of their losses
        self.undefined: list[str] = []
        """Cases in which the gradient is not finite, in torch as well."""
        self.inputs, self.loss, self.train, self.drops, self.output = list(inputs), loss, train, drops, output
        self.state: dict[str, torch.Tensor] = copy.deepcopy(net.state_dict())
        self.nets = {torch.float64: copy.deepcopy(net).double(), torch.float32: copy.deepcopy(net).float()}

    def name_coupling(self) -> str:
        """Where samples may depend on each other, in brackets, if that is known."""
        return f" ({self.coupling})" if self.coupling else ""

    def note_undefined(self, case: Case) -> None:
        """Notes inputs at which torch's own gradient is no number.

        Raises:
            CompileError: they are ordinary ones.
        """
        if not (case.degenerate or case.whole or case.tied):
            what = f"the module: torch's own gradient is not finite ({case.name})"
            raise CompileError(f"{what}; keep roots, logarithms and divisions away from 0")
        self.undefined.append(case.name)

    def renormalise(self) -> None:
        """Let batch normalisations that use the statistics of the batch correct them; see gate/references/renorm.py."""
        for net in self.nets.values():
            renormalise(net)

    def draw(self, case: Case, target: tuple[int, ...] | None) -> dict[str, torch.Tensor]:
        """The inputs of `draw`, and masks for what is dropped at random."""
        data = draw(case, self.inputs, target)
        return data | ({MASKS: self.drops.draw(case.seed, case.batch)} if self.drops else {})

    def loss_grad(
        self, data: Mapping[str, torch.Tensor], dtype: torch.dtype = torch.float64
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """(output, loss, gradient (n,)) in the given precision, from the module's own parameters and statistics.

        Where `data` has masks, the module itself runs in training mode, and what torch would draw is taken from them.
        """
        net = self.nets[dtype]
        net.load_state_dict(self.state)
        drops = self.drops if MASKS in data else None
        set_training(net, statistics=self.train, others=drops is not None or (self.in_training and not self.drops))
        mode: AbstractContextManager[Any] = fix_draws(drops.draws, data[MASKS]) if drops else self.rest()
        with mode, EvenLayouts():
            made = self.run(net, data, dtype)
        z, y = pick(made, self.output), cast(data["y"], dtype)
        losses = compute_losses(self.loss, self.smoothing, z, y)
        for name, weight in self.heads.items():
            losses = losses + weight * compute_losses(self.loss, self.smoothing, pick(made, name), y)
        value = (cast(data["weights"], dtype) * losses).sum()
        trained = [p for p in net.parameters() if p.requires_grad]
        try:
            grads = torch.autograd.grad(value, trained, allow_unused=True, materialize_grads=True)
        except RuntimeError as error:
            first = str(error).strip().split("\n")[0][:200]
            raise CompileError(f"the module: torch itself cannot differentiate it ({first})") from error
        flat = torch.cat([v.reshape(-1) for v in (*grads, *self.pull(net, data, dtype))])
        return z.detach().numpy(), float(value.detach()), flat.detach().double().numpy()

    def find_rounding(self, data: Mapping[str, torch.Tensor], grad: np.ndarray) -> np.ndarray:
        """Torch's own float32 error of a gradient (n,)."""
        return np.asarray(np.abs(self.loss_grad(data, torch.float32)[2] - grad))

    def find_noise(self, data: Mapping[str, torch.Tensor], grad: np.ndarray) -> np.ndarray:
        """What torch's gradient (n,) changes by when the last bits of all parameters do: torch's own float64 error."""
        generator = torch.Generator().manual_seed(0)
        signs = {k: torch.randint(0, 2, v.shape, generator=generator) * 2 - 1 for k, v in self.state.items()}
        moved = {k: v * (1 + 2**-51 * signs[k].double()) if v.is_floating_point() else v for k, v in self.state.items()}
        with self.at(moved):
            return np.asarray(self.loss_grad(data)[2] - grad)

    @contextmanager
    def at(self, state: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """The module has these tensors for a while; torch's notes on versions, which some modules ask for, stay."""
        kept, self.state = self.state, copy.copy(self.state)
        self.state.update(state)
        try:
            yield
        finally:
            self.state = kept

    def loss_grad_of_output(self, data: Mapping[str, torch.Tensor]) -> np.ndarray:
        """The gradient (n,) of the loss of the output alone, without that of further results."""
        with mock.patch.object(self, "heads", {}):
            return self.loss_grad(data)[2]

    def pull(self, net: nn.Module, data: Mapping[str, torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
        """The gradients of running statistics by what torch has made of them: STEP times each is torch's own step."""
        share, after = cast(data["weights"], dtype).sum(), dict(net.named_buffers())
        return [share * (self.state[name].to(dtype) - after[name]) / STEP for name in self.running]

    def predict(self, data: Mapping[str, torch.Tensor]) -> np.ndarray:
        """The output in evaluation mode, float64."""
        net = self.nets[torch.float64]
        net.load_state_dict(self.state)
        # not under no_grad: there torch's encoder layers go another way, with other outputs where a mask hides all
        with self.rest():
            return pick(self.run(net.eval(), data, torch.float64), self.output).detach().numpy()

    def rest(self) -> AbstractContextManager[Any]:
        """A mode in which nothing is dropped in evaluation."""
        return Still() if self.still else nullcontext()

    def run(self, net: nn.Module, data: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Any:
        """What the module returns for a batch, in the given precision."""
        values, arguments = [cast(data[i.name], dtype) for i in self.inputs], [i.argument for i in self.inputs]
        try:
            with mock.patch.object(torch, "rms_norm", norm_as_float32), StableOrder(), TablesInFloat32(dtype):
                return run_module(net, values, arguments)
        except RuntimeError as error:
            if not any(word in str(error) for word in ("dtype", "scalar type", "Type promoting")):
                raise
            first = str(error).strip().split("\n")[0]
        try:  # a tensor that is made in forward has torch's default type
            torch.set_default_dtype(dtype)
            with mock.patch.object(torch, "rms_norm", norm_as_float32), StableOrder(), TablesInFloat32(dtype):
                return run_module(net, values, arguments)
        except RuntimeError as error:
            told = f"the module runs in one precision only ({first}); make its tensors with dtype=x.dtype"
            raise CompileError(told) from error
        finally:
            torch.set_default_dtype(torch.float32)

    def statistics(self) -> np.ndarray:
        """What is not trained after the latest `loss_grad`: running statistics, frozen parameters; float64."""
        net = self.nets[torch.float64]
        kept = [b.reshape(-1) for b in net.buffers() if b.is_floating_point()]
        kept += [p.reshape(-1) for p in net.parameters() if not p.requires_grad]
        return torch.cat(kept).numpy() if kept else np.zeros(0)


def cast(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Floats in another precision; integers as they are."""
    return t.to(dtype) if t.is_floating_point() else t


def check_semantics(
    target: Target, slots: Sequence[Slot], truth: Truth, fixed: Arrays, y_shape: tuple[int, ...] | None
) -> float:
    """Check (a) over all cases; the worst error.

    Args:
        target: a loss_grad graph of all slots.
        fixed: theta (and buffers) in float64.

    Raises:
        ParityError: an error is above SEMANTIC_LIMIT.
    """
    ready = reference.Evaluator(target.model(double=True))
    worst = 0.0
    for case in list_cases(truth):
        data = truth.draw(case, y_shape)
        if case.at_rest:
            data.pop(MASKS)
        _, loss, grad = truth.loss_grad(data)
        if not (np.isfinite(loss) and np.isfinite(grad).all()):
            truth.note_undefined(case)
            continue
        rest = {MASKS: truth.drops.rest(case.batch)} if case.at_rest and truth.drops else {}
        out = ready({**fixed, **{k: v.numpy() for k, v in (data | rest).items()}})
        rounding, noise = partial(truth.find_rounding, data, grad), partial(truth.find_noise, data, grad)
        errors = measure_slots(out["grad"], grad, slots, rounding, noise)
        errors["the loss"] = abs(float(out["loss"]) - loss) / max(abs(loss), 1e-6)
        if "new_buffers" in out:
            errors["the running statistics"] = relative_error(out["new_buffers"], truth.statistics())
        worst_slot = max(errors, key=lambda k: errors[k] if np.isfinite(errors[k]) else np.inf)
        if not errors[worst_slot] <= SEMANTIC_LIMIT:
            raise ParityError("float64", case.name, worst_slot, errors[worst_slot], SEMANTIC_LIMIT)
        worst = max(worst, errors[worst_slot])
    return worst


def check_float32(
    run: Callable[[Arrays], np.ndarray], truth: Truth, y_shape: tuple[int, ...] | None, batch: int = 3
) -> float:
    """Check (b) at all scales; the median relative L2 error at that of normal inputs.

    Args:
        run: gives the float32 gradient for x, y and weights.

    Raises:
        ParityError: the errors are above their limits.
    """
    first, *others = FLOAT32_KINDS
    error = check_kind(run, truth, y_shape, replace(first, batch=batch))
    for kind in others if any(not i.below for i in truth.inputs) else []:
        check_kind(run, truth, y_shape, replace(kind, batch=batch))
    return error


def check_kind(run: Callable[[Arrays], np.ndarray], truth: Truth, y_shape: tuple[int, ...] | None, kind: Case) -> float:
    """Check (b) for one kind of inputs, as `check_float32` does it; 0 where torch has no gradient itself."""
    errors, torch_errors = list[float](), list[float]()
    seeds = FLOAT32_SEEDS if kind == replace(FLOAT32_KINDS[0], batch=kind.batch) else FLOAT32_SEEDS[:3]
    for seed in seeds:
        data = truth.draw(replace(kind, seed=seed), y_shape)
        want = truth.loss_grad(data)[2]
        if len(seeds) < len(FLOAT32_SEEDS) and not (np.isfinite(want).all() and np.any(want)):
            return 0.0
        single = {k: v.float().numpy() if v.is_floating_point() else v.numpy() for k, v in data.items()}
        errors.append(relative_error(run(single), want))
        torch_errors.append(relative_error(truth.loss_grad(data, torch.float32)[2], want))
    least = FLOAT32_WORST if kind.flat else FLOAT32_LIMIT  # there a tie may be decided otherwise
    median, limit = float(np.median(errors)), max(least, TORCH_FACTOR * float(np.median(torch_errors)))
    case = f"{kind.name}, seeds {seeds}"
    if not median <= limit:
        raise ParityError("float32, median seed", case, "the gradient", median, limit)
    limit = max(FLOAT32_WORST, TORCH_FACTOR * max(torch_errors))
    if not (max(errors) <= limit or max(errors) <= TIE_FACTOR * find_torch_worst(truth, y_shape, kind)):
        raise ParityError("float32, worst seed", case, "the gradient", max(errors), limit)
    return median


def find_torch_worst(truth: Truth, y_shape: tuple[int, ...] | None, kind: Case) -> float:
    """The largest relative L2 error of torch's own float32 gradient over some seeds more."""
    errors = list[float]()
    for seed in TIE_SEEDS:
        data = truth.draw(replace(kind, seed=seed), y_shape)
        errors.append(relative_error(truth.loss_grad(data, torch.float32)[2], truth.loss_grad(data)[2]))
    return max(errors)
