"""What clients would reach alone, when a simulation is over: by their network, and by the strongest neighbour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from edge_sdk.model.tasks.task import OneClass, Reconstruction
from edge_sdk.nodes.configuration.assembly import augmentation_of
from edge_sdk.nodes.evaluation.output_scores import Sums, judge_training_alone
from edge_sdk.replay.anomalies.neighbours import look_for_detectors
from edge_sdk.replay.neighbours.look import NeighbourSource, Parts, Seen, look_round
from edge_sdk.replay.neighbours.output_models import look_for_output_models
from edge_sdk.replay.planning.plan import is_split
from edge_sdk.replay.result import natural
from edge_sdk.simulation.runs.node_envs import Envs
from edge_sdk.simulation.runs.plan import Say, Simulation
from edge_sdk.simulation.runs.result import with_alone


def find_neighbours(job: Simulation, envs: Envs, written: Mapping[str, dict[str, Any]], say: Say) -> Seen:
    """What clients would reach alone with their best model, and all data in one place; of values and sets of labels
    under "alone", too, what each one's network reaches."""
    prepared, most, seed = envs.prepared, job.replay.neighbours, job.replay.seed
    population, task = prepared.population, prepared.task

    def parts(name: str) -> Parts:
        data = population.data(name)
        x, y = data.train
        judged = data.judged_parts().get("test", data.held_out)
        return data.train, (x[:0], y[:0]) if data.validation is None else data.validation, judged

    judged: list[dict[str, Any]] = [{**written[name], "newcomer": False} for name in sorted(written, key=natural)]
    if not isinstance(task, OneClass):
        alone = train_alone(envs, [d["device"] for d in judged][:most], say) if most else {}
        own = [with_alone(d, alone) for d in judged]
        if isinstance(task, Reconstruction):
            told, rows = look_for_detectors(task, parts, own, most, seed, say)
        else:
            told, rows = look_for_output_models(task, parts, own, most, seed, say)
        return {"told": told, "rows": rows, "alone": alone}
    source = NeighbourSource(
        parts=parts,
        written=judged,
        fleet=[name for names in population.tree.values() for name in names],
        bundle=population.bundle(next(iter(population.tree))),
        classes=len(prepared.run.classes),
        how=augmentation_of(prepared.run),
        split=is_split(job.replay),
        alone=True,
    )
    return look_round(source, most, seed, say)


def train_alone(envs: Envs, names: Sequence[str], say: Callable[[str], None]) -> dict[str, dict[str, Sums]]:
    """Trains the network of each of some clients on its own samples, of those that have some to choose by, as the
    devices of a replay do.

    Returns:
        Client -> part -> sums of scores of its network.
    """
    found: dict[str, dict[str, Sums]] = {}
    say(f"{len(names)} clients find out what their network would have reached alone (--no-neighbours: not)")
    for name in names:
        data = envs.prepared.population.data(name)
        judged = data.judged_parts()
        if "validation" in judged:
            env, model = replace(envs.apart(name), me=name), envs.model(name, "device")
            test = judged.get("test", data.held_out)
            found[name] = judge_training_alone(env, envs.prepared.run, model, judged["validation"], test)
    return found
