"""Finds what a module draws at random while it trains, by running it once in training mode.

Every random function of torch, however it was called, ends in a few functions of its innermost layer. They are watched
there, so that dropout that is called as a function, stochastic depth, and dropout inside attention are all seen.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from edge_sdk.models.frontend.modules.outputs import run_module
from edge_sdk.models.frontend.modules.uniform import DrawnShares, Uniforms
from edge_sdk.models.ir.errors import CompileError, TrainModeExport

aten = torch.ops.aten
DRAWS = (aten.bernoulli_.float, aten.bernoulli.p, aten.bernoulli.default)
"""Functions that draw 0 or 1 with one probability for 1: what all kinds of dropout are made of.

The last one is given a tensor of probabilities, which counts where these are equal.
"""
NOISES = (aten.randn_like.default, aten.randn.default, aten.normal_.default, aten.normal.float_float)
"""Functions that draw normal numbers of one mean and deviation: samples of a variational autoencoder."""
NORMS = (nn.modules.batchnorm._NormBase,)
PROBES = (2, 3)
UNLIKELY = 0x5EED_0F_0DD
"""A seed that no module sets."""


@dataclass(frozen=True)
class Draw:
    """One place where a module draws zeros and ones, or normal numbers.

    Attributes:
        where: path of the module. kind: its class. probability: of a 1; None: it draws normal numbers.
        shape: with None for the axis that grows with the batch, and `times`, that axis per sample.
    """

    where: str
    kind: str
    probability: float | None
    shape: tuple[int | None, ...]
    times: int = 1

    @property
    def columns(self) -> int:
        """Number of zeros and ones per sample."""
        size = self.times
        for d in self.shape:
            size *= 1 if d is None else d
        return size

    def describe(self) -> str:
        """The place in words, e.g. "head.drop: Dropout(p=0.1)"."""
        if self.probability is None:
            return f"{self.where}: {self.kind}, noise,"
        return f"{self.where}: {self.kind}(p={round(1 - self.probability, 6):g})"

    def place(self, row: torch.Tensor) -> torch.Tensor:
        """Columns of a mask (B, columns) in the shape in which the module draws them."""
        at = self.shape.index(None)
        rest = [d for d in self.shape if d is not None]
        order = [*range(1, at + 1), 0, *range(at + 1, len(self.shape))]
        return row.reshape(-1, *rest).permute(order)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches all that is drawn at random; `answer` draws in place of torch: of a probability; None: normal numbers."""

    def __init__(self, answer: Callable[[torch.Tensor, float | None], torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.answer = answer
        self.uniforms = Uniforms(answer, drawn=False)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (made := self.uniforms.read(func, args, kwargs or {})) is not NotImplemented:
            return made
        if self.uniforms.have(args, kwargs):
            raise Unknown("uniform ones, which are not compared with one number, once")
        if func in DRAWS:
            values = self.answer(args[0], read_probability(func, args))
            return args[0].copy_(values) if func is aten.bernoulli_.float else values
        if func in NOISES:
            return draw_normal(func, args, kwargs or {}, lambda like: self.answer(like, None))
        if is_random(func, args, kwargs or {}):
            raise Unknown(str(func))
        return func(*args, **(kwargs or {}))


def read_probability(func: Any, args: Sequence[Any]) -> float:
    """The probability of a 1 for one of DRAWS, with as many digits as float32 has of the numbers in a tensor.

    Raises:
        Unknown: they are not one number.
    """
    if func is not aten.bernoulli.default:
        return float(args[1] if len(args) > 1 else 0.5)
    if not args[0].numel() or bool((args[0] != args[0].reshape(-1)[0]).any()):
        raise Unknown(str(func))
    return float(f"{float(args[0].reshape(-1)[0]):.7g}")


def draw_normal(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], answer: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """What one of NOISES gives where `answer` draws in its place, numbers of mean 0 and deviation 1."""
    mean, deviation = read_moments(func, args)
    if isinstance(args[0], torch.Tensor):
        like = args[0]
    else:
        like = torch.empty(args[2] if func is aten.normal.float_float else args[0], dtype=kwargs.get("dtype"))
    made = answer(like) * deviation + mean
    return args[0].copy_(made) if func is aten.normal_.default else made


def read_moments(func: Any, args: Sequence[Any]) -> tuple[float, float]:
    """Mean and deviation of the numbers that one of NOISES draws."""
    given = args[1:3] if func is aten.normal_.default else args[:2] if func is aten.normal.float_float else ()
    moments = [*given, *(0.0, 1.0)[len(given) :]]
    return float(moments[0]), float(moments[1])


def is_random(func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a function draws random numbers; attention and recurrent layers do so only where they drop values."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    names = [a.name for a in func._schema.arguments]
    given = (
        {a.name: a.default_value for a in func._schema.arguments} | dict(zip(names, args, strict=False)) | dict(kwargs)
    )
    if given.get("training", given.get("train")) is False:
        return False
    share = [float(given[name] or 0) for name in ("dropout_p", "dropout") if name in given]
    return not share or any(share)


class Unknown(Exception):
    """A random function that is no dropout."""


def set_training(net: nn.Module, statistics: bool = False, others: bool = True) -> None:
    """Put a module into training mode: norms with running statistics if `statistics`, the rest if `others`."""
    net.train(others)
    for layer in net.modules():
        if isinstance(layer, NORMS):
            layer.train(statistics)


@contextmanager
def follow_path(net: nn.Module) -> Iterator[list[tuple[str, nn.Module]]]:
    """The modules that are running now, outermost first, with their paths."""
    stack: list[tuple[str, nn.Module]] = []
    handles = []
    for path, layer in net.named_modules():
        handles.append(layer.register_forward_pre_hook(lambda m, a, path=path: stack.append((path, m))))
        handles.append(layer.register_forward_hook(lambda m, a, out: (stack.pop(), None)[1]))
    try:
        yield stack
    finally:
        for handle in handles:
            handle.remove()


def find_draws(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str] = ()) -> list[Draw]:
    """All draws of zeros and ones of a module in training mode, in the order in which they are made.

    Args:
        examples: one batch of each input. arguments: of the module that they are given as; none: by place.

    Raises:
        TrainModeExport: it draws other random numbers, or draws that do not follow the batch.
    """
    try:
        net = copy.deepcopy(net)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch has to say of a module is said when that is exported
            first, second = (record(net, [e[:batch] for e in examples], arguments) for batch in PROBES)
    except CompileError:
        raise
    except Exception as error:
        refuse_unless_broken(net, examples, arguments, error)
        return []
    if len(first) != len(second):
        raise TrainModeExport("the number of random draws depends on the batch; compile with --dropout off")
    return [merge(*pair) for pair in zip(first, second, strict=True)]


class Still(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives probabilities in place of zeros and ones that are drawn: dropout divides by them, and changes nothing.

    In place of normal numbers it gives their mean.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drew: bool = False
        self.shares, self.uniforms = DrawnShares(), Uniforms(self.hold, drawn=True)

    def hold(self, like: torch.Tensor, probability: float) -> torch.Tensor:
        """Probabilities in the place of a comparison of uniform numbers."""
        self.drew = True
        return self.shares.hold(like, probability)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for reader in (self.uniforms.read, self.shares.apply):
            if (made := reader(func, args, kwargs or {})) is not NotImplemented:
                return made
        if func in NOISES:
            self.drew = True
            return draw_normal(func, args, kwargs or {}, torch.zeros_like)
        if func not in DRAWS:
            return func(*args, **(kwargs or {}))
        self.drew, like = True, args[0]
        if func is aten.bernoulli.default:
            return like.clone()
        share = read_probability(func, args)
        return like.fill_(share) if func is aten.bernoulli_.float else torch.full_like(like, share)


def draws_in_evaluation(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str] = ()) -> bool:
    """True if a module drops values in evaluation, as `F.dropout(x)` without `training=self.training` does."""
    net = copy.deepcopy(net).eval()
    with warnings.catch_warnings(), torch.no_grad(), Still() as mode:
        warnings.simplefilter("ignore")
        run_module(net, [e[: PROBES[0]] for e in examples], arguments)
    return bool(mode.drew)


def refuse_unless_broken(
    net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str], error: Exception
) -> None:
    """Raise TrainModeExport if a module runs in evaluation; if it does not, the exporter explains that better."""
    try:
        with torch.no_grad():
            run_module(net.eval(), [e[: PROBES[0]] for e in examples], arguments)
    except Exception:
        return
    reason = str(error).strip().split("\n")[0][:200]
    raise TrainModeExport(
        f"the module runs in evaluation but not in training mode ({reason}), so it is not known what it drops at "
        "random; compile with --dropout off"
    ) from error


def record(net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str]) -> list[Draw]:
    """All draws at one batch size; their shapes have numbers only."""
    found = list[Draw]()
    set_training(net)
    with follow_path(net) as stack, torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(UNLIKELY)  # a GPU keeps its numbers
        expected = torch.get_rng_state()

        def note(like: torch.Tensor, probability: float | None) -> torch.Tensor:
            nonlocal expected
            path, layer = stack[-1] if stack else ("", net)
            if not torch.equal(torch.get_rng_state(), expected):  # only the next line draws from it
                raise Unknown("the same ones again and again, of a generator that it sets")
            torch.rand(1)
            expected = torch.get_rng_state()
            if probability is None or 0 < probability < 1:
                found.append(Draw(path or "the module", type(layer).__name__, probability, tuple(like.shape)))
            return torch.ones_like(like)

        try:
            with Watch(note):
                run_module(net, examples, arguments)
        except Unknown as error:
            path, layer = stack[-1] if stack else ("", net)
            raise TrainModeExport(
                f"{path or 'the module'}: {type(layer).__name__} draws random numbers ({error}) while it trains; "
                "use dropout, or compile with --dropout off if it draws none in eval()"
            ) from error
    return found


def merge(a: Draw, b: Draw) -> Draw:
    """One draw as it was seen at the two batch sizes.

    Raises:
        TrainModeExport: its shape does not follow the batch.
    """
    moving = [i for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if m != n]
    size = a.shape[moving[0]] if len(moving) == 1 else 1
    assert size is not None
    if len(moving) != 1 or size % PROBES[0] or b.shape[moving[0]] != size // PROBES[0] * PROBES[1]:
        raise TrainModeExport(
            f"{a.describe()} draws {list(a.shape)} for {PROBES[0]} samples, and each sample must have values of its "
            "own; use a mode per row, or compile with --dropout off"
        )
    shape = tuple(None if i == moving[0] else d for i, d in enumerate(a.shape))
    return Draw(a.where, a.kind, a.probability, shape, size // PROBES[0])


def refuse_certain_drops(net: nn.Module) -> None:
    """Raise TrainModeExport for a dropout of probability 1, in which torch draws nothing: what is left is 0."""
    for name, module in net.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p >= 1:
            raise TrainModeExport(
                f"{name} ({type(module).__name__}, p={module.p:g}) drops all values, so nothing before it would be "
                "trained; give it a p below 1, or compile with --dropout off (devices train without)"
            )


def refuse_draws(draws: Sequence[Draw]) -> None:
    """Raise TrainModeExport if there are any: the caller has not said what is to become of them."""
    if draws:
        more = f" (and {len(draws) - 1} more)" if len(draws) > 1 else ""
        raise TrainModeExport(
            f"{draws[0].describe()}{more} drops or draws values at random in training; compile with --dropout keep "
            "(devices draw masks and noise) or --dropout off (devices train without)"
        )


def fix_draws(draws: Sequence[Draw], masks: torch.Tensor) -> Watch:
    """A mode in which a module draws what `masks` (B, columns) say: 1 where an entry is not 0, and noise as it is.

    Raises (when it is used):
        CompileError: the module draws something else than was found before.
    """
    left = list(draws)[::-1]
    start = 0

    def answer(like: torch.Tensor, probability: float | None) -> torch.Tensor:
        nonlocal start
        if probability is not None and not 0 < probability < 1:
            return torch.full_like(like, probability)
        draw = left.pop() if left else None
        if draw is None or draw.probability != probability:
            raise CompileError("the module does not always draw the same; compile with --dropout off")
        part = masks[:, start : start + draw.columns]
        start += draw.columns
        drawn = draw.place(part)
        return (drawn if probability is None else drawn != 0).to(like.dtype).reshape(like.shape)

    return Watch(answer)
