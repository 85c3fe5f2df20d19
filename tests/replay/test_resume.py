"""What is noted of a replay that may be interrupted, and what is refused when it is to go on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.replay.planning.data_hash import hash_data
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.planning.resume import NOTE, note_job, read_data_hash, read_finished

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
RUN = Run(id="r", method="fedavg", rounds=3, seed=2, settings={"eta_l": 0.5}, classes=("a", "b"))


def job(out: Path, **more) -> Replay:
    return Replay(data="x", out=out, options={"window": 32}, **more)


def test_the_same_again_goes_on(tmp_path):
    note_job(job(tmp_path), RUN, (BUNDLE,))
    again = job(tmp_path, resume=True)  # and not refused because DIR is not empty
    note_job(again, RUN, (BUNDLE,))
    note_job(replace(again, command="another", broker="mqtt://127.0.0.1"), RUN, (BUNDLE,))
    with pytest.raises(UsageError, match="is not empty; name another directory, remove it, or --resume"):
        job(tmp_path)


@pytest.mark.parametrize(
    ("run", "more", "said"),
    [
        (replace(RUN, rounds=4), {}, "begun with rounds = 3, and not 4"),
        (replace(RUN, settings={"eta_l": 0.25}), {}, "settings = {'eta_l': 0.5}, and not {'eta_l': 0.25}"),
        (RUN, {"hospitals": 2}, "hospitals = 3, and not 2"),
        (RUN, {"local_only": False}, "local_only = True, and not False"),
    ],
)
def test_something_else_is_refused(tmp_path, run, more, said):
    note_job(job(tmp_path), RUN, (BUNDLE,))
    with pytest.raises(UsageError) as refused:
        note_job(job(tmp_path, resume=True, **more), run, (BUNDLE,))
    assert said in str(refused.value)


def test_other_data_under_the_same_name_are_refused(tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "m1.csv").write_text("time,x,activity\n0,1,a\n")
    out = tmp_path / "out"
    out.mkdir()
    asked = replace(job(out), data=str(traces))
    note_job(asked, RUN, (BUNDLE,))
    note_job(replace(asked, resume=True), RUN, (BUNDLE,))
    assert read_data_hash(out) == hash_data(str(traces))
    (traces / "m1.csv").write_text("time,x,activity\n0,2,a\n")
    with pytest.raises(UsageError, match=r"traces has changed since it was begun \(SHA-256 [0-9a-f]{64}, now "):
        note_job(replace(asked, resume=True), RUN, (BUNDLE,))


def test_with_a_note_of_before_which_has_no_hash_one_goes_on(tmp_path):
    note_job(job(tmp_path), RUN, (BUNDLE,))
    begun = json.loads((tmp_path / NOTE).read_text())
    del begun["data_sha256"]
    (tmp_path / NOTE).write_text(json.dumps(begun))
    note_job(job(tmp_path, resume=True), RUN, (BUNDLE,))
    assert json.loads((tmp_path / NOTE).read_text()) == begun and read_data_hash(tmp_path) == ""


def test_the_hash_is_of_the_names_and_bytes_of_traces(tmp_path):
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return hash_data(str(tmp_path))

    first = write("a.csv", "1")
    assert write("b.txt", "no trace") == first
    assert len({first, write("b.csv", "2"), write("b.csv", "3"), hash_data(f"mnist:{tmp_path / 'a.csv'}")}) == 4
    assert hash_data("breast-cancer") == ""
    before = hash_data(str(tmp_path))
    assert write("a.availability.csv", "4") != before  # by it a replay of days goes


@pytest.mark.parametrize("text", [None, "", "{"])
def test_where_nothing_was_begun_nothing_goes_on(tmp_path, text):
    if text is not None:
        (tmp_path / NOTE).write_text(text)
    with pytest.raises(UsageError, match="no replay was begun there"):
        note_job(job(tmp_path, resume=True), RUN, (BUNDLE,))


def test_a_replay_that_is_over_is_not_run_again(tmp_path):
    assert read_finished(tmp_path) is None
    (tmp_path / "result.json").write_text(json.dumps({"seed": 3}))
    assert read_finished(tmp_path) == {"seed": 3}
