"""Runs whose vectors travel as integers: off by default, refused before they start where they cannot be."""

import numpy as np
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.directory import decode_run, encode_run
from edge_sdk.methods.integers.vectors.messages import Changes, Integers
from edge_sdk.methods.shared.evaluation.evaluation import Report
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from tests.methods.problems import envs_of, play, told


def run_of(method="fedavg", **more):
    return Run(id="r", method=method, settings={"eta_l": 0.05} if method == "fedavg" else {}, rounds=5, **more)


def test_a_run_that_says_nothing_is_as_before():
    """The same messages, and the same bytes of its description."""
    assert not {Changes, Integers} & {*method_of(run_of()).messages}
    assert b"uploads" not in encode_run(run_of())
    assert decode_run(encode_run(run_of(uploads={"bits": 4}))).uploads == {"bits": 4}


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (run_of("fedal", uploads={"bits": 4}), "with method fedal: devices compare outputs"),
        (run_of("fedbcd", uploads={"bits": 4}), ""),
        (run_of(uploads={"bits": 99}), "2 to 16 bits"),
        (run_of(uploads={"bit": 4}), "did you mean bits"),
        (run_of(uploads={"bits": "few"}), "bits"),
    ],
)
def test_a_run_is_refused_before_it_starts(run, why):
    if not why:
        settings_of(run)
        return
    with pytest.raises(UsageError, match=why):
        settings_of(run)


@pytest.mark.parametrize("robust", [{}, {"rule": "clip"}, {"rule": "median", "hospitals": "median"}])
def test_robust_sums_of_integers(robust):
    """A hospital with a rule opens what its devices send, and rounds its sum anew; all end with a model as good."""
    plain, rounded = (run_of(robust=robust, uploads=uploads) for uploads in ({}, {"bits": 8}))
    losses = []
    for run in (plain, rounded):
        method, settings = method_of(run), settings_of(run)
        _, transcript = play(method, settings, run.rounds, envs=envs_of(method, settings, run.rounds, np.float32))
        losses.append(told(transcript, Report)[-1].sums["global_loss"])
        terms = {m.terms for a, b, m in transcript.crossed if isinstance(m, Integers) and b == "aggregator"}
    assert terms == ({1} if robust.get("rule") else {1, 2, 3})
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
