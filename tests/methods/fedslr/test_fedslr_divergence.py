"""A personal component that has diverged costs its device that component, and nobody anything else."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.method import UP
from edge_sdk.methods.fedslr import device as fedslr_device
from edge_sdk.methods.fedslr.messages import FedslrModel
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr.settings import Settings
from tests.methods.problems import LAYOUT, THETA0, envs_of

SETTINGS = Settings(eta_g=0.5, eta_l=0.05, batch=0, weight_decay=0.0)
QUESTION = FedslrModel(lowrank.dense(LAYOUT, THETA0), 0, 1, {})


def device(**given):
    return replace(envs_of(FEDSLR, SETTINGS, 4)["d0"], me="d0", **given)


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e12])
def test_a_personal_component_that_has_diverged_begins_anew_and_says_so(bad):
    env = device()
    healthy, _ = fedslr_device.device_start(env)
    sick = replace(healthy, p=np.full_like(healthy.p, bad))
    (_, (send,)), (after, (same,)) = (fedslr_device.device_receive(env, s, UP, QUESTION) for s in (healthy, sick))
    same.message.check(LAYOUT)  # its hospital takes it
    assert np.array_equal(same.message.total, send.message.total) and np.isfinite(after.p).all()
    assert same.message.scores["personal_reset"] == 1 and "personal_reset" not in send.message.scores
    assert same.message.scores["personal_loss"] == send.message.scores["personal_loss"]


def test_scores_beyond_any_bound_reset_it_too():
    env = device()
    env = replace(env, score=lambda theta: env_score(theta))
    s, _ = fedslr_device.device_start(env)
    after, (send,) = fedslr_device.device_receive(env, replace(s, p=s.p + 2e9), UP, QUESTION)
    send.message.check(LAYOUT)
    assert send.message.scores["personal_reset"] == 1 and np.abs(after.p).max() < 1e3


def env_score(theta):
    return {"samples": 3, "correct": 1, "loss": float(np.exp(np.minimum(np.abs(theta).max(), 700.0)))}


def test_what_a_device_shows_at_the_end_is_finite():
    env = device()
    s, _ = fedslr_device.device_start(env)
    shown = fedslr_device.models(env, replace(s, p=s.p + np.inf), replace(QUESTION, round=4))
    assert np.array_equal(shown["personal"], shown["global"])
