"""Training that is broken off between any two mini-batches and goes on from its file: the same result to the bit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.method import UP, NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.errors import Cancelled
from edge_sdk.methods.fedavg import FedavgModel
from edge_sdk.methods.fedslr.messages import FedslrModel
from edge_sdk.methods.settling.equations import component, local_model
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env
from edge_sdk.nodes.device.pace import PROGRESS, TrainingPace
from edge_sdk.nodes.device.progress import CallProgress
from edge_sdk.nodes.policy.budget import TrainingBudget
from tests.methods.settling.problems import LAYOUT, Network, network
from tests.methods.settling.problems import THETA0 as START

THETA0 = START.astype(np.float32)
LOG = logging.getLogger("test")
SETTINGS = {"local_epochs": 2, "batch": 7, "eta_l": 0.1}


class Breaking:
    """Gradients of which the one with a number is the first that is cancelled. Counts those that are made."""

    def __init__(self, problem: Network) -> None:
        self.problem, self.at, self.made = problem, -1, 0

    def __call__(self, theta: Any, indices: Any = None) -> Any:
        if self.made == self.at:
            raise Cancelled("now")
        self.made += 1
        return self.problem(theta, indices)

    def augmented(self, theta: Any, indices: Any, random: np.random.Generator) -> Any:
        noise = random.normal(0, 0.1, self.problem.x.shape)  # drawn before the step is cancelled, as augmentation does
        if self.made == self.at:
            raise Cancelled("now")
        self.made += 1
        return Network(self.problem.x + noise, self.problem.y)(theta, indices)


def problem() -> Network:
    return network(np.random.default_rng(3), (0, 1, 2), 23)


def env_of(run: Run, gradients: Breaking, augments: bool = False) -> NodeEnv:
    given = {"augmented": gradients.augmented} if augments else {}
    env = make_env(run, LAYOUT, THETA0, grad_fn=gradients, samples=23, score=gradients.problem.score, **given)
    return replace(env, me="d")


CASES = {
    "fedavg": (SETTINGS, FedavgModel(lowrank.dense(LAYOUT, THETA0), 3, 1), False),
    "momentum": (SETTINGS | {"momentum": 0.9}, FedavgModel(lowrank.dense(LAYOUT, THETA0), 3, 1), False),
    "augmented": (SETTINGS, FedavgModel(lowrank.dense(LAYOUT, THETA0), 3, 1), True),
    "fedslr": (SETTINGS | {"personal_epochs": 2}, FedslrModel(lowrank.dense(LAYOUT, THETA0), 3, 1, {}), True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_call_that_is_killed_at_every_step_comes_to_the_same(case: str, tmp_path: Path) -> None:
    settings, message, augments = CASES[case]
    run = Run(id="r", method="fedslr" if case == "fedslr" else "fedavg", settings=settings)
    whole = Breaking(problem())
    plain = make_assembly(run, "device", env_of(run, whole, augments))
    state, _ = plain.role.start(plain.env)
    expected = plain.records.encode(plain.role.receive(plain.env, state, UP, message)[1][-1].message)
    made = 0
    for _ in range(whole.made):
        broken = Breaking(problem())
        broken.at = 1  # each process makes one step, and is killed; the last one comes to the end
        pace = TrainingPace(TrainingBudget(keep_every=0.0), "d", tmp_path, log=LOG)
        kept = pace.keep_calls(make_assembly(run, "device", env_of(run, broken, augments)), b"samples")
        try:
            sends = kept.role.receive(kept.env, state, UP, message)[1]
        except Cancelled:
            pace.keep()
        made += broken.made
    assert made == whole.made  # no step was made twice
    assert kept.records.encode(sends[-1].message) == expected


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_settling_goes_on_between_any_two_steps(optimiser: str, tmp_path: Path) -> None:
    run, s = Run(id="r", method="fedavg"), Settling(optimiser=optimiser, batch=7, personal="sparse")
    steps = (0, 2, 5)

    def walks(env: NodeEnv) -> Iterator[Any]:
        yield from (v.copy() for v in component(env, s, THETA0, steps))
        yield from (v.copy() for v in local_model(env, s, steps))

    whole = Breaking(problem())
    expected = list(walks(env_of(run, whole, True)))
    for _ in range(whole.made):
        broken = Breaking(problem())
        broken.at = 1
        progress = CallProgress(tmp_path / PROGRESS, LOG)
        progress.begin_call(lambda: b"key")
        try:
            found = list(walks(replace(env_of(run, broken, True), keeper=progress)))
        except Cancelled:
            progress.save()
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_what_was_saved_counts_for_the_very_same_call_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, v = tmp_path / PROGRESS, np.ones(3, np.float32)

    def begin(key: bytes, array: Any) -> tuple[int, float]:
        progress = CallProgress(path, LOG)
        progress.begin_call(lambda: key)
        return progress.begin([array], None)

    progress = CallProgress(path, LOG)
    progress.begin_call(lambda: b"one")
    progress.begin([v], None)
    progress.note(4, 2.5)
    progress.save()
    other = np.zeros(3, np.float32)
    assert begin(b"one", other) == (4, 2.5) and other.tolist() == [1, 1, 1]
    assert begin(b"two", np.zeros(3, np.float32)) == (0, 0.0)
    assert begin(b"one", np.zeros(4, np.float32)) == (0, 0.0)
    saved = path.read_bytes()
    for damaged in (saved[:-1], b"", bytes([saved[0] ^ 1]) + saved[1:], saved[:9] + b"\xff" + saved[10:]):
        path.write_bytes(damaged)
        caplog.clear()
        assert begin(b"one", np.zeros(3, np.float32)) == (0, 0.0)
        assert "begins anew" in caplog.text
