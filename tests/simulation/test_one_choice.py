"""The network of a simulation on several processes that names none: one of them finds it out, for all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="networks are compiled with it")

from edge_sdk.errors import AuscultError
from edge_sdk.nodes.configuration.window_runs import NETWORKS
from edge_sdk.replay.traces.synth import write_traces
from edge_sdk.simulation.runs import job as course
from edge_sdk.simulation.runs import plan
from tests.simulation.jobs import job_of, play
from tests.simulation.threads import on_all, thread_ranks

ASKED = {"preset": "recommended", "options": {}, "seed": 0}


class Begun(Exception):
    """What comes in place of the rounds."""


@pytest.fixture
def bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """(Directories that have made trials, what a rank trains): of a simulation on two ranks."""
    write_traces(tmp_path / "traces", devices=4, seed=1, minutes=2.0)
    tried: list[Path] = []

    def choose(replay, cohort, say):
        tried.append(replay.out)
        chosen = replace(replay, bundle=(Path(NETWORKS[1]),))
        replay.out.mkdir()
        (replay.out / "network.json").write_text("{}")  # as the choice is kept: `out` is empty no more
        return chosen

    def begin(job, prepared, *_):
        raise Begun(job.replay.bundle[0].name, prepared.run.bundle)

    monkeypatch.setattr(plan, "with_chosen_network", choose)
    monkeypatch.setattr(course, "Course", begin)

    def on_rank(rank):
        with pytest.raises(Begun) as found:
            play(job_of(tmp_path / "out", data=str(tmp_path / "traces"), **ASKED), rank)
        return found.value.args

    return tried, on_rank


def test_one_rank_makes_the_trials_for_all(bundles, tmp_path: Path) -> None:
    tried, on_rank = bundles
    first, second = on_all(thread_ranks(2), on_rank)
    assert tried == [tmp_path / "out"]
    assert first == second and first[0] == NETWORKS[1]


def test_trials_that_fail_on_one_rank_end_all(bundles, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_):
        raise AuscultError("network features, trial of 10 rounds: no")

    monkeypatch.setattr(plan, "with_chosen_network", fail)
    with pytest.raises(AuscultError, match="network features, trial"):
        on_all(thread_ranks(2), bundles[1])
