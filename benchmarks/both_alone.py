"""What a sceptic runs against a mixture: the device's own network and its own forest mixed, without any federation.

The network is the local model of settling, the forest that of the run, taught by its device's own labels or also by
those that it gives by itself (self_labelled.py). The fleet chooses the kind of forest and the weight on validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edge_sdk.algebra.ensemble import log_probabilities, pooled, voted
from edge_sdk.algebra.forest import log_votes
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.settling import labelling
from edge_sdk.methods.settling.equations import ensemble, forest
from edge_sdk.methods.settling.settings import FOREST, TAUGHT_FOREST, Settling
from edge_sdk.model.model import Model
from edge_sdk.nodes.kernels.own_windows import features_of

BOTH = "alone, network and trees"


@dataclass(frozen=True)
class Own:
    """What one device has: its env, its network theta (n,), and (windows, labels) of validation and test."""

    env: NodeEnv
    network: Any
    validation: tuple[Any, Any]
    test: tuple[Any, Any]


def mixed_alone(
    settling: Settling, model: Model, devices: Mapping[str, Own], fleet: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Device -> share of its test windows that the mixture gets right.

    Args:
        devices: newcomers too. fleet: those of them that choose.
    """
    if not settling.trees:
        return {}
    s = replace(settling, label_weights=(1.0,), label_times=max(1, settling.label_times))
    nothing = next(iter(devices.values())).env.theta0
    counts = [labelling.labelling_counts(devices[name].env, s, nothing)[0] for name in fleet]
    choice = labelling.choose_labelling(s, np.sum(counts, 0))
    guessed = {name: guesses(s, model, own, choice) for name, own in devices.items()}
    right = np.sum([hits(guessed[name][0], devices[name].validation[1]) for name in fleet], 0)
    best = int(np.argmax(right))
    return {name: {BOTH: float((test[best] == devices[name].test[1]).mean())} for name, (_, test) in guessed.items()}


def guesses(s: Settling, model: Model, own: Own, choice: int) -> tuple[list[Any], list[Any]]:
    """Classes of the validation and of the test windows, for each kind of forest and each weight."""
    taught = labelling.taught_by(own.env, s, own.env.theta0, choice)
    found: tuple[list[Any], list[Any]] = ([], [])
    for kind in (FOREST, TAUGHT_FOREST):
        trees = forest(taught, s, kind if taught.self_labels is not None else FOREST)
        assert trees is not None
        known = ensemble(own.env, s, 0.0).classes
        for part, (x, _) in zip(found, (own.validation, own.test), strict=True):
            logits = model.predict(own.network, x)
            votes = voted(log_votes(trees, features_of(x)), logits.shape[1], known)
            part += [pooled(log_probabilities(logits, known), votes, w).argmax(1) for w in s.local_weights]
    return found


def hits(guessed: Sequence[Any], y: Any) -> Any:
    return np.array([(each == y).sum() for each in guessed])
