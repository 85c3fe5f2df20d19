"""Check (f) of the gate: a search for inputs at which the graph and torch disagree, in float64.

The fixed cases are a handful of points. Here an input is a recipe: magnitude, offset, repeated and constant samples,
zeros, an outlier, sizes of weights, extreme targets, equal indices, and parameters other than the first ones. Three
recipes with such parameters are always tried; others are drawn at random, then the worst one is changed in one choice
at a time (hill climbing on the relative error of the worst tensor). Every draw is seeded.

What is found counts if torch's own gradient stands still there. Where the last bits of inputs and parameters move it
as far (a kink, an unstable norm of equal values), both are right, or neither is. Where torch has no finite gradient,
nobody knows what is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from edge_sdk.algebra.vectors import Slot
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.gate.graphs.gate import Truth
from edge_sdk.models.gate.references.cases import Case
from edge_sdk.models.gate.references.measure import NOISE_FACTOR, SEMANTIC_LIMIT, measure_slot, measure_slots
from edge_sdk.models.gate.references.parameters import AS_GIVEN, FACTORS, PLACES, ZERO, place_parameters
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.evaluation import reference

SEARCH = 10
"""Inputs that are tried unless the caller asks for more: as many as cost a compilation a tenth of its time."""
SEED = 500

Arrays = Mapping[str, np.ndarray]
Data = dict[str, torch.Tensor]

CHOICES: dict[str, tuple[Any, ...]] = {
    "batch": (1, 2, 3, 5),
    "scale": (1e-6, 1e-3, 1.0, 1e2, 1e4),
    "offset": (0.0, 1.0, -1e2, 1e4, 1e6),
    "rows": ("different", "equal", "constant", "half of them zero"),
    "outlier": (0.0, 1e3, -1e6),
    "weights": ("uneven", "one alone", "times 1e6", "times 1e-6"),
    "targets": ("drawn", "equal", "extreme"),
    "indices": ("drawn", "equal", "first", "last"),
    "parameters": PLACES,
}
"""What a recipe may have in each place; the first of each is nothing special, but for batch and scale."""


@dataclass(frozen=True)
class Recipe:
    """An input, by the way in which it is made; the fields are the keys of CHOICES."""

    seed: int
    batch: int
    scale: float
    offset: float
    rows: str
    outlier: float
    weights: str
    targets: str
    indices: str
    parameters: str = AS_GIVEN

    def __str__(self) -> str:
        return ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in asdict(self).items())


ORDINARY = Recipe(
    seed=SEED,
    batch=3,
    scale=1.0,
    offset=0.0,
    rows="different",
    outlier=0.0,
    weights="uneven",
    targets="drawn",
    indices="drawn",
)
ENLARGED = 100
"""Where parameters are large, so are adjoints between layers: 1e13 times the gradient in BIOT, whose softmax takes the
difference of two. What float64 rounds off there is seen in tensors that are next to nothing beside the whole gradient
(4e-12 of it), and does not move with the last bits of parameters; so these are measured against so much more of it."""
ALWAYS = tuple(replace(ORDINARY, parameters=place) for place in ("times 30", "times 1e3", ZERO))
"""Recipes that every search begins with."""


def draw_recipe(rng: np.random.Generator) -> Recipe:
    """A recipe with two or three places that are something special."""
    chosen: dict[str, Any] = {k: getattr(ORDINARY, k) for k in CHOICES}
    for k in rng.choice([*CHOICES], rng.integers(2, 4), replace=False):
        chosen[k] = CHOICES[k][rng.integers(len(CHOICES[k]))]
    return Recipe(seed=int(rng.integers(1 << 31)), **chosen)


def change_recipe(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """A neighbour: another choice in one place, and another draw."""
    k = str(rng.choice([f.name for f in fields(Recipe) if f.name != "seed"]))
    others = [v for v in CHOICES[k] if v != getattr(recipe, k)]
    changed: dict[str, Any] = {k: others[rng.integers(len(others))], "seed": int(rng.integers(1 << 31))}
    return replace(recipe, **changed)


def make_data(recipe: Recipe, truth: Truth, y_shape: tuple[int, ...] | None) -> Data:
    """The inputs, targets and weights of a recipe; floats are exact in float32."""
    batch = max(recipe.batch, 2) if truth.train else recipe.batch
    data = truth.draw(Case("search", recipe.seed, batch, recipe.scale), y_shape)
    for i in truth.inputs:
        data[i.name] = choose_indices(data[i.name], recipe, i.below) if i.below else shape_floats(data[i.name], recipe)
    data["weights"] = choose_weights(data["weights"], recipe)
    y = data["y"]
    if recipe.targets == "equal":
        data["y"] = y[:1].expand(y.shape).clone()
    elif recipe.targets == "extreme" and y.is_floating_point():
        data["y"] = y.round()
    return data


def shape_floats(x: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """Normal numbers times `scale`, as the recipe changes them."""
    if recipe.rows == "equal":
        x = x[:1].expand(x.shape).clone()
    elif recipe.rows == "constant":
        x = x.flatten(1)[:, :1].reshape(-1, *(1 for _ in x.shape[1:])).expand(x.shape).clone()
    elif recipe.rows == "half of them zero":
        x[: (len(x) + 1) // 2] = 0
    if recipe.outlier:
        x.view(-1)[recipe.seed % x.numel()] = recipe.outlier
    return (x + recipe.offset).float().double()


def choose_indices(x: torch.Tensor, recipe: Recipe, below: int) -> torch.Tensor:
    """Integers in [0, below), as the recipe changes them."""
    at = {"equal": recipe.seed % below, "first": 0, "last": below - 1}
    return torch.full_like(x, at[recipe.indices]) if recipe.indices in at else x


def choose_weights(weights: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """The weights of the samples, as the recipe changes them."""
    if recipe.weights == "one alone":
        alone = torch.zeros_like(weights)
        alone[-1] = 1
        return alone
    factor = {"times 1e6": 1e6, "times 1e-6": 1e-6}.get(recipe.weights, 1.0)
    return (weights * factor).float().double()


class Comparison:
    """A compiled graph beside torch, at one input after another.

    Args:
        target: a loss_grad graph of all slots. fixed: theta (and buffers) in float64.
    """

    def __init__(
        self, target: Target, slots: Sequence[Slot], truth: Truth, fixed: Arrays, y_shape: tuple[int, ...] | None
    ) -> None:
        self.slots, self.truth, self.fixed, self.y_shape = slots, truth, fixed, y_shape
        self.ready = reference.Evaluator(target.model(double=True))

    def measure(self, recipe: Recipe) -> float:
        """The worst error of a tensor; 0 where torch has no finite gradient.

        Raises:
            ParityError: it is above SEMANTIC_LIMIT, and torch's own gradient stands still.
        """
        data = make_data(recipe, self.truth, self.y_shape)
        with self.place(recipe) as fixed:
            want = self.truth.loss_grad(data)[2]
            if not np.isfinite(want).all():
                return 0.0
            with np.errstate(all="ignore"):  # a wrong graph may overflow, which is what is looked for
                got = self.ready({**fixed, **{k: v.numpy() for k, v in data.items()}})["grad"]
            whole = float(np.abs(want).max(initial=0))
            quick = max(measure_finite(measure_slot(got, want, s, whole)) for s in self.slots)
            return quick if quick <= SEMANTIC_LIMIT else self.confirm(recipe, data, got, want)

    @contextmanager
    def place(self, recipe: Recipe) -> Iterator[Arrays]:
        """The parameters of a recipe, in the module and for the graph."""
        net = self.truth.nets[torch.float64]
        trained = {name: p for name, p in net.named_parameters(remove_duplicate=False) if p.requires_grad}
        state = place_parameters(self.truth.state, trained, recipe.parameters, recipe.seed)
        theta = self.fixed["theta"].copy()
        for s in (s for s in self.slots if s.name in trained):
            theta[s.span] = state[s.name].double().numpy().ravel()
        with self.truth.at(state):
            yield {**self.fixed, "theta": theta}

    def confirm(self, recipe: Recipe, data: Data, got: np.ndarray, want: np.ndarray) -> float:
        """The error with all that excuses it; raises as `measure` does."""
        shifted = shift_last_bits(data)
        moved = np.abs(self.truth.loss_grad(shifted)[2] - want) + np.abs(self.truth.find_noise(data, want))
        # where all samples are as sure as a float can say, a gradient of 1 - 1 is no scale: other targets have one
        scale = float(np.abs(self.truth.loss_grad(turn_targets(data))[2]).max(initial=0))
        if FACTORS.get(recipe.parameters, 0) > 1:
            scale = max(scale, ENLARGED * float(np.abs(want).max(initial=0)))
        rounding = partial(self.truth.find_rounding, data, want)
        errors = measure_slots(got, want, self.slots, rounding, lambda: moved, scale if np.isfinite(scale) else 0.0)
        if not np.isfinite(moved).all():
            return 0.0
        for s in sorted(self.slots, key=lambda s: -measure_finite(errors[s.name])):
            stands = NOISE_FACTOR * float(moved[s.span].max(initial=0))
            difference = measure_finite(float(np.abs(got[s.span] - want[s.span]).max(initial=0)))
            if not errors[s.name] <= SEMANTIC_LIMIT and difference > stands:
                raise ParityError("float64, searched", str(recipe), s.name, errors[s.name], SEMANTIC_LIMIT)
        return min(max(errors.values()), SEMANTIC_LIMIT)


def measure_finite(error: float) -> float:
    """The error, or infinity for no number."""
    return error if np.isfinite(error) else np.inf


def shift_last_bits(data: Data) -> Data:
    """All float inputs with their last bits changed; zeros and equal values stay so."""
    floats = [k for k, v in data.items() if v.is_floating_point() and k not in ("y", "weights")]
    return data | {k: data[k] * (1 + 2.0**-51) for k in floats}


def turn_targets(data: Data) -> Data:
    """Inputs of one recipe with other targets: labels exchanged with those that are not there, numbers mirrored."""
    y = data["y"]
    return data | {"y": 1 - y if y.is_floating_point() else torch.where(y == 0, 1, 0)}


def search_inputs(comparison: Comparison, tries: int) -> float:
    """The worst error at that many inputs: ALWAYS, drawn ones up to the half, then neighbours of the worst so far.

    Raises:
        ParityError: an input was found at which the graph is wrong.
    """
    rng, worst, best = np.random.default_rng(SEED), -1.0, ORDINARY
    for at in range(tries):
        drawn = at < (tries + 1) // 2
        recipe = ALWAYS[at] if at < len(ALWAYS) else draw_recipe(rng) if drawn else change_recipe(best, rng)
        error = comparison.measure(recipe)
        if error > worst:
            worst, best = error, recipe
    return max(worst, 0.0)
