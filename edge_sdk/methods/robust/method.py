"""Robust sums around a method: a node keeps its children's uploads until its round is over, and then hands over others.

The method inside adds up, as always; it never notices. While a round is on, an upload is shown to the method, which may
refuse it, and is kept. At the close each of them is replaced: its mean contribution per unit of weight (`Addend`) is
what the rule makes of all of them, and its weight, scores and counts stay. "clip" shortens each contribution for
itself; the other rules have one result for all, so every child stands for it. To find who is near, each child has one
vote, whatever its weight; in the mean of those who are, weights count up to three times the usual one. Where vectors
are mirrored, rules but "clip" choose who is counted (mirrored.py).

What it costs: the uploads of a round are in the node's record (4 bytes for each parameter and child in place of 16
for each parameter), which is saved with every answer. What the rule makes depends neither on the order of arrival nor
on repetitions: uploads are sorted by name, and one that comes again is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from edge_sdk.contract.method import ME, UP, Method, NodeEnv, Role, Step
from edge_sdk.contract.wrapping import role_around
from edge_sdk.errors import PeerError
from edge_sdk.methods.robust import rules
from edge_sdk.methods.robust.mirrored import asks, choosing
from edge_sdk.methods.robust.settings import CLIP, GEOMETRIC_MEDIAN, NONE, TRIMMED_MEAN, Robust
from edge_sdk.methods.shared.aggregation.gather import Addend
from edge_sdk.methods.shared.membership.changing import as_they_came, with_size


@dataclass(frozen=True)
class RobustState:
    """A node's state around the method's own.

    Attributes:
        inner: the method's.
        uploads: child -> its upload in the round that is on.
        sizes: child -> number of devices behind it when its upload came, where these are several.
    """

    inner: Any
    uploads: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


def robust(method: Method, settings: Robust) -> Method:
    """The method with robust sums at its hospitals, at its aggregator, or at both; see `settings.check_method`."""
    if settings.rule != NONE:
        method = replace(method, hospital=surround(method, "hospital", method.hospital, settings), adds_up=False)
    if settings.hospitals == NONE:
        return method
    show, over = method.show, method.rounds_over

    def shown(env: NodeEnv, s: RobustState) -> Any:
        return show(env, s.inner)

    shown.__annotations__["return"] = get_type_hints(show)["return"]  # evaluation reads there what a model looks like
    return replace(
        method,
        aggregator=surround(method, "aggregator", method.aggregator, settings),
        show=shown,
        rounds_over=None if over is None else lambda s: over(s.inner),
    )


def surround(method: Method, tier: str, inner: Role, settings: Robust) -> Role:
    """The role of a tier with its rule: one that chooses who counts, where children's own vectors are mirrored."""
    rule = settings.at(tier)
    if rule == CLIP or tier not in method.mirrored:
        return around(inner, rule, settings)

    def distances(rows: rules.Rows) -> rules.Row:
        return rules.distances(rows, find_centre(rows, rule, settings))

    return choosing(inner, method.mirrored[tier], distances, settings.keep)


def around(inner: Role, rule: str, settings: Robust) -> Role:
    def receive(env: NodeEnv, s: RobustState, sender: str, message: Any) -> Step:
        state, sends = inner.receive(env, s.inner, sender, message)
        if sender not in (UP, ME) and is_added(sender, message):  # shown, for the checks inside, but not yet counted
            uploads, sizes = {**s.uploads, sender: message}, with_size(env, s.sizes, sender)
            return replace(s, uploads=uploads, sizes=sizes), []
        kept = replace(s, uploads={}, sizes={}) if sender == UP and asks(sends) else s
        return replace(kept, inner=state), sends

    def close(env: NodeEnv, s: RobustState) -> Step:
        state, then = s.inner, as_they_came(env, s.sizes)
        for name, upload in replaced(s.uploads, rule, settings).items():
            state = inner.receive(then, state, name, upload)[0]
        state, sends = inner.close(env, state)
        return replace(s, inner=state, uploads={}, sizes={}), sends

    return role_around(inner, RobustState, receive, close)


def is_added(sender: str, message: Any) -> bool:
    """True for an upload with a vector that is added up.

    Raises:
        PeerError: the vector has no finite mean, because its weight is next to nothing.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        vector = message.contribution() if isinstance(message, Addend) else None
    if vector is not None and not np.isfinite(vector).all():
        raise PeerError(f"{sender} sent numbers that are not finite per unit of weight")
    return vector is not None


def replaced(uploads: Mapping[str, Any], rule: str, settings: Robust) -> dict[str, Any]:
    """The uploads, by name, with contributions as the rule has them."""
    names = sorted(uploads)
    if len(names) < 2:
        return dict(uploads)
    rows = np.stack([uploads[name].contribution() for name in names])
    weights = np.array([uploads[name].vote() for name in names])
    return {
        name: uploads[name] if row is None else uploads[name].contributing(row)
        for name, row in zip(names, apply_rule(rows, weights, rule, settings), strict=True)
    }


def apply_rule(rows: rules.Rows, weights: rules.Row, rule: str, settings: Robust) -> Sequence[rules.Row | None]:
    """What each of the children (k, n), of these weights (k,), counts with; None: with what it has sent."""
    if rule == CLIP:
        return rules.clip(rows, settings.factor)
    found = find_centre(rows, rule, settings)
    if settings.keep:
        found = rules.mean_of_near(rows, weights, found, settings.keep)
    return [found] * len(rows)


def find_centre(rows: rules.Rows, rule: str, settings: Robust) -> rules.Row:
    """The result (n,) of a rule other than "clip"."""
    mixed = rules.mix_neighbours(rows, settings.share) if settings.neighbours else rows
    if rule == TRIMMED_MEAN:
        return rules.trimmed_mean(mixed, settings.share)
    return rules.geometric_median(mixed) if rule == GEOMETRIC_MEDIAN else rules.median(mixed)


def near_of(settings: Robust, tier: str) -> Callable[[rules.Row, float], npt.NDArray[np.bool_]] | None:
    """By a tier's rule: rows (children, k) -> which of them are within `keep` times the median distance of its result.

    For what children tell that is no vector of a model, as counts are. "clip" has the median for its result; where
    `keep` is 0, it is the default. The second argument: least distance that a median is raised to. None: the tier has
    no rule.
    """
    rule = settings.at(tier)
    if rule == NONE:
        return None

    def near(rows: rules.Row, least: float) -> npt.NDArray[np.bool_]:
        far = rules.distances(rows, find_centre(rows, rule, settings))
        return np.asarray(far <= (settings.keep or Robust.keep) * max(least, float(np.median(far))))

    return near
