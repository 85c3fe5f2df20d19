"""What an aggregator keeps to itself: a pretrained model, the data it was made with, and how hard they pull.

This is the [private] table of an aggregator's settings file. It is no part of a run, which goes to every node, and
nothing in it is in any message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError

REGULARISERS = ("l2", "crd", "kd")


@dataclass(frozen=True, kw_only=True)
class Private:
    """A regulariser lambda R_h(theta, theta_p) of the global model.

    Attributes:
        weight: lambda. 0: there is no regulariser, and none of these files is opened.
        regulariser: "l2" (squared distance of the parameters, where the architectures are the same), "crd"
            (contrastive distillation of features), "kd" (of softened outputs), or one's own as FILE.py:NAME or
            package.module:NAME, a function of an `aggregator.private_model.regulariser.ComparedBatch`.
        model: a torch checkpoint.
        architecture: of its module: FILE.py:NAME or package.module:NAME of a class, or one of the zoo, where the
            checkpoint does not say it.
        arguments: to build that class with.
        features: name of the layer whose input are the features; "": the last linear one.
        data: NPZ file with x (N, *input) and, for regularisers that want them, y (N,): what the models are compared on.
        every: "pass": R_h is the mean over one pass of the data; "batch": over one batch, another in each round.
        batch: samples at once.
        options: of the regulariser.
        reserved: the first so many training samples of a data set, or the last so many traces of a folder, are the
            aggregator's: a replay gives them to nobody.
    """

    weight: float
    regulariser: str = "crd"
    model: Path | None = None
    architecture: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    features: str = ""
    data: Path | None = None
    every: str = "pass"
    batch: int = 128
    options: dict[str, Any] = field(default_factory=dict)
    reserved: int = 0

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and self.weight >= 0):
            raise UsageError(f"weight = {self.weight}: a number, 0 or more")
        if self.regulariser not in REGULARISERS and ":" not in self.regulariser:
            known = ", ".join(REGULARISERS)
            raise UsageError(f"regulariser = {self.regulariser!r}: one of {known}, or one's own as FILE.py:NAME")
        if self.every not in ("pass", "batch"):
            raise UsageError(f"every = {self.every!r}: pass or batch")
        if self.batch < 2:
            raise UsageError(f"batch = {self.batch}: at least 2, so that a sample has others to differ from")
        if self.reserved < 0:
            raise UsageError(f"reserved = {self.reserved}: how many samples, or 0 for none")
        if self.weight:
            self.check_files()

    def check_files(self) -> None:
        needed: Mapping[str, Path | None] = {"model": self.model}
        if self.regulariser != "l2":
            needed = {**needed, "data": self.data}
        for key, path in needed.items():
            if path is None:
                raise UsageError(f"{key} is missing: regulariser {self.regulariser!r} needs it")
            if not path.is_file():
                raise UsageError(f"{key} = {str(path)!r}: there is no such file")


def private_table(private: Private) -> dict[str, Any]:
    """The table for a settings file in any folder: its paths are absolute."""
    return {key: value.resolve() if isinstance(value, Path) else value for key, value in asdict(private).items()}


def takes_private(env: type) -> bool:
    """True if the aggregator of a method with this env can be given a regulariser."""
    return bool({"regulariser", "smooth_grad"} & {f.name for f in fields(env)})
