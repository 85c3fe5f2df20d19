"""FedBN over three tiers against its algorithm as printed, on a layout with normalisation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra.vectors import layout_of
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedbn import FEDBN, Settings
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from tests.methods.literal_parts import error, mask, sgd
from tests.methods.problems import HASTY, LAYOUT, LOSSY, devices_counted, envs_of, play

BASIC = Settings(eta_l=0.1, decay=0.9, weight_decay=1e-2, batch=16, local_epochs=2)
NORMED = layout_of(("conv", (2, 3, 2, 2), "conv"), ("bias", (2,), "norm"), ("linear", (5, 4), "linear"))
NORM = mask("bias")


def normed(settings, rounds):
    return {name: replace(env, layout=NORMED) for name, env in envs_of(FEDBN, settings, rounds).items()}


def phase(s):
    return lambda i, theta, t: sgd(i, theta, np.ones(LAYOUT.size), s, t, 1, s.local_epochs)


@pytest.mark.parametrize("change", [{}, {"batch": 0}, {"weighting": "samples"}, {"participation": 0.5}], ids=str)
def test_agrees_with_the_algorithm_as_printed(change):
    s = replace(BASIC, **change)
    net, transcript = play(FEDBN, s, 12, envs=normed(s, 12))
    assert error(net, transcript, s, NORM, phase(s)) < 1e-12
    assert {len(m.total) for _, _, m in transcript.crossed if isinstance(m, VectorSum)} == {LAYOUT.size - 2}


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_only_shrink_the_set(seed):
    net, transcript = play(FEDBN, BASIC, 30, faults=LOSSY, policies=HASTY, seed=seed, envs=normed(BASIC, 30))
    assert sum(map(len, devices_counted(transcript))) < 30 * 6 * 0.9
    assert error(net, transcript, BASIC, NORM, phase(BASIC)) < 1e-12


def test_a_model_without_normalisation_is_refused():
    with pytest.raises(UsageError, match="this model has no 'norm'; there are: conv, bias, linear"):
        play(FEDBN, BASIC, 1)
