"""FedBABU over three tiers against its algorithm as printed: the head never moves, fine-tuning is for evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.errors import UsageError
from edge_sdk.methods.fedbabu import FEDBABU, Settings
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.evaluation.evaluation import Models, Report, evaluated
from edge_sdk.methods.shared.training.partial import SharedPart
from tests.methods.literal_parts import error, mask, sgd
from tests.methods.problems import DEVICES, HASTY, LAYOUT, LOSSY, THETA0, devices_counted, envs_of, play, state, told

BASIC = Settings(eta_l=0.1, decay=0.9, weight_decay=1e-2, batch=16, local_epochs=2, fine_tune_epochs=3)
HEAD = mask("linear")
TUNED = {"all": np.ones(LAYOUT.size, bool), "head": HEAD, "body": ~HEAD}


def phase(s, head=HEAD):
    return lambda i, theta, t: sgd(i, theta, ~head, s, t, 1, s.local_epochs)


@pytest.mark.parametrize(
    ("change", "head"),
    [
        ({}, "linear"),
        ({"batch": 0}, "linear"),
        ({"weighting": "uniform"}, "linear"),
        ({"participation": 0.5}, "linear"),
        ({"personal_slots": "bias"}, "bias"),
    ],
    ids=str,
)
def test_agrees_with_the_algorithm_as_printed(change, head):
    s = replace(BASIC, **change)
    net, transcript = play(FEDBABU, s, 12)
    assert error(net, transcript, s, mask(head), phase(s, mask(head))) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_only_shrink_the_set(seed):
    net, transcript = play(FEDBABU, BASIC, 30, faults=LOSSY, policies=HASTY, seed=seed)
    assert sum(map(len, devices_counted(transcript))) < 30 * 6 * 0.9
    assert error(net, transcript, BASIC, HEAD, phase(BASIC)) < 1e-12


@pytest.mark.parametrize("tune", TUNED)
def test_the_personal_model_is_fine_tuned_on_the_final_body(tune):
    s = replace(BASIC, tune=tune)
    net, transcript = play(evaluated(FEDBABU), s, 5)
    (report,) = told(transcript, Report)
    assert report.sums["personal_correct"] > report.sums["global_correct"]
    for d in DEVICES:
        (found,) = told(transcript, Models, d)
        theta = found.models["global"]
        assert theta[HEAD].tobytes() == THETA0[HEAD].tobytes()
        assert theta[~HEAD].tobytes() == state(net, "aggregator").values.tobytes()
        assert np.abs(found.models["personal"] - sgd(d, theta, TUNED[tune], s, 5, 2, 3)).max() < 1e-13


def test_training_does_not_depend_on_fine_tuning():
    runs = [play(evaluated(FEDBABU, every=1), replace(BASIC, fine_tune_epochs=k), 4)[0] for k in (0, 3)]
    a, b = (state(net, "aggregator").values for net in runs)
    assert a.tobytes() == b.tobytes()


def test_messages_carry_the_body_only():
    _, transcript = play(FEDBABU, BASIC, 4)
    sizes = {len(m.values if isinstance(m, SharedPart) else m.total) for _, _, m in transcript.crossed
             if isinstance(m, (SharedPart, VectorSum))}  # fmt: skip
    assert sizes == {LAYOUT.size - 20}


def test_a_device_without_samples_has_nothing_to_tune_with():
    envs = envs_of(FEDBABU, replace(BASIC, batch=0), 3)
    envs["d4"] = replace(envs["d4"], samples=0)
    _, transcript = play(evaluated(FEDBABU), BASIC, 3, envs=envs)
    (found,) = told(transcript, Models, "d4")
    assert found.models["personal"].tobytes() == found.models["global"].tobytes()
    assert len(devices_counted(transcript)) >= 3


@pytest.mark.parametrize(("key", "value"), [("fine_tune_epochs", -1), ("tune", "neck")])
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})
