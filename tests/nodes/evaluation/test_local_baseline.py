"""Training alone as a yardstick: how long, with what, and how the choice is made."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.methods import fedavg, fedrep, scaffold
from edge_sdk.methods.fedbcd.equations import draw_minibatches
from edge_sdk.methods.fedbcd.settings import Env as FedbcdEnv
from edge_sdk.methods.fedbcd.settings import Settings as FedbcdSettings
from edge_sdk.methods.fedslr import method as fedslr
from edge_sdk.methods.shared.training.parts import Parts
from edge_sdk.nodes.evaluation.local_baseline import LEAST, choose_trial, step_grid, train_in_steps

TARGET = np.array([0.5, -0.25], np.float32)
RUN = Run(id="r", method="fedavg")


def env_of(settings=None, samples: int = 30, rounds: int = 4, seen=None, **more):
    def pulled(theta, indices):
        if seen is not None:
            seen.append(None if indices is None else indices.tolist())
        return 0.5 * float(((theta - TARGET) ** 2).sum()), theta - TARGET

    env = fedslr.Env if isinstance(settings, fedslr.Settings) else fedavg.Env
    theta0 = np.zeros(2, np.float32)
    return env(
        me="d", seed=1, rounds=rounds, theta0=theta0, grad_fn=pulled, samples=samples,
        settings=settings or fedavg.Settings(), **more,
    )  # fmt: skip


def test_the_grid_doubles_up_to_as_many_steps_as_the_run_makes():
    assert step_grid(env_of(), RUN) == [25, 50, 100, 200, LEAST]
    long = env_of(fedslr.Settings(batch=10, local_epochs=2, personal_epochs=3, settle_epochs=5), rounds=100)
    assert step_grid(long, RUN)[-1] == (100 * (2 + 3) + 5) * 3, "both phases, and the settling after the last round"
    all_at_once = env_of(fedavg.Settings(batch=0, local_epochs=7), rounds=100)
    assert step_grid(all_at_once, RUN)[-1] == 700
    settles = Run(id="r", method="fedavg", settle={"steps": [0, 900], "local_steps": [100, 500]})
    assert step_grid(env_of(fedavg.Settings(batch=0, local_epochs=1)), settles)[-1] == 904


class Halves(fedrep.Env):
    """One parameter is shared, the other the head."""

    parts = Parts((slice(0, 1),), (slice(1, 2),))  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["fedbcd", "scaffold", "fedrep", "fine-tuned"])
def test_training_alone_makes_at_least_as_many_steps_as_the_device_is_seen_to_make(name):
    seen, theta = [], np.zeros(2, np.float32)

    def counted(theta, indices):
        seen.append(1)
        return 0.0, theta - TARGET

    common = {"me": "d", "seed": 1, "rounds": 12, "theta0": theta, "grad_fn": counted, "samples": 100}
    if name == "scaffold":
        env = scaffold.Env(**common)
        for r in range(env.rounds):
            scaffold.local_update(env, r, theta, theta, theta)
    elif name == "fedbcd":
        env = FedbcdEnv(**common, settings=FedbcdSettings(draw_steps=False, local_steps=10))
        drawn = [b for r in range(env.rounds) for b in draw_minibatches(env, env.settings, r, 10)]
        seen += [1] * len(drawn)  # a gradient for each
    elif name == "fedrep":
        env = Halves(**common)
        for r in range(env.rounds):
            fedrep.alternating_phase(env, r, theta)
    else:
        env = fedavg.Env(**common, settings=fedavg.Settings(batch=10, local_epochs=5, fine_tune_epochs=20))
        for r in range(env.rounds):
            fedavg.client_update(env, r, theta, env.settings.local_epochs, fedavg.TRAINING)
        fedavg.client_update(env, env.rounds, theta, env.settings.fine_tune_epochs, fedavg.FINE_TUNING)
    assert LEAST < len(seen) <= step_grid(env, RUN)[-1]


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_each_checkpoint_is_the_training_so_far(optimiser):
    told: list[int] = []
    models = [m.copy() for m in train_in_steps(env_of(), RUN, optimiser, [1, 5, 400], told.append)]
    again = list(train_in_steps(env_of(), RUN, optimiser, [5], lambda done: None))
    assert told == list(range(1, 401))
    np.testing.assert_array_equal(models[1], again[0])
    errors = [float(np.abs(m - TARGET).max()) for m in models]
    assert errors[0] > errors[1] > errors[2]


def test_the_first_steps_are_those_of_the_optimisers():
    (adam,) = train_in_steps(env_of(), RUN, "adam", [1], lambda done: None)
    np.testing.assert_allclose(adam, 1e-3 * np.sign(TARGET), rtol=1e-4)
    faster = Run(id="r", method="fedavg", settle={"rate": 0.01})
    (adam,) = train_in_steps(env_of(), faster, "adam", [1], lambda done: None)
    np.testing.assert_allclose(adam, 1e-2 * np.sign(TARGET), rtol=1e-4)
    (sgd,) = train_in_steps(env_of(fedavg.Settings(eta_l=0.3)), RUN, "sgd", [1], lambda done: None)
    np.testing.assert_allclose(sgd, 0.3 * TARGET, rtol=1e-6)


def test_both_optimisers_see_the_same_batches_and_every_sample_once_an_epoch():
    batches = {}
    for optimiser in ("adam", "sgd"):
        batches[optimiser] = []
        env = env_of(fedavg.Settings(batch=8), samples=20, seen=batches[optimiser])
        list(train_in_steps(env, RUN, optimiser, [6], lambda done: None))
    assert batches["adam"] == batches["sgd"]
    epochs = [[row for rows in batches["adam"][i : i + 3] for row in rows] for i in (0, 3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(20))] * 2 and epochs[0] != epochs[1]


def test_the_run_s_augmentation_is_also_that_of_training_alone():
    drawn = []

    def augmented(theta, indices, random):
        drawn.append(random.random())
        return 0.0, theta - TARGET

    list(train_in_steps(env_of(augmented=augmented), RUN, "adam", [3], lambda done: None))
    assert len(set(drawn)) == 3


def test_of_equal_trials_the_first_is_chosen():
    assert choose_trial([3, 5, 5, 4]) == 1
    assert choose_trial([0, 0]) == 0
