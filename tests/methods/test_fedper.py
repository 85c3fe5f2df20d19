"""FedPer over three tiers against its algorithm as printed; what a report calls global; what leaves a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedavg
from edge_sdk.methods.fedper import FEDPER
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from edge_sdk.methods.shared.evaluation.evaluation import Models, Progress, Report, evaluated
from edge_sdk.methods.shared.training.partial import PartTraining as Settings
from edge_sdk.methods.shared.training.partial import SharedPart
from tests.methods.literal_parts import error, mask, sgd
from tests.methods.problems import DEVICES, HASTY, LAYOUT, LOSSY, THETA0, devices_counted, envs_of, play, state, told

BASIC = Settings(eta_l=0.1, decay=0.9, weight_decay=1e-2, batch=16, local_epochs=2)
EVERYTHING = np.ones(LAYOUT.size, bool)


def phase(s):
    return lambda i, theta, t: sgd(i, theta, EVERYTHING, s, t, 1, s.local_epochs)


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
    net, transcript = play(FEDPER, s, 12)
    assert len(devices_counted(transcript)) == 12
    assert error(net, transcript, s, mask(head), phase(s)) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_only_shrink_the_set(seed):
    net, transcript = play(FEDPER, BASIC, 30, faults=LOSSY, policies=HASTY, seed=seed)
    assert sum(map(len, devices_counted(transcript))) < 30 * 6 * 0.9
    assert error(net, transcript, BASIC, mask("linear"), phase(BASIC)) < 1e-12


def test_one_round_shares_what_fedavg_would():
    """All heads begin alike, so after the first round the body is FedAvg's, to the bit."""
    basic = {k: getattr(BASIC, k) for k in ("eta_l", "decay", "weight_decay", "batch", "local_epochs")}
    plain, _ = play(fedavg.FEDAVG, fedavg.Settings(**basic), 1)
    net, _ = play(FEDPER, BASIC, 1)
    w = lowrank.unpack(LAYOUT, state(plain, "aggregator").model)
    assert state(net, "aggregator").values.tobytes() == w[~mask("linear")].tobytes()


def test_messages_carry_the_shared_slots_only():
    net, transcript = play(evaluated(FEDPER), BASIC, 6)
    sizes = {len(m.values if isinstance(m, SharedPart) else m.total) for _, _, m in transcript.crossed
             if isinstance(m, (SharedPart, VectorSum))}  # fmt: skip
    assert sizes == {LAYOUT.size - 20}
    (report,) = told(transcript, Report)
    assert report.sums["personal_correct"] > report.sums["global_correct"]
    assert "personal_accuracy" in told(transcript, Progress)[0].sums
    shared = state(net, "aggregator").values
    for d in DEVICES:
        (models,) = told(transcript, Models, d)
        for name, head in (("global", THETA0[mask("linear")]), ("personal", state(net, d).own)):
            assert models.models[name][~mask("linear")].tobytes() == shared.tobytes()
            assert models.models[name][mask("linear")].tobytes() == head.tobytes()


def test_a_device_without_samples_keeps_its_first_head():
    envs = envs_of(FEDPER, BASIC, 3)
    envs["d4"] = replace(envs["d4"], samples=0)
    net, transcript = play(FEDPER, BASIC, 3, envs=envs)
    assert [p.devices for p in told(transcript, Progress)] == [5, 5, 5]
    assert state(net, "d4").own.tobytes() == THETA0[mask("linear")].tobytes()


def test_a_head_that_the_model_has_not_is_told_before_the_first_round():
    with pytest.raises(UsageError, match="this model has no 'classifier'"):
        play(FEDPER, replace(BASIC, personal_slots="classifier"), 1)


@pytest.mark.parametrize(("key", "value"), [("weighting", "size"), ("eta_l", 0.0)])
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})
