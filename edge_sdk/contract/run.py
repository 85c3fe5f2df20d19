"""What all nodes of one run agree on. The aggregator has it; it goes down with the first hello."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from edge_sdk.errors import UsageError

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Names of runs and nodes: they become file names, topics and certificate names."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training job.

    Attributes:
        id: its name; a node keeps the state of each run apart.
        method: key of METHODS.
        settings: hyper-parameters of the method that differ from their defaults.
        rounds: global rounds.
        seed: of everything random.
        bundle: sha256 (hex) of the bundle that every device must have, unless the method's models differ.
        public: sha256 (hex) of the file of public inputs that every device must have; "": there are none.
        settle: settings of the settling phase after the last round, see `methods.settling`; empty: there is none.
        augment: how devices change their windows while they train, see `data.augment`; empty: not at all.
        classes: label names in the order of the model's outputs.
        evaluate_every: rounds between evaluations on all devices; 0: only at the end.
        deadline: seconds after which a hospital goes on without the devices that have not answered.
    """

    id: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 1
    seed: int = 0
    bundle: str = ""
    classes: tuple[str, ...] = ()
    evaluate_every: int = 0
    deadline: float = inf
    public: str = ""
    settle: Mapping[str, Any] = field(default_factory=dict)
    augment: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_name(self.id, "run id")
        if self.rounds < 1:
            raise UsageError(f"rounds = {self.rounds}, a run has at least 1")
        if self.seed < 0:
            raise UsageError(f"seed = {self.seed}, it is 0 or more")
        if self.evaluate_every < 0:
            raise UsageError(f"evaluate_every = {self.evaluate_every}, it is 0 (only at the end) or more")
        if not self.deadline > 0:
            raise UsageError(f"deadline = {self.deadline}, it is in seconds and above 0")


def checked_name(name: str, what: str) -> str:
    """A name that may become a topic, a file and a certificate name."""
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise UsageError(
            f"{what} = {name!r}: letters, digits, '_', '-' and '.', starting with a letter or digit, at most 64"
        )
    return name
