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
HEX = re.compile(r"[0-9a-f]{0,64}")
ROLLOUT = "rollout"
"""Method of a run that brings a version to devices, in place of training one."""
TEXT = 200  # characters of a name that is only shown, at most
CLASSES = 10_000
DEVICES = 10_000
MOST = 2**63 - 1
UP = "up"  # the parent
DOWN = "down"  # every child that is here
ME = "me"  # this node, after its other messages have left: work to do while the children work
OUT = "out"  # the application on this node: results and scores
RESERVED_NAMES = frozenset({UP, DOWN, ME, OUT, "all"})
"""To whom roles send; no node has such a name."""


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
        robust: rules in place of plain sums, see `methods.robust`; empty: sums are plain.
        uploads: how vectors travel as integers, see `methods.integers`; empty: as floats.
        privacy: noise that devices add to uploads, see `methods.integers.vectors.privacy`; empty: they add none.
        evaluate_every: rounds between evaluations on all devices; 0: only at the end.
        deadline: seconds after which a hospital goes on without the devices that have not answered; inf: it waits for
            all that it has asked.
        measured: hospitals derive their deadlines from the times that their rounds take (children/patience.py);
            `deadline` is that of a question of which none has been answered yet.
        quorum: devices without which a hospital's round does not end at the deadline; where fewer are asked, all.
        devices: names of those that it is for; empty: for all devices that its hospitals have for its bundle.
        signed: the operator's signature under all this but how long is waited, see wire/signatures.py; empty: none.

    >>> Run(id="run-1", method="fedavg", rounds=20, classes=("sit", "walk")).rounds
    20
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
    measured: bool = False
    quorum: int = 0
    robust: Mapping[str, Any] = field(default_factory=dict)
    uploads: Mapping[str, Any] = field(default_factory=dict)
    signed: Mapping[str, Any] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check types too: a run may come from a peer."""
        checked_name(self.id, "run id")
        check_text("method", self.method, TEXT)
        check_count("rounds", self.rounds, 1, "a run has at least 1")
        check_count("seed", self.seed, 0, "it is 0 or more")
        check_count("evaluate_every", self.evaluate_every, 0, "it is 0 (only at the end) or more")
        for name in ("bundle", "public"):
            if not isinstance(value := getattr(self, name), str) or not HEX.fullmatch(value):
                raise UsageError(
                    f"{name} = {short(value)}, expected the sha256 of a file in hexadecimal digits, or none"
                )
        if type(self.deadline) not in (int, float) or not self.deadline > 0:
            raise UsageError(f"deadline = {short(self.deadline)}, it is in seconds and above 0")
        if type(self.measured) is not bool:
            raise UsageError(f"measured = {short(self.measured)}, expected true or false")
        check_count("quorum", self.quorum, 0, "it counts devices: 0 or more")
        for name in ("settings", "settle", "augment", "robust", "uploads", "signed", "privacy"):
            check_table(name, getattr(self, name))
        check_classes(self.classes)
        check_named(self.devices)


def short(value: Any) -> str:
    """The beginning of a value, as an error shows it."""
    try:
        text = ascii(value[:40] if isinstance(value, (str, bytes, list, tuple)) else value)
    except RecursionError:
        text = f"a {type(value).__name__} of many within each other"
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_text(name: str, value: Any, longest: int) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise UsageError(f"{name} = {short(value)}, expected a text of 1 to {longest} printable characters")


def check_table(name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or any(not isinstance(key, str) for key in value):
        raise UsageError(f"{name} = {short(value)}, expected a table of named values")


def check_count(name: str, value: Any, least: int, otherwise: str) -> None:
    if type(value) is not int or not least <= value <= MOST:
        raise UsageError(f"{name} = {short(value)}, {otherwise}, and a whole number below 2^63")


def check_classes(classes: Any) -> None:
    if not isinstance(classes, tuple) or len(classes) > CLASSES:
        raise UsageError(f"classes = {short(classes)}, expected a list of at most {CLASSES} names")
    for name in classes:
        check_text("classes", name, TEXT)
    if len(set(classes)) < len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise UsageError(f"classes: {short(twice)} is named twice")


def check_named(devices: Any) -> None:
    """Raises UsageError for devices that are no list of names, or too long a one."""
    if not isinstance(devices, tuple) or len(devices) > DEVICES:
        raise UsageError(f"devices = {short(devices)}, expected a list of at most {DEVICES} names")
    for name in devices:
        checked_name(name, "devices")
    if len(set(devices)) < len(devices):
        twice = next(name for name in devices if devices.count(name) > 1)
        raise UsageError(f"devices: {short(twice)} is named twice")


def checked_name(name: str, what: str) -> str:
    """A name that may become a topic, a file and a certificate name."""
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise UsageError(
            f"{what} = {short(name)}: letters, digits, '_', '-' and '.', starting with a letter or digit, at most 64"
        )
    return name
