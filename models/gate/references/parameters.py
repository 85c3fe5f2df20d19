"""Other parameters than those that a module begins with: a rule that is right at theta0 only is wrong after training.

Parameters of a fresh module are small, different from each other and seldom 0, so that a norm, a share or a probability
never comes near the constant that keeps it from 0, and nothing saturates.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

AS_GIVEN, ZERO, ONE_ZERO, MOVED = "as given", "zero", "one tensor zero", "moved"
FACTORS = {"times 30": 30.0, "times 1e3": 1e3, "times 1e-3": 1e-3}
PLACES = (AS_GIVEN, *FACTORS, ZERO, ONE_ZERO, MOVED)

State = Mapping[str, torch.Tensor]


def place_parameters(state: State, trained: Mapping[str, torch.nn.Parameter], place: str, seed: int) -> State:
    """A state dictionary with its trained parameters somewhere else, exact in float32; all else as it is.

    Args:
        trained: by the names that they have in `state`; one tensor may have several names, and keeps one value.
        place: one of PLACES. seed: which tensor is zero, and where `moved` ones go.
    """
    if place == AS_GIVEN:
        return state
    order = {id(p): at for at, p in enumerate(dict.fromkeys(trained.values()))}
    chosen = seed % len(order)
    moved = {name: move(state[name].double(), place, seed, order[id(p)] == chosen) for name, p in trained.items()}
    return {**state, **{name: tensor.float().double() for name, tensor in moved.items()}}


def move(tensor: torch.Tensor, place: str, seed: int, chosen: bool) -> torch.Tensor:
    """One tensor, float64, at that place; `chosen`: it is the one that is zero."""
    if place in FACTORS:
        return tensor * FACTORS[place]
    if place == MOVED:
        steps = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return tensor + 0.3 * steps * tensor.abs().max().clamp(min=0.1)
    return torch.zeros_like(tensor) if place == ZERO or chosen else tensor
