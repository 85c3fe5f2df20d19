"""What is simulated, as the command line says it, and what is known of it before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.data.public_inputs import Public, read_public, store_public
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle, read_bundle
from edge_sdk.model.split_model import input_shapes
from edge_sdk.model.tasks.task import CLASS, Task
from edge_sdk.nodes.configuration.assembly import family_of, method_of, settings_of, with_bundle
from edge_sdk.nodes.configuration.tasks import check_task
from edge_sdk.nodes.kernels.labels import wants_unlabelled
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.cohorts.datasets import Dealing
from edge_sdk.replay.cohorts.form import check_options, form_cohort
from edge_sdk.replay.cohorts.ready import is_ready
from edge_sdk.replay.network_choice import with_chosen_network
from edge_sdk.replay.nodes.node_files import NodeFiles, copy_bundles, prepare_files
from edge_sdk.replay.planning.bundles import choose_bundles
from edge_sdk.replay.planning.plan import Replay, asked_options, data_options, is_split, members_of, plan_run
from edge_sdk.replay.planning.recommended import recommended
from edge_sdk.replay.result import describe_scores
from edge_sdk.simulation.clients.behaviour import Behaviour
from edge_sdk.simulation.clients.bootstrap import BootstrappedClients
from edge_sdk.simulation.clients.drawn import DrawnClients, make_pools
from edge_sdk.simulation.clients.numbered import NumberedClients, make_tree, number_of
from edge_sdk.simulation.clients.population import Population, StoredPopulation
from edge_sdk.simulation.processes.ranks import OneRank, Ranks
from edge_sdk.simulation.training.epochs import CALLS, EPOCH

Say = Callable[[str], None]
LARGE = 1000
"""Clients from which on only so many of them judge models, where nothing is said."""
TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What to simulate.

    Attributes:
        replay: the run, its data and its directory.
        clients: how many; each draws its samples from the data set, or bootstraps its windows from one of the recorded
            devices; 0: the devices of the replay.
        cohort: clients that are asked in a round; 0: as the method's settings have it.
        judges: most clients that judge models; None: all, of many LARGE.
        shift: deviation of each client's own offset and scale of its features.
        behaviour: of the clients, on the virtual clock.
        deadline: seconds of that clock after which a hospital goes on without answers that have not come.
        quorum: answers without which it does not.
        targets: accuracies of which it is told when, and after how many bytes, they are reached.
        save_every: seconds between two checkpoints, at most; inf: there are none. See network/checkpoint_pace.py.
        calls: "epoch": a client makes all steps of an epoch in one call of onnxruntime, where that gives the same bits;
            "step": one by one; "cohort": with those of other clients, within rounding of that (training/together.py).
        keep_models: the models of each client that judges them are written into models/, a file for each.
    """

    replay: Replay
    clients: int = 0
    cohort: int = 0
    judges: int | None = None
    shift: float = 0.0
    behaviour: Behaviour = field(default_factory=Behaviour)
    deadline: float = inf
    quorum: int = 0
    targets: tuple[float, ...] = TARGETS
    save_every: float = 30.0
    calls: str = EPOCH
    keep_models: bool = False

    def __post_init__(self) -> None:
        for name in ("clients", "cohort", "quorum"):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name} {getattr(self, name)}: 0 or more")
        if self.judges is not None and self.judges < 1:
            raise UsageError(f"--judges {self.judges}: at least 1")
        if not self.deadline > 0:
            raise UsageError(f"--deadline {self.deadline}: seconds, above 0")
        if not self.shift >= 0:
            raise UsageError(f"--shift {self.shift}: 0 or more")
        if self.shift and not self.clients:
            raise UsageError("--shift is for clients that draw their samples: give --clients")
        if not all(0 < target <= 1 for target in self.targets):
            raise UsageError(f"--target {', '.join(map(str, self.targets))}: shares between 0 and 1")
        if self.behaviour.drop and self.deadline == inf:
            raise UsageError(
                "behave: drop, without a deadline: a round would wait for ever for answers that never come"
            )
        if self.calls not in CALLS:
            raise UsageError(f"--calls {self.calls}: one of {', '.join(CALLS)}")
        if self.replay.uploads.get("secret"):
            raise UsageError(
                "--secret: a simulation has no hospitals to hide from; --uploads unopened=true is the same"
            )
        if self.replay.private is not None:
            raise UsageError("--private: a simulation has none; replay the run")


@dataclass(frozen=True)
class Prepared:
    """A simulation that could begin.

    Attributes:
        job: with what is recommended for these data.
        run: as an aggregator would announce it.
        cohort: who takes part, for the report.
        population: what clients hold.
        task: what the models predict.
        public: the public inputs; None: there are none.
        draws: clients that are there in a round, where the method itself asks all of them; 0: all.
        recorded: devices that the clients are bootstrapped from, client i from number i modulo their count; none: they
            are not.
    """

    job: Simulation
    run: Run
    cohort: Cohort
    population: Population
    task: Task
    public: Public | None
    draws: int
    recorded: tuple[str, ...] = ()


def prepare(job: Simulation, say: Say, ranks: Ranks | None = None) -> Prepared:
    """Reads the data, chooses the model, and plans the run.

    Args:
        ranks: that all do it; None: this process alone.

    Raises:
        UsageError: something named cannot be used. AuscultError: a network that was tried has failed.
    """
    say(f"reading {job.replay.data}")
    with named_predict():
        made = make_clients(job) if job.clients else None
        cohort = form_stored(job) if made is None else made.cohort
    if made is not None and cohort.task is not None and not cohort.task.needs_labels:
        raise UsageError(f"--clients: task {cohort.task.kind} is for the devices of a folder; leave --clients out")
    say(cohort.summary)
    asked, (advised, notes) = job.replay, recommended(job.replay, cohort)
    job = replace(job, replay=advised)
    for note in (*cohort.notes, *notes):
        say(note)
    run, draws = with_cohort(job, plan_run(job.replay, cohort), len(cohort.devices))
    if made is None and not asked.bundle:
        job = replace(job, replay=with_shared_choice(job.replay, cohort, say, ranks or OneRank()))
    several = bool(family_of(run).own_bundles)
    with named_predict():
        named = choose_bundles(str(job.replay.data), job.replay.bundle, cohort, job.replay.seed, say, several)
    bundle = read_bundle(named[0])
    check_task(run, bundle, method_of(run).kernels)
    check_targets(job, bundle.task)
    bundles = keep_bundles(job, named)
    population: Population
    if made is None:
        files = prepare_files(job.replay, run, cohort, bundles)
        population = StoredPopulation(files, members_of(job.replay, cohort), run, bundle.task)
    else:
        population, files = made, files_of(job, run, cohort, bundles)
        made.unlabelled, made.task = wants_unlabelled(run), bundle.task
        made.use(files, bundles, input_shapes(bundle))
    public = None if files.public is None else read_public(files.public)
    run = with_bundle(replace(run, public="" if public is None else public.sha256), bundle)
    if words := describe_scores(run, bundle.task):
        say(words)
    return Prepared(job, run, cohort, population, bundle.task, public, draws, () if made is None else made.recorded)


@contextmanager
def named_predict() -> Iterator[None]:
    """Errors about the values that are predicted name the option by which a simulation is told: --predict, for its
    --target are accuracies, while that of a replay are values."""
    try:
        yield
    except UsageError as error:
        raise UsageError(str(error).replace("--target", "--predict")) from error


def check_targets(job: Simulation, task: Task) -> None:
    """Raises UsageError if it is to be told when shares are reached, and the scores of models are none."""
    if job.targets != TARGETS and task.kind != CLASS and not task.histograms:
        given = ", ".join(map(str, job.targets))
        raise UsageError(f"--target {given}: shares of right samples; a model of {task.in_words()} has errors")


def with_shared_choice(job: Replay, cohort: Cohort, say: Say, ranks: Ranks) -> Replay:
    """The job with the network that does best on its data: rank 0 tries them, and tells the others."""
    if ranks.number == 0:
        job = with_chosen_network(job, cohort, say)
        ranks.tell(json.dumps([str(path) for path in job.bundle]).encode())
        return job
    told: list[str] = json.loads(ranks.tell(b""))
    return replace(job, bundle=tuple(map(Path, told)))


def form_stored(job: Simulation) -> Cohort:
    """The cohort of the replay of this run."""
    r = job.replay
    return form_cohort(str(r.data), r.hospitals, r.seed, asked_options(r), is_split(r))


def make_clients(job: Simulation) -> NumberedClients:
    """Clients in any number: bootstrapped from a folder of traces where there is one of that name, else drawn.

    Raises:
        UsageError: an option makes no sense.
    """
    if job.replay.newcomers:
        raise UsageError("--newcomers: with --clients nobody has a name beforehand")
    return bootstrap_clients(job) if Path(job.replay.data).is_dir() else draw_clients(job)


def bootstrap_clients(job: Simulation) -> BootstrappedClients:
    """Clients that have the windows of recorded devices.

    Raises:
        UsageError: the traces cannot be read, or an option is for a data set.
    """
    if is_ready(Path(job.replay.data)):
        raise UsageError(f"--clients: {job.replay.data} has samples that are ready, and its devices are the clients")
    if job.shift:
        raise UsageError("--shift: a client has the features of the person whose trace it is; name a data set")
    tree = make_tree(job.clients, job.replay.hospitals)
    return BootstrappedClients(form_stored(job), tree, job.replay.seed)


def draw_clients(job: Simulation) -> DrawnClients:
    """Clients that draw their samples from a data set.

    Raises:
        UsageError: an option makes no sense.
    """
    r = job.replay
    options = check_options(Dealing, data_options(r), "a folder of traces", str(r.data))
    how = Dealing(**{"deal": "iid", **options})
    tree = make_tree(job.clients, r.hospitals)
    return DrawnClients(make_pools(str(r.data), r.seed, how, is_split(r)), tree, how, job.shift, r.seed)


def with_cohort(job: Simulation, run: Run, devices: int) -> tuple[Run, int]:
    """The run in which so many clients are asked in a round; and how many may be there, where it asks all of them."""
    run = replace(run, deadline=job.deadline, quorum=job.quorum)
    if not job.cohort:
        return run, 0
    if job.cohort > devices:
        raise UsageError(f"--cohort {job.cohort}: there are {devices} clients")
    if "participation" not in {f.name for f in fields(settings_of(run))}:
        return run, job.cohort
    return replace(run, settings={**run.settings, "participation": job.cohort / devices}), 0


def keep_bundles(job: Simulation, named: tuple[Path, ...]) -> tuple[Path, ...]:
    """Copies of the bundles beside the results; those of before, where the run goes on."""
    out = job.replay.out
    out.mkdir(parents=True, exist_ok=True)
    return copy_bundles(named, out)


def files_of(job: Simulation, run: Run, cohort: Cohort, bundles: tuple[Path, ...]) -> NodeFiles:
    """The files of clients that draw their samples: bundles, which of them are companions, and the public inputs."""
    public = None
    if cohort.public is not None:
        public = store_public(job.replay.out / "data" / "public.npz", cohort.public).resolve()
    apart = [read_bundle(path).sha256 != first_bundle(bundles).sha256 for path in bundles]
    companions = {h: [c for c in names if apart[number_of(c) % len(bundles)]] for h, names in cohort.tree.items()}
    own = {h: bundles[0] for h in cohort.tree}
    return NodeFiles(own, companions if family_of(run).companions else {}, {}, public)


def first_bundle(bundles: tuple[Path, ...]) -> Bundle:
    """The bundle that a run names."""
    return read_bundle(bundles[0])


def default_hospitals(clients: int) -> int:
    """Hospitals of a run that names no number: three, and of many clients one for every ten thousand."""
    return max(3, -(-clients // 10_000))


def judges_of(job: Simulation, devices: int) -> int:
    """Number of clients that judge models; 0: all."""
    wanted = (LARGE if job.clients > LARGE else 0) if job.judges is None else job.judges
    return 0 if wanted >= devices else wanted


def describe(job: Simulation) -> Mapping[str, Any]:
    """What decides the result beside the run, in JSON's types."""
    return {
        "clients": job.clients,
        "cohort": job.cohort,
        "judges": job.judges,
        "shift": job.shift,
        "behaviour": {f.name: getattr(job.behaviour, f.name) for f in fields(job.behaviour)},
        "deadline": None if job.deadline == inf else job.deadline,
        "quorum": job.quorum,
    }


def origin(prepared: Prepared) -> Mapping[str, Any]:
    """Recorded devices that clients are bootstrapped from, in JSON's types; empty where they are not."""
    return {"recorded": list(prepared.recorded)} if prepared.recorded else {}
