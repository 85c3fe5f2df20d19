"""Questions that an oracle answers before a replay begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of, unlabelled_of
from edge_sdk.errors import UsageError
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.traces.synth import write_traces


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("traces")
    write_traces(found, devices=2, seed=1, minutes=3.0)
    return found


def cuts(folder: Path, **options: object) -> dict[str, Cut]:
    cohort = form_cohort(str(folder), 1, 0, {"labelled": 6.0, **options})
    return {name: Cut(**table) for name, table in cohort.tables(Path(), lambda node: {}).items()}


@pytest.mark.parametrize("kind", ["ask", "ask_random"])
def test_answers_are_labels_that_were_missing(folder: Path, kind: str) -> None:
    before, after = cuts(folder), cuts(folder, **{kind: 2})
    assert cuts(folder, **{kind: 2}) == after
    for name, cut in after.items():
        loose, left = unlabelled_of(before[name]), unlabelled_of(cut)
        assert loose is not None and left is not None and len(cut.asked) > 0
        assert len(samples_of(cut).train) - len(samples_of(before[name]).train) == len(cut.asked)
        assert len(loose) - len(left) == len(cut.asked)
        assert len(samples_of(cut).held_out) == len(samples_of(before[name]).held_out)


def test_chosen_stretches_are_others_than_drawn_ones(folder: Path) -> None:
    assert cuts(folder, ask=2) != cuts(folder, ask_random=2)


def test_what_cannot_be_asked_is_said(folder: Path) -> None:
    with pytest.raises(UsageError, match="all windows have labels"):
        form_cohort(str(folder), 1, 0, {"ask": 2})
    with pytest.raises(UsageError, match="--ask 1 --ask-random 1: how many questions, 0 or more, of one kind"):
        form_cohort(str(folder), 1, 0, {"labelled": 6.0, "ask": 1, "ask_random": 1})
