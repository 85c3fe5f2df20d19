"""AugFL's three tiers against a literal transcription of Algorithm 1, for every form of the upload."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.methods.augfl.messages import AugflModel, Sums, Upload
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from tests.methods.augfl.augfl_problems import (
    BASIC,
    FORMS,
    PULL,
    SMOOTH,
    THETA0,
    Y0,
    N,
    algorithm_1,
    clients_of,
    error,
    log_cosh,
    play,
    weights_of,
)
from tests.methods.problems import DEVICES, told


@pytest.mark.parametrize("seed", range(4))
def test_equals_algorithm_1(seed):
    net, _, path = play(SMOOTH, BASIC, 30, pull=PULL, y0=Y0, seed=seed)
    history = algorithm_1(SMOOTH, BASIC, 30, gradient=PULL.gradient, y0=Y0)
    assert error(path, history) < 1e-12
    assert max(np.abs(net.nodes[d].record.state.tried - history[-1].y[d]).max() for d in DEVICES) < 1e-12


@pytest.mark.parametrize(("upload", "start"), FORMS)
@pytest.mark.parametrize("hvp", ["central", "exact", "none"])
def test_every_form_of_the_upload_gives_these_iterates(upload, start, hvp):
    s = replace(BASIC, upload=upload, y_init=start, hvp=hvp)
    _, transcript, path = play(SMOOTH, s, 20, pull=PULL)
    history = algorithm_1(SMOOTH, s, 20, gradient=PULL.gradient)
    assert error(path, history) < 1e-12
    for m, h in zip(told(transcript, Progress), history, strict=True):
        residual = np.linalg.norm(h.gR - sum(h.y.values()))
        assert abs(m.sums["residual"] - residual) < 1e-10


def test_the_short_forms_have_half_the_numbers_on_both_hops():
    for upload, device, hospital in (("theta_y", 2 * N, 2 * N), ("u", N, N), ("y", N, N)):
        _, transcript, _ = play(SMOOTH, replace(BASIC, upload=upload), 6, faults=NetworkFaults(repeat=0.0))
        ups = [m for _, _, m in transcript.crossed if isinstance(m, Upload)]
        sums = [m for _, _, m in transcript.crossed if isinstance(m, Sums)]
        assert {sum(v.size for v in (m.theta, m.y, m.u) if v is not None) for m in ups} == {device}
        assert {sum(v.size for v in (m.u, m.y) if v is not None) for m in sums} == {hospital}
        assert {m.model.values.size for _, _, m in transcript.crossed if isinstance(m, AugflModel)} == {N}


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_weights_are_shares_of_all_training_devices(weighting):
    s = replace(BASIC, weighting=weighting)
    _, _, path = play(SMOOTH, s, 10)
    w = weights_of(SMOOTH) if weighting == "samples" else dict.fromkeys(SMOOTH, 1 / 6)
    assert abs(sum(w.values()) - 1) < 1e-12
    assert error(path, algorithm_1(SMOOTH, s, 10, weights=w)) < 1e-12


def test_without_devices_weight_only_the_model_of_the_aggregator_is_distilled():
    s = replace(BASIC, weighting="none")
    clients = clients_of(log_cosh)
    _, transcript, path = play(clients, s, 50, pull=PULL)
    theta, rho = THETA0, sum(c.rho for c in clients.values())
    for _ in range(50):
        theta = theta - PULL.gradient(theta) / rho
    assert np.abs(path[-1] - theta).max() < 1e-12
    assert not any(c.calls for c in clients.values())
    assert all("loss" not in m.sums for m in told(transcript, Progress))
