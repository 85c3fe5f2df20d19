"""Recommended settings of training on features: what they are for a run of any length."""

from __future__ import annotations

import pytest

from edge_sdk.nodes.configuration.window_runs import ROUNDS, TRAINING, training_of


@pytest.mark.parametrize("rounds", [1, ROUNDS])
def test_a_run_of_up_to_the_recommended_rounds_has_the_recommended_decay(rounds: int) -> None:
    assert training_of("fedslr", rounds)["decay"] == TRAINING["decay"]


@pytest.mark.parametrize("rounds", [200, 3000, 100_000])
def test_the_step_of_a_longer_run_ends_where_that_of_the_recommended_rounds_does(rounds: int) -> None:
    assert training_of("fedslr", rounds)["decay"] ** rounds == pytest.approx(TRAINING["decay"] ** ROUNDS, rel=0.06)


def test_a_method_has_its_own_settings_only() -> None:
    assert "decay" in training_of("fedavg", 10) and "eta_g" not in training_of("fedavg", 10)
