"""The strongest neighbour that labels its own windows: a forest on one device, taught by itself and by nobody else.

It is what a sceptic runs against benchmarks/settling.py: the same forest, features, copies, windows, smoothing and
number of turns as in the run, and nothing that another device has. The fleet chooses its threshold on validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_sdk.algebra.ensemble import voted
from edge_sdk.algebra.forest import log_votes
from edge_sdk.contract.method import NodeEnv
from edge_sdk.methods.settling import labelling
from edge_sdk.methods.settling.equations import ensemble, forest
from edge_sdk.methods.settling.settings import FOREST, TAUGHT_FOREST, Settling
from edge_sdk.nodes.kernels.own_windows import features_of

BY_ITSELF = "alone, trees that label"


def by_itself(
    settling: Settling,
    envs: Mapping[str, NodeEnv],
    fleet: Sequence[str],
    tests: Mapping[str, tuple[Any, Any]],
    classes: int,
) -> dict[str, dict[str, float]]:
    """Device -> share of its test windows that its self-taught forest gets right.

    Args:
        envs: of devices, newcomers too. fleet: those of them that choose the threshold.
        tests: device -> windows, labels.
    """
    if not settling.trees:
        return {}
    s = replace(settling, label_weights=(1.0,), label_times=max(1, settling.label_times))
    nothing = next(iter(envs.values())).theta0
    counts = [labelling.labelling_counts(envs[name], s, nothing)[0] for name in fleet]
    choice = labelling.choose_labelling(s, np.sum(counts, 0))
    return {name: {BY_ITSELF: accuracy(s, env, choice, *tests[name], classes)} for name, env in envs.items()}


def accuracy(s: Settling, env: NodeEnv, choice: int, x: Any, y: Any, classes: int) -> float:
    taught = labelling.taught_by(env, s, env.theta0, choice)
    found = forest(taught, s, TAUGHT_FOREST if taught.self_labels is not None else FOREST)
    assert found is not None
    votes = voted(log_votes(found, features_of(x)), classes, ensemble(env, s, 0.0).classes)
    return float((votes.argmax(1) == y).mean())
