"""What the nodes of a simulation are given: the same kernels on the same data as in the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.records import changed
from edge_sdk.data.augment import Augment
from edge_sdk.methods.shared.training.local import Gradient
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import SplitModel, load_model
from edge_sdk.nodes.configuration.assembly import (
    augmentation_of,
    check_bundle,
    family_of,
    make_env,
    method_of,
    settings_of,
)
from edge_sdk.nodes.kernels.family import AggregatorParts, DeviceParts, Family, HospitalParts
from edge_sdk.replay.nodes.node_files import CLOUD
from edge_sdk.simulation.runs.plan import Prepared
from edge_sdk.simulation.training.batched_clients import CohortTraining, Steps, make_lockstep
from edge_sdk.simulation.training.epochs import COHORT, EPOCH, EpochGradient, EpochGraphs, TrainingCalls, refusal
from edge_sdk.simulation.training.together import make_training

Kernels = Callable[[type], Mapping[str, Any]]
"""Type of an env -> the aggregator's kernels for it: `aggregator.kernels.kernels_for`."""


@dataclass
class Envs:
    """Envs by the names of nodes. Those of clients are made when they are asked for, from one that all share.

    Args:
        prepared: the simulation.
        kernels: of the aggregator.
        calls: EPOCH: clients make all steps of an epoch in one call, where they can; STEP: each by itself; COHORT: with
            those of other clients.
        trained: what of that they did.
    """

    prepared: Prepared
    kernels: Kernels
    calls: str = EPOCH
    trained: TrainingCalls = field(default_factory=TrainingCalls)
    models: dict[Path, Model] = field(default_factory=dict)
    graphs: dict[Path, EpochGraphs] = field(default_factory=dict)
    shared: dict[Path, NodeEnv] = field(default_factory=dict)
    trainings: dict[Path, CohortTraining | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        run = self.prepared.run
        self.family: Family = family_of(run)
        self.settings, self.augment = settings_of(run), augmentation_of(run)
        self.lockstep = make_lockstep() if self.calls == COHORT else None
        self.sizes = {h: len(names) for h, names in self.prepared.population.tree.items()}

    def __call__(self, name: str) -> NodeEnv:
        if name == CLOUD:
            return self.aggregator()
        return self.hospital(name) if name in self.sizes else self.client(name)

    def model(self, name: str, tier: str) -> Model:
        """The model of a node; loaded, and checked for this run, once for each file."""
        path = self.prepared.population.bundle(name)
        if path not in self.models:
            self.models[path] = load_model(path)
            check_bundle(self.prepared.run, self.models[path].bundle, tier)
        return self.models[path]

    def aggregator(self) -> NodeEnv:
        run, first = self.prepared.run, next(iter(self.sizes))
        model, files = self.model(first, "hospital"), self.prepared.population.files
        parts = AggregatorParts(
            run=run,
            bundle=read_bundle(self.prepared.population.bundle(first)),
            hospitals=self.sizes,
            companions={h: len(some) for h, some in files.companions.items()},
            public=files.public,
        )
        given = {**self.kernels(method_of(run).env), **self.family.for_aggregator(parts)}
        return make_env(run, model.layout, model.theta0, sizes=self.sizes, **given)

    def hospital(self, name: str) -> NodeEnv:
        run, population, model = self.prepared.run, self.prepared.population, self.model(name, "hospital")
        parts = HospitalParts(
            run=run,
            whose=f"hospital {name}",
            model=model if isinstance(model, SplitModel) else None,
            companions=tuple(population.files.companions.get(name, ())),
            patients=population.patients(name),
        )
        sizes = dict.fromkeys(population.tree[name], 1)
        return make_env(run, model.layout, model.theta0, sizes=sizes, **self.family.for_hospital(parts))

    def client(self, name: str) -> NodeEnv:
        path, parts = self.prepared.population.bundle(name), self.parts(name, self.model(name, "device"))
        given = self.family.for_device(parts)
        if self.calls == EPOCH and "grad_fn" in given:
            given["grad_fn"] = self.in_epochs(path, parts, given["grad_fn"])
        if self.lockstep is not None and "grad_fn" in given:
            given["grad_fn"] = self.with_others(path, parts, given["grad_fn"], self.lockstep)
        return changed(self.shared_env(name), **given)

    def apart(self, name: str) -> NodeEnv:
        """A client's env whose steps are made one by one: for training of its own, when the run is over."""
        return changed(self.shared_env(name), **self.family.for_device(self.parts(name, self.model(name, "device"))))

    def shared_env(self, name: str) -> NodeEnv:
        """What all clients with the same bundle have in common."""
        path, model = self.prepared.population.bundle(name), self.model(name, "device")
        if path not in self.shared:
            self.shared[path] = make_env(self.prepared.run, model.layout, model.theta0)
        return self.shared[path]

    def in_epochs(self, path: Path, parts: DeviceParts, grad_fn: Gradient) -> Gradient:
        """A client's gradient that makes many steps in one call; as it is, where its model cannot."""
        if path not in self.graphs:
            self.graphs[path] = EpochGraphs(parts.model, self.trained)
        graphs = self.graphs[path]
        if why := refusal(parts.model):
            self.trained.note(why)
        return grad_fn if why else EpochGradient(grad_fn, graphs, parts.x, parts.y)

    def with_others(self, path: Path, parts: DeviceParts, grad_fn: Gradient, lockstep: Steps) -> Gradient:
        """A client's gradient whose steps are made with those of others; as it is, where its model cannot."""
        if path not in self.trainings:
            self.trainings[path] = make_training(parts.model, self.trained)
        training = self.trainings[path]
        return grad_fn if training is None else training.gradient_type(grad_fn, training, lockstep, parts.x, parts.y)

    def parts(self, name: str, model: Model) -> DeviceParts:
        """What a client's kernels are made of."""
        found = self.prepared.population.data(name)
        augment: Augment = self.augment
        return DeviceParts(
            run=self.prepared.run,
            settings=self.settings,
            whose=f"client {name}",
            model=model,
            x=found.train[0],
            y=found.train[1],
            held_out=found.held_out,
            validation=found.validation,
            unlabelled=found.unlabelled,
            augment=augment,
            public=self.prepared.public,
        )
