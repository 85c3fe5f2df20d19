"""Where a run's settings come from: what is recommended for its method, the paper's values, or a settings file.

Three layers, the upper ones count: what the method recommends (`Method.recommended`) or, in its place, what its paper
has (`Method.paper`); the settings file (what `auscult tune` writes, or a person); and what is stated for this run. What
none of them names has the default of the method's `Settings`. A run that has begun knows all its settings by itself,
and these defaults do not change, so a recommendation that changes with a version changes no run that is under way.

    [run]
    method = "fedslr"           # optional, as are all: refused for a run of another method
    rounds = 60
    [run.settings]
    eta_l = 0.03
    [run.settle]
    optimiser = "adam"
    [run.augment]
    rotation = 0.25
    [run.robust]
    rule = "median"
    [run.uploads]
    bits = 4
    [run.privacy]
    clip = 1.0
    epsilon = 8.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.contract.search import overlaid
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.nodes.configuration.settings import read_toml

PAPER, RECOMMENDED, PLAIN, STATED = "paper", "recommended", "plain", "stated"
"""Sources of settings that are no file. "plain": what is recommended for the method, and nothing that is for the model;
"stated": what is stated for the run, and the method's defaults."""
PRESETS = (RECOMMENDED, PLAIN, PAPER, STATED)
METHOD, ROUNDS = "fedslr", 30
"""Method and number of rounds of a run that names none."""


@dataclass(frozen=True, kw_only=True)
class SettingsTable:
    """What a settings file says of a run. Each key has the meaning that it has in an aggregator's [run]."""

    method: str | None = None
    rounds: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    settle: dict[str, Any] = field(default_factory=dict)
    augment: dict[str, Any] = field(default_factory=dict)
    robust: dict[str, Any] = field(default_factory=dict)
    uploads: dict[str, Any] = field(default_factory=dict)
    privacy: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SettingsFile:
    """A settings file: one table [run]."""

    run: SettingsTable = field(default_factory=SettingsTable)


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A run's method and settings, all layers together."""

    method: str
    rounds: int
    settings: Mapping[str, Any]
    settle: Mapping[str, Any]
    augment: Mapping[str, Any]
    robust: Mapping[str, Any]
    uploads: Mapping[str, Any]
    privacy: Mapping[str, Any]


def complete(source: str, stated: SettingsTable, base: Path = Path()) -> Completed:
    """Lays what is stated for a run over what its source says.

    Args:
        source: one of PRESETS, or the path of a settings file.
        stated: None and empty tables: nothing is.
        base: folder that a relative path begins at.

    Raises:
        UsageError: the file cannot be read, or it is for another method.
    """
    from_file = SettingsTable() if source in PRESETS else read_settings(base / source)
    method = stated.method or from_file.method or METHOD
    if from_file.method not in (None, method):
        raise UsageError(f"{source}: is for method {from_file.method}, and the run's is {method}")
    own = overlaid(from_file.settings, stated.settings)
    return Completed(
        method=method,
        rounds=stated.rounds if stated.rounds is not None else from_file.rounds or ROUNDS,
        settings=overlaid(preset_of(method, source), own),
        settle=overlaid(from_file.settle, stated.settle),
        augment=overlaid(from_file.augment, stated.augment),
        robust=overlaid(from_file.robust, stated.robust),
        uploads=overlaid(from_file.uploads, stated.uploads),
        privacy=overlaid(from_file.privacy, stated.privacy),
    )


def preset_of(method: str, which: str) -> Mapping[str, Any]:
    """Settings by which a preset differs from a method's defaults.

    Args:
        method: one that there is not has none, and is refused when the run is made.
        which: "paper"; "stated", which has none; of any other source, what is recommended.
    """
    if method not in METHODS or which == STATED:
        return {}
    return METHODS[method].paper if which == PAPER else METHODS[method].recommended


def read_settings(path: Path) -> SettingsTable:
    """Reads a settings file.

    Raises:
        UsageError: it cannot be read, or something in it is wrong.
    """
    if path.suffix != ".toml" and not path.is_file():
        raise UsageError(f"{path}: no settings; expected {', '.join(PRESETS)}, or a TOML file with a table [run]")
    return read_toml(path, SettingsFile).run
