"""A whole run in memory: the roles, kernels and data of a replay, without processes, broker and disk.

All nodes are in this process and pass messages through a queue, so a run takes as long as its training. What a device
computes, it computes from the same files with the same functions as in a replay, and sums are exact whatever arrives
first: the accuracies are those of the replay, to the bit.

Test samples are dropped where a device's samples are read, before any node is made. No node here has any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edge_sdk.contract import node as nodes
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of, unlabelled_of
from edge_sdk.data.patients import Patients, patients_of
from edge_sdk.data.public_inputs import Public, read_public
from edge_sdk.data.samples import Samples, Stored, Unlabelled
from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.evaluation.evaluation import Scores
from edge_sdk.methods.shared.evaluation.reports import sums_on_validation
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.model import Model
from edge_sdk.model.split_model import load_model
from edge_sdk.model.tasks.task import ModelTask, Task
from edge_sdk.nodes.configuration.assembly import (
    augmentation_of,
    family_of,
    make_assembly,
    make_env,
    method_of,
    settings_of,
    with_bundle,
)
from edge_sdk.nodes.configuration.tasks import check_task
from edge_sdk.nodes.daemon.device_file import find_normaliser
from edge_sdk.nodes.kernels.family import AggregatorParts, DeviceParts, HospitalParts
from edge_sdk.nodes.kernels.labels import listed_of, wants_unlabelled
from edge_sdk.nodes.kernels.split import split_model
from edge_sdk.nodes.models.working_model import PREFERRED
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.nodes.node_files import CLOUD, NodeFiles, prepare_files
from edge_sdk.replay.planning.bundles import choose_bundles
from edge_sdk.replay.planning.plan import Replay, asked_options, is_split, members_of, plan_run
from edge_sdk.replay.result import mean, natural
from edge_sdk.replay.tuning.scores import own_scores

Say = Callable[[str], None]
Kernels = Callable[[type], Mapping[str, Any]]
"""Type of an env -> the aggregator's kernels for it: `aggregator.kernels.kernels_for`."""


@dataclass(frozen=True)
class TuningFleet:
    """Everything of a run but its settings, read once for all trials.

    Attributes:
        run: as an aggregator would announce it, but for its settings.
        task: what the models predict.
        tree: hospital -> its devices that take part in training.
        files: of all nodes.
        samples: device -> its training and its validation samples.
        unlabelled: device -> its samples without a label, in a run that uses them.
        patients: hospital -> what it holds of these, where a model is divided between the two.
        models: bundle file -> its model.
        public: the public inputs; None: there are none.
        kernels: of the aggregator.
    """

    run: Run
    task: Task
    tree: Mapping[str, tuple[str, ...]]
    files: NodeFiles
    samples: Mapping[str, tuple[Samples, Samples]]
    unlabelled: Mapping[str, Unlabelled]
    patients: Mapping[str, Patients]
    models: Mapping[Path, Model]
    public: Public | None
    kernels: Kernels


@dataclass(frozen=True)
class Judged:
    """What a run has reached on validation samples.

    Attributes:
        accuracy: mean over devices, each with the model by which it predicts; of values and sets of labels another
            score, see scores.py.
        devices: device -> model -> accuracy, or that score.
    """

    accuracy: float
    devices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


# Before all trials ----------------------------------------------------------------------------------------------
def prepare(job: Replay, kernels: Kernels, say: Say) -> TuningFleet:
    """Reads the data, and compiles or finds the model.

    Args:
        job: its directory `out` takes the files of samples.

    Raises:
        UsageError: something named cannot be used, or there is nothing to tune on.
    """
    if job.private is not None:
        raise UsageError("--private: an aggregator's own model is not tuned with; state what was found in its file")
    cohort = form_cohort(str(job.data), job.hospitals, job.seed, asked_options(job), is_split(job))
    say(cohort.summary)
    for note in cohort.notes:
        say(note)
    run = plan_run(job, cohort)
    bundles = choose_bundles(str(job.data), job.bundle, cohort, job.seed, say, bool(family_of(run).own_bundles))
    bundle = read_bundle(bundles[0])
    check_task(run, bundle, method_of(run).kernels)
    files, tree = prepare_files(job, run, cohort, bundles), members_of(job, cohort)
    samples = {
        name: without_test(files.tables[name], files.bundles[name], bundle.task, run.classes)
        for some in tree.values()
        for name in some
    }
    patients = {name: patients_without_test(files.tables[name]) for name in tree if name in files.tables}
    if not any(len(validation) for _, validation in samples.values()):
        raise UsageError("no device has validation samples, which tuning is judged on: give --validation a share")
    public = None if files.public is None else read_public(files.public)
    run = with_bundle(replace(run, public="" if public is None else public.sha256), bundle)
    models = {path: load_model(path) for path in bundles}
    return TuningFleet(
        run=run,
        task=bundle.task,
        tree=tree,
        files=files,
        samples=samples,
        unlabelled=read_unlabelled(run, files, tree),
        patients=patients,
        models=models,
        public=public,
        kernels=kernels,
    )


def read_unlabelled(run: Run, files: NodeFiles, tree: Mapping[str, tuple[str, ...]]) -> dict[str, Unlabelled]:
    """Device -> its samples without a label; nothing where the run does not use them."""
    names = [name for some in tree.values() for name in some] if wants_unlabelled(run) else []
    found = {name: unlabelled_of(where(files.tables[name]), find_normaliser(files.bundles[name])) for name in names}
    return {name: loose for name, loose in found.items() if loose is not None}


def where(table: Mapping[str, Any]) -> Cut | Stored:
    """Where the samples of a [data] table are."""
    return Stored(**table) if "samples" in table else Cut(**table)


def without_test(
    table: Mapping[str, Any], bundle: Path, task: ModelTask, names: Sequence[str]
) -> tuple[Samples, Samples]:
    """Training and validation samples that a [data] table names; the test part goes no further than here.

    Args:
        names: of the run; what its models may not be trained on is left out, where the task needs no labels.
    """
    found = samples_of(where(table), find_normaliser(bundle))
    train, validation = found.train, found.validation or Samples(found.train.x[:0], ())
    return listed_of(train, task, names), listed_of(validation, task, names)


def patients_without_test(table: Mapping[str, Any]) -> Patients:
    """A hospital's features of its devices' training and validation samples."""
    found = patients_of(Path(table["samples"]))
    return replace(found, held_out=found.held_out[:0], held_out_devices=())


# One trial ------------------------------------------------------------------------------------------------------
def play(fleet: TuningFleet, settings: Mapping[str, Any]) -> Judged:
    """Plays a run with these settings, and tells what its devices' models reach on validation samples.

    Raises:
        UsageError: a setting cannot be used.
    """
    heard = Network(fleet, replace(fleet.run, settings=settings)).play()
    accuracies = {name: own_scores(sums_on_validation(sums)) for name, sums in heard.items()}
    return Judged(mean_of_own(accuracies), accuracies)


def mean_of_own(accuracies: Mapping[str, Mapping[str, float]]) -> float:
    """The mean over devices, each with the model that it predicts with, in the order in which a replay adds up."""
    own = [own_accuracy(found) for _, found in sorted(accuracies.items(), key=lambda item: natural(item[0])) if found]
    total = mean(own)
    if total is None:
        raise UsageError("no device has judged a model: the run has ended without an evaluation")
    return total


def own_accuracy(found: Mapping[str, float]) -> float:
    """The accuracy of the model that a device predicts with. `found`: model -> accuracy, one or more."""
    return next(found[model] for model in PREFERRED if model in found)


class Network(Loopback):
    """All nodes of a run, which forget what has happened; only each device's last scores are kept."""

    def __init__(self, fleet: TuningFleet, run: Run) -> None:
        envs = make_envs(fleet, run)
        super().__init__(method_of(run), fleet.tree, envs, faults=NetworkFaults(repeat=0.0), root=CLOUD)
        tiers = {CLOUD: "aggregator", **dict.fromkeys(fleet.tree, "hospital")}
        self.scores: dict[str, Mapping[str, float]] = {}
        for name, old in self.nodes.items():
            parts = make_assembly(run, tiers.get(name, "device"), envs[name])
            self.nodes[name] = nodes.new(name, parts.role, parts.env, old.parent, parts.policy, 0.0, old.here)

    def play(self) -> dict[str, Mapping[str, float]]:
        """Device -> its last scores."""
        self.run()
        return self.scores

    def commit(self, name: str, done: nodes.Effects, now: float) -> None:
        super().commit(name, done, now)
        self.scores |= {who: message.sums for who, message in self.transcript.told if isinstance(message, Scores)}
        self.transcript = type(self.transcript)(time=now)


def make_envs(fleet: TuningFleet, run: Run) -> dict[str, NodeEnv]:
    """Node -> what it is given."""
    found = {CLOUD: aggregator_env(fleet, run)}
    found |= {hospital: hospital_env(fleet, run, hospital) for hospital in fleet.tree}
    return found | {name: device_env(fleet, run, name) for devices in fleet.tree.values() for name in devices}


def aggregator_env(fleet: TuningFleet, run: Run) -> NodeEnv:
    path, sizes = fleet.files.bundles[next(iter(fleet.tree))], {h: len(d) for h, d in fleet.tree.items()}
    parts = AggregatorParts(
        run=run,
        bundle=read_bundle(path),
        hospitals=sizes,
        companions={h: len(some) for h, some in fleet.files.companions.items()},
        public=fleet.files.public,
    )
    given = {**fleet.kernels(method_of(run).env), **family_of(run).for_aggregator(parts)}
    return make_env(run, fleet.models[path].layout, fleet.models[path].theta0, sizes=sizes, **given)


def hospital_env(fleet: TuningFleet, run: Run, name: str) -> NodeEnv:
    model, own = fleet.models[fleet.files.bundles[name]], tuple(fleet.files.companions.get(name, ()))
    patients = fleet.patients.get(name)
    own_model = None if patients is None else split_model(model)
    parts = HospitalParts(run=run, whose=f"hospital {name}", model=own_model, companions=own, patients=patients)
    given = family_of(run).for_hospital(parts)
    return make_env(run, model.layout, model.theta0, sizes=dict.fromkeys(fleet.tree[name], 1), **given)


def device_env(fleet: TuningFleet, run: Run, name: str) -> NodeEnv:
    model, whose = fleet.models[fleet.files.bundles[name]], f"device {name}"
    (train, validation), loose = fleet.samples[name], fleet.unlabelled.get(name)
    parts = DeviceParts(
        run=run,
        settings=settings_of(run),
        whose=whose,
        model=model,
        x=train.x,
        y=fleet.task.targets(train.labels, run.classes, whose, train.x),
        validation=(validation.x, fleet.task.targets(validation.labels, run.classes, whose, validation.x)),
        unlabelled=None if loose is None else (loose.x, loose.recording),
        augment=augmentation_of(run),
        public=fleet.public,
    )
    return make_env(run, model.layout, model.theta0, walked={}, **family_of(run).for_device(parts))
