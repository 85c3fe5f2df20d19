"""Which network a replay takes that names none: the smallest, or one that is better by more than chance."""

import json
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.nodes.configuration.window_runs import NETWORKS
from edge_sdk.replay import job as whole
from edge_sdk.replay import network_choice
from edge_sdk.replay.cohorts.cohort import Cohort
from edge_sdk.replay.nodes.processes import ProcessError
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.traces.synth import write_traces

COHORT = Cohort("windows", {"h": ("a", "b", "c")}, ("walk", "sit"), {"x": (3, 64)}, False, True, lambda *_: {})
SMALL, LARGE = NETWORKS


def scores(*gains):
    return {SMALL: {f"d{i}": 0.5 for i in range(len(gains))}, LARGE: {f"d{i}": 0.5 + g for i, g in enumerate(gains)}}


@pytest.mark.parametrize(
    "gains, best",
    [
        ((0.1, 0.08, 0.12), LARGE),  # better everywhere
        ((0.3, -0.1, -0.1), SMALL),  # by one device only
        ((-0.1, -0.1, -0.2), SMALL),
        ((0.0, 0.0, 0.0), SMALL),
        ((0.009, 0.009, 0.009), SMALL),  # surely better, and by less than a point
        ((0.4,), SMALL),  # one device shows nothing
        ((), SMALL),
    ],
)
def test_a_larger_network_is_taken_if_it_is_better_by_more_than_a_standard_error(gains, best):
    assert network_choice.best_of(scores(*gains)) == best


def test_devices_that_only_one_trial_has_judged_do_not_count():
    found = scores(0.1, 0.1, 0.12)
    found[SMALL] |= {"other": 1.0}
    assert network_choice.best_of(found) == LARGE


@pytest.fixture
def job(tmp_path):
    return Replay(data="traces", out=tmp_path / "out", preset="stated", bundle=(Path(SMALL),))


@pytest.fixture
def tried(monkeypatch):
    calls = []
    monkeypatch.setattr(network_choice, "find_compiler", lambda: Path("here"))
    monkeypatch.setattr(network_choice, "try_networks", lambda *given: calls.append(given) or scores(0.1, 0.08, 0.12))
    return calls


def test_what_was_chosen_is_said_and_kept_for_a_replay_that_goes_on(job, tried):
    said = []
    first = network_choice.with_chosen_network(job, COHORT, said.append)
    assert first.bundle == (Path(LARGE),) and "network: features-conv" in said[0] and "60.0" in said[0]
    assert json.loads((job.out / "network.json").read_text())["network"] == LARGE
    again = network_choice.with_chosen_network(replace(job, resume=True), COHORT, said.append)
    assert again.bundle == first.bundle and len(tried) == 1


def test_a_network_that_is_named_and_a_large_fleet_are_not_tried(job, tried):
    own = replace(job, bundle=(Path("own.bundle"),))
    assert network_choice.with_chosen_network(own, COHORT, print) is own
    many = replace(COHORT, tree={"h": tuple(f"d{i}" for i in range(network_choice.MOST_DEVICES + 1))})
    said = []
    assert network_choice.with_chosen_network(job, many, said.append) is job
    assert not tried and "40 devices or fewer" in said[0]


class Asked(Exception):
    """What a replay asks bundles for; it goes no further."""


@pytest.mark.parametrize(("named", "asked"), [((), LARGE), ((SMALL,), SMALL)])
def test_a_replay_tries_networks_unless_one_is_named(tmp_path, monkeypatch, named, asked):
    def ask(data, bundles, *_):
        raise Asked(*bundles)

    write_traces(tmp_path / "traces", devices=2, seed=1, minutes=1)
    monkeypatch.setattr(whole, "with_chosen_network", lambda job, *_: replace(job, bundle=(Path(LARGE),)))
    monkeypatch.setattr(whole, "choose_bundles", ask)
    job = Replay(data=str(tmp_path / "traces"), out=tmp_path / "out", bundle=tuple(map(Path, named)), hospitals=1)
    with pytest.raises(Asked) as found:
        whole.replay(job, print, print)
    assert found.value.args == (Path(asked),)


def test_a_note_that_names_no_network_is_refused(job, tried):
    job.out.mkdir()
    (job.out / "network.json").write_text('{"network": "../../etc"}')
    with pytest.raises(UsageError, match=r"network\.json: expected a network, one of features, features-conv"):
        network_choice.with_chosen_network(job, COHORT, print)


@pytest.fixture
def trials(monkeypatch):
    """Trials of all networks, which go on until they are told to stop; `trials.does`: network -> what its trial does
    when all have begun, a result in place of None."""
    found = SimpleNamespace(does={}, told=[], begun=threading.Barrier(len(NETWORKS)))

    class Worker:
        def __init__(self, job, say, stopping, numpy):
            self.name, self.stopping = job.bundle[0].stem, stopping

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def play(self, settings):
            found.begun.wait(60)
            if (made := found.does.get(self.name, lambda: None)()) is None:
                found.told.append(self.stopping.wait(3))
            return made

    monkeypatch.setattr(network_choice, "TrialProcess", Worker)
    monkeypatch.setattr(network_choice, "compile_network", lambda name, *_: Path(f"{name}.bundle"))
    return found


def try_all(job, stopping=None):
    return network_choice.try_networks(job, COHORT, print, stopping or threading.Event())


def test_a_trial_that_fails_ends_the_others_with_its_reason(job, trials):
    """The second one: its error does not wait for the end of the first."""
    trials.does = {LARGE: lambda: {"error": "no device has validation samples"}}
    with pytest.raises(AuscultError, match="network features-conv, trial of 10 rounds: no device has validation"):
        try_all(job)
    assert trials.told == [True]


def test_a_trial_whose_process_refuses_the_job_names_its_network(job, trials):
    def refuse():
        raise UsageError("fedavg: eta_l = -1")

    trials.does = {SMALL: refuse}
    with pytest.raises(UsageError, match="network features, trial of 10 rounds: fedavg: eta_l = -1"):
        try_all(job)
    assert trials.told == [True]


def test_a_network_that_none_can_beat_by_a_point_ends_the_other_trials(job, trials):
    trials.does = {SMALL: lambda: {"devices": {"a": 1.0, "b": 0.985}}}
    assert try_all(job) == {SMALL: {"a": 1.0, "b": 0.985}}
    assert trials.told == [True]


def test_a_network_that_may_be_beaten_waits_for_the_others(job, trials):
    scores = {SMALL: {"a": 1.0, "b": 0.97}, LARGE: {"a": 1.0, "b": 0.99}}
    trials.does = {name: lambda name=name: {"devices": scores[name]} for name in scores}
    assert try_all(job) == scores and trials.told == []


def test_ctrl_c_ends_all_trials(job, trials):
    main = threading.main_thread().ident
    trials.does = {SMALL: lambda: signal.pthread_kill(main, signal.SIGINT)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process of tests may leave it to another one
    try:
        with pytest.raises(KeyboardInterrupt):
            try_all(job)
    finally:
        signal.signal(signal.SIGINT, before)
    assert trials.told == [True, True]


def test_whoever_stops_the_replay_ends_all_trials(job, trials):
    stopping = threading.Event()
    trials.does = {LARGE: stopping.set}
    with pytest.raises(ProcessError, match="stopped while networks were tried"):
        try_all(job, stopping)
    assert trials.told == [True, True]


def test_nothing_is_compiled_for_a_replay_that_is_to_stop(job, trials, monkeypatch):
    monkeypatch.setattr(network_choice, "compile_network", lambda *_: pytest.fail("compiled"))
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(ProcessError):
        try_all(job, stopping)
