"""Who holds what in combination.py: volunteers, two of them companions; public inputs; a private model."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from aggregator.private_model.pretrain import Pretraining, pretrain
from benchmarks.fleet import Fleet
from benchmarks.holders import Holder, drawn, part_of, three_parts
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.data.traces.windows import cut_windows
from edge_sdk.model.model import Model
from edge_sdk.nodes.configuration.private_table import Private
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.replay.planning.bundles import compile_network

WRIST = Path(__file__).parents[1] / "models" / "shipped" / "wrist.bundle"
PRIVATE, COMPANIONS = "m1", ("f3", "m6")
PUBLIC = 256


@dataclass(frozen=True)
class People:
    """Devices of one seed, and the public inputs."""

    fleet: Fleet
    public: Any


@dataclass
class World:
    """Traces, bundles and the private model."""

    folder: Path
    labels: float
    base: Path

    @cached_property
    def model(self) -> Model:
        return Model(WRIST)

    @cached_property
    def other(self) -> Model:
        size = ["--input", "3,64", "--classes", str(self.model.classes), "--seed", "7"]
        return Model(compile_network("separable", size, 7, lambda text: None))

    @cached_property
    def windows(self) -> dict[str, Any]:
        return {trace.name: cut_windows(trace, 64, 32) for trace in load_folder(self.folder)}

    @cached_property
    def private(self) -> Private:
        """Trained on all of one volunteer, who is no device."""
        traces, out = self.base / "traces", self.base / "private"
        traces.mkdir()
        for path in sorted(self.folder.glob("*.csv")):
            shutil.copy(path, traces / (f"z-{path.name}" if path.stem == PRIVATE else path.name))
        found = pretrain(
            Pretraining(data=str(traces), out=out, persons=1, architecture="wrist", epochs=15, device="cpu"),
            lambda text: None,
        )
        print(f"private model: {100 * found['accuracy']:.1f} % of its own held-out windows", file=sys.stderr)
        return replace(read_toml(out / "private.toml", Private), every="batch", regulariser="kd", options={})

    def people(self, seed: int) -> People:
        holders, public = [], []
        for name, w in self.windows.items():
            if len(np.unique(w.y)) < 2:
                public.append(w.x)
            elif name != PRIVATE:
                train, validation, test = three_parts(w)
                some = [drawn(p, self.labels, [seed, k, len(holders)]) for k, p in enumerate((train, validation))]
                holders.append(Holder(name, *some, part_of(test)))
        x = np.concatenate(public)
        rows = np.random.default_rng([seed, 3]).choice(len(x), PUBLIC, replace=False)
        return People(Fleet(self.model, holders), np.ascontiguousarray(x[rows]))
