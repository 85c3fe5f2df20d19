"""What a device reaches alone, with the local settings of each method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.methods import METHODS, fedavg
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedbcd import settings as fedbcd_settings
from edge_sdk.nodes.evaluation.local_training import train_alone
from tests.methods import test_standardising as standard

TARGET = np.array([1.0, -0.5])


def pulled_to(theta, _):
    return 0.5 * float(((theta - TARGET) ** 2).sum()), theta - TARGET


@pytest.mark.parametrize("name, env", [
    ("fedavg", fedavg.Env(settings=fedavg.Settings(eta_l=0.1, decay=1.0, weight_decay=0.0))),
    ("fedbcd", fedbcd_settings.Env(settings=fedbcd_settings.Settings(eta_x=0.05, gamma=7.0))),
    ("fedbcd-i", fedbcd_settings.OfflineEnv(settings=fedbcd_settings.OfflineSettings(eta_x=0.05))),
])  # fmt: skip
def test_alone_is_the_own_optimum_whatever_the_penalty(name, env):
    whole = replace(env, me="d", rounds=40, theta0=np.zeros(2), grad_fn=pulled_to, samples=9)
    np.testing.assert_allclose(train_alone(METHODS[name], whole), TARGET, atol=1e-3)
    told: list[int] = []
    few = train_alone(METHODS[name], replace(whole, rounds=1), told.append)
    assert told == [1]
    assert 0.01 < np.abs(few - TARGET).max() < 1


def test_fedbcd_alone_makes_the_steps_of_fedbcd_without_penalty():
    settings = fedbcd_settings.Settings(eta_x=0.05, zeta=0.5, local_steps=3, draw_steps=False, bound=0.6)
    env = fedbcd_settings.Env(me="d", rounds=2, theta0=np.zeros(2), grad_fn=pulled_to, samples=9, settings=settings)
    x = before = np.zeros(2)
    for _ in range(6):
        ahead = x + 0.5 * (x - before)
        x, before = np.clip(ahead - 0.05 * (ahead - TARGET), -0.6, 0.6), x
    np.testing.assert_allclose(train_alone(METHODS["fedbcd"], env), x, atol=1e-15)


def test_a_device_alone_standardises_by_its_own_statistics():
    env = replace(standard.envs(FEDAVG, FEDAVG.settings(eta_l=0.1, batch=8))["d0"], me="d0")
    mean, square = env.feature_means()
    own = np.concatenate([mean, np.log(np.sqrt(square - mean**2))])
    np.testing.assert_allclose(train_alone(FEDAVG, env)[: 2 * standard.FEATURES], own, rtol=1e-5)
