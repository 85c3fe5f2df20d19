"""Scores on their way up, held to what the node's holder allows: no label counts of a device, no sums of few devices.

A method's roles send what the paper needs, and scores of models beside it. Nothing of a method depends on these, so the
node itself takes out what its [allow] table does not let leave, from every message upward, whatever the method:

    a device      histograms of scores by class: their sizes are the numbers of its held-out samples of each class
    a hospital    the same, and all scores of fewer devices than `scores_of`: a sum of one is that device's

From how many samples three devices have, how many are right, and the exact sum of their shares, each one's two numbers
follow: few fractions add up to it. So sums of shares leave in steps, and those of their squares of some devices more.

Where sums are secret a device takes the same out before it masks an answer (`for_masking`), and all squares: its share
is in steps, and the squares of such shares would say which. A hospital cannot, and need not: of few devices nothing is
opened. What is left out is left out for good: a hospital does not add it to the sum of a
later round. Sums that a method itself computes with (HSGD's noise, AugFL's residuals) stay, as do counts of training
samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from edge_sdk.algebra.metrics.label_sets import F1
from edge_sdk.contract.method import UP, Role, Send, Step
from edge_sdk.methods.settling.counting import Counts
from edge_sdk.methods.shared.aggregation.scores import (
    LOSS_DEVICES,
    MODELS,
    SQUARED,
    STAGES,
    TEST,
    UNTOLD,
    partial_histograms,
)
from edge_sdk.methods.shared.evaluation.evaluation import Scores
from edge_sdk.nodes.policy.allow import CLASSES, Allow

Told = Mapping[str, float]

STEP = 64
"""Sums of shares are multiples of 1 / STEP: the mean of three devices is off by 0.3 % at most."""
MORE = 2
"""Devices more than `scores_of` whose squares of shares may leave: three shares nearly follow from both sums."""
SHARES = ("_accuracy", f"_{F1}")
"""Ends of the names of sums of shares, which are fractions of small numbers."""


def limited(role: Role, allow: Callable[[], Allow], hospital: bool = False) -> Role:
    """The role, whose scores leave as the table allows at that moment.

    Args:
        hospital: it answers for several devices; a device answers for itself.
    """

    def sent(step: Step) -> Step:
        state, sends = step
        table = allow()
        least = table.scores_of if hospital else 1
        return state, [leaving(send, table.scores == CLASSES, least) for send in sends]

    return replace(
        role,
        start=lambda env: sent(role.start(env)),
        receive=lambda env, s, sender, m: sent(role.receive(env, s, sender, m)),
        close=lambda env, s: sent(role.close(env, s)),
    )


def for_masking(allow: Callable[[], Allow]) -> Callable[[Any], Any]:
    """What a device takes out of an answer before it is masked, by its table at that moment."""

    def masked(message: Any) -> Any:
        by_class = allow().scores == CLASSES
        return allowed_message(message, by_class, 1, coarse=not by_class)

    return masked


def leaving(send: Send, by_class: bool, least: int) -> Send:
    """A message with the scores that may leave; the same where all may."""
    if send.to != UP:
        return send
    message = allowed_message(send.message, by_class, least)
    return send if message is send.message else replace(send, message=message)


def allowed_message(message: Any, by_class: bool, least: int, coarse: bool = False) -> Any:
    """The message without scores that may not leave, in itself or in a message within it. Args: as `allowed_scores`."""
    if isinstance(message, Scores):
        sums = allowed_scores(message.sums, message.sums.get("devices", 0.0), by_class, least, coarse)
        return message if sums == message.sums else replace(message, sums=sums)
    if isinstance(message, Counts):
        return message if message.devices >= least or not message.devices else Counts(0 * message.correct)
    changed: dict[str, Any] = {}
    for f in fields(message):
        value = getattr(message, f.name)
        if is_dataclass(value):
            found: Any = allowed_message(value, by_class, least, coarse)
        elif f.name == "scores" and value:
            found = allowed_scores(value, float(getattr(message, "count", 1)), by_class, least, coarse)
            found = value if found == value else found
        else:
            continue
        if found is not value:
            changed[f.name] = found
    return replace(message, **changed) if changed else message


def allowed_scores(scores: Told, count: float, by_class: bool, least: int, coarse: bool = False) -> dict[str, float]:
    """The scores that may leave.

    Args:
        count: devices of which they are sums.
        by_class: histograms may leave.
        least: devices of which a score is that may leave. 1: it may be one, and shares are exact.
        coarse: shares leave in steps, and no squares, although they are of one device.
    """
    hidden = partial_histograms(scores) if by_class and least > 1 else frozenset[str]()
    in_steps = coarse or least > 1
    found = {
        name: round(value * STEP) / STEP if in_steps and name.removesuffix(SQUARED).endswith(SHARES) else value
        for name, value in scores.items()
        if ("_auc:" not in name or (by_class and name.partition("_auc:")[0] not in hidden))
        and not (coarse and name.endswith(SQUARED))
        and devices_behind(name, scores, count) >= least + MORE * (least > 1 and name.endswith(SQUARED))
    }
    if 0 < count < least and found != scores:
        found[UNTOLD] = count
    return found


def devices_behind(name: str, scores: Told, count: float) -> float:
    """Devices whose models or samples a score is of: those that have held-out samples, such a model or a training loss.
    For accuracies on own samples it is not said how many have such samples, so they count as of one. Sums that the
    method computes with count as of all there are."""
    part = TEST if name.startswith(TEST) else ""
    stem = name.removeprefix(TEST)
    model = stem.partition("_")[0]
    if stem in ("samples", "devices") or model in MODELS:
        return scores.get(f"{part}{model}_devices", scores.get(f"{part}devices", 0.0))
    if model in STAGES:  # of FedAL
        return min(count, 1.0) if stem.endswith("_own_accuracy") else scores.get("devices", 0.0)
    return scores.get(LOSS_DEVICES, 0.0) if stem in ("loss", LOSS_DEVICES) else float("inf")
