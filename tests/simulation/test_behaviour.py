"""Clients on the virtual clock: who is there, how long answers take, and what rounds make of it."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log

import numpy as np
import pytest

from edge_sdk.contract.round import Policy
from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedbcd.method import FEDBCD
from edge_sdk.methods.shared.evaluation.evaluation import Progress, evaluated
from edge_sdk.nodes.configuration.settings import assigned
from edge_sdk.simulation.clients.behaviour import HOUR, Behaviour, ClientHabits, behaviour_of, identify, uniform
from edge_sdk.simulation.clients.crowd import Crowd
from edge_sdk.simulation.processes.ranks import OneRank
from tests.methods.problems import DEVICES, TREE
from tests.methods.test_contract import settings_of
from tests.simulation.threads import network_of, on_all, outcome_of, thread_ranks

MANY = np.array([identify(f"c{i}") for i in range(20_000)], np.uint64)


def test_random_numbers_are_uniform_and_independent_of_each_other():
    drawn = [uniform(7, MANY, purpose, number) for purpose in (0, 1) for number in (0, 1, 2)]
    for x in drawn:
        counts = np.histogram(x, bins=20, range=(0, 1))[0]
        assert abs(counts - 1000).max() < 5 * 31
    assert np.abs(np.corrcoef(drawn) - np.eye(6)).max() < 0.03
    assert (uniform(7, MANY[5:6], 1, 2) == drawn[5][5]).all() and (uniform(8, MANY, 0) != drawn[0]).all()


def test_presence_follows_the_hour_and_lasts_for_it():
    online = tuple(0.1 if 8 <= hour < 20 else 0.9 for hour in range(24))
    habits = ClientHabits(Behaviour(online=online), 3)
    shares = [habits.here(MANY, HOUR * (hour + 0.5)).mean() for hour in range(48)]
    assert np.allclose(shares, [*online, *online], atol=0.02)
    assert (habits.here(MANY, 10.0) == habits.here(MANY, HOUR - 1)).all() and habits.next_change(10.0) == HOUR


def test_clients_arrive_evenly_and_stay():
    habits = ClientHabits(Behaviour(arrive=1000.0), 3)
    shares = [habits.here(MANY, t).mean() for t in (0.0, 250.0, 500.0, 1000.0)]
    assert np.allclose(shares, [0, 0.25, 0.5, 1], atol=0.02) and habits.here(MANY, 1e9).all()


def test_a_trace_says_who_is_there_and_repeats(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("device,from,until\na,0,100\nb,50,200\nb,300,400\n")
    habits = ClientHabits(Behaviour(trace=str(path)), 3)
    here = {t: habits.here(MANY, t) for t in (10.0, 60.0, 150.0, 250.0, 350.0, 410.0)}
    assert here[60.0].all() and not here[250.0].any()
    assert (here[10.0] ^ here[150.0]).all() and (here[150.0] == here[350.0]).all() and (here[410.0] == here[10.0]).all()
    assert abs(here[10.0].mean() - 0.5) < 0.02 and habits.next_change(60.0) == 100.0


@pytest.mark.parametrize("text", ["", "device,from,until\n", "device,from,until\na,5,5\n", "device,start,end\na,1,2\n"])
def test_a_trace_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(UsageError, match=r"behave: trace .*trace\.csv"):
        ClientHabits(Behaviour(trace=str(tmp_path / "trace.csv")), 0)


def test_answers_take_what_the_behaviour_says():
    plain = ClientHabits(Behaviour(work=10.0, up=100.0, down=1000.0), 1)
    assert plain.answer_at("c1", 1, 5.0, down=2000, up=500) == 5.0 + 2.0 + 10.0 + 5.0
    varied = ClientHabits(Behaviour(work=10.0, spread=0.5, slow=0.2, slower=10.0), 1)
    took = np.array([varied.answer_at(f"c{i}", 1, 0.0, 0, 0) for i in range(4000)])
    logs = np.log(took / 10.0)
    assert abs((logs > log(10) / 2).mean() - 0.2) < 0.03 and abs(np.median(logs[logs < log(10) / 2])) < 0.05
    assert varied.answer_at("c3", 1, 0.0, 0, 0) == varied.answer_at("c3", 2, 0.0, 0, 0)
    jitter = ClientHabits(Behaviour(work=10.0, jitter=0.5), 1)
    assert jitter.answer_at("c3", 1, 0.0, 0, 0) != jitter.answer_at("c3", 2, 0.0, 0, 0)
    lost = ClientHabits(Behaviour(drop=0.3), 1)
    assert abs(np.mean([lost.answer_at(f"c{i}", 1, 0.0, 0, 0) == inf for i in range(4000)]) - 0.3) < 0.03


def test_an_answer_waits_until_its_client_is_back(tmp_path):
    (tmp_path / "trace.csv").write_text("device,from,until\na,0,100\na,500,600\n")
    habits = ClientHabits(Behaviour(work=150.0, trace=str(tmp_path / "trace.csv")), 0)
    assert habits.answer_at("c1", 1, 0.0, 0, 0) == 500.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("work=-1", "work = -1.*: a number, 0 or more"),
        ("drop=1.5", "drop = 1.5: a share"),
        ("slower=0.5", "slower = 0.5"),
        ("online=[0.5,0.5]", "a probability above 0, or 24 of them"),
        ("online=0", "a probability above 0, or 24 of them"),
    ],
)
def test_behaviour_is_checked(text, said):
    with pytest.raises(UsageError, match=said):
        behaviour_of(assigned([text]), "--behave")


# Rounds on that clock -------------------------------------------------------------------------------------------
def played(behaviour, tmp_path, policies, method=FEDAVG, settings=None, rounds=5, **more):
    """(aggregator's Progress and when, network) of a run."""
    seen = []
    network = network_of(
        evaluated(method),
        settings or settings_of(method),
        rounds,
        OneRank(),
        tmp_path,
        told=lambda who, m, at: seen.append((at, m)) if isinstance(m, Progress) else None,
        behaviour=behaviour,
        policies=policies,
        **more,
    )
    network.start()
    while network.step():
        pass
    return seen, network


def test_a_round_takes_as_long_as_its_slowest_client(tmp_path):
    behaviour = Behaviour(work=10.0, spread=1.0)
    seen, _ = played(behaviour, tmp_path, {})
    slowest = max(ClientHabits(behaviour, 7).answer_at(d, 1, 0.0, 0, 0) for d in DEVICES)
    assert [at for at, _ in seen] == pytest.approx([slowest * r for r in range(1, 6)])
    assert all(m.devices == len(DEVICES) for _, m in seen)


def test_a_deadline_leaves_the_slow_ones_out(tmp_path):
    behaviour = Behaviour(work=10.0, spread=1.0)
    times = sorted(ClientHabits(behaviour, 7).answer_at(d, 1, 0.0, 0, 0) for d in DEVICES)
    limit = (times[2] + times[3]) / 2
    seen, _ = played(behaviour, tmp_path, {"hospital": Policy(deadline=limit), "aggregator": Policy(quorum=1)})
    assert [m.devices for _, m in seen] == [3] * 5 and seen[-1][0] <= 5 * limit


def test_answers_that_never_come_cost_a_deadline_and_no_more(tmp_path):
    seen, _ = played(Behaviour(work=1.0, drop=0.5), tmp_path, {"hospital": Policy(deadline=9.0)}, rounds=12)
    counted = [m.devices for _, m in seen]
    assert len(seen) == 12 and 0 < sum(counted) < 12 * len(DEVICES) and seen[-1][0] == pytest.approx(12 * 9.0)
    with pytest.raises(AuscultError, match=r"the run stands still: .*--deadline"):
        played(Behaviour(work=1.0, drop=0.5), tmp_path / "b", {}, rounds=12)


def test_a_hospital_waits_until_somebody_is_there(tmp_path):
    seen, _ = played(Behaviour(work=1.0, online=(0.0,) * 6 + (1.0,) * 18), tmp_path, {}, rounds=2)
    assert [at for at, _ in seen] == [6 * HOUR + 1, 6 * HOUR + 2]


def test_the_fastest_count_and_later_ones_are_not_waited_for(tmp_path):
    """FedBCD with selection = "fastest": a round is over with the first answers, on the clock too."""
    settings = replace(settings_of(FEDBCD), selection="fastest", participation=0.3)
    policies = FEDBCD.policies(settings, {h: len(d) for h, d in TREE.items()}, inf, inf, 0)
    seen, _ = played(Behaviour(work=10.0, spread=1.0), tmp_path, policies, FEDBCD, settings)
    fastest = [
        min(ClientHabits(Behaviour(work=10.0, spread=1.0), 7).answer_at(d, 1, 0.0, 0, 0) for d in TREE[h]) for h in TREE
    ]
    assert seen[0][0] == pytest.approx(max(fastest))


def test_behaviour_is_the_same_on_every_number_of_ranks(tmp_path):
    behaviour = Behaviour(work=5.0, spread=1.0, jitter=0.3, drop=0.1, online=(0.7,), up=1e4, down=1e4)
    policies = {"hospital": Policy(deadline=20.0), "aggregator": Policy(quorum=1)}
    found = []
    for count in (1, 3):
        ranks = thread_ranks(count)
        every = on_all(
            ranks,
            lambda rank, count=count: outcome_of(
                FEDAVG, settings_of(FEDAVG), 6, rank, tmp_path / str(count), behaviour=behaviour, policies=policies
            ),
        )
        found.append(every[0][:2])
    assert found[0] == found[1]


# Who takes part -------------------------------------------------------------------------------------------------
def test_a_cohort_is_drawn_anew_in_each_round_and_judges_stay():
    tree = {"a": tuple(f"c{i:02}" for i in range(30)), "b": tuple(f"c{i:02}" for i in range(30, 40))}
    crowd = Crowd(tree, ClientHabits(Behaviour(), 1), 1, judges=8, cohort=6)
    rounds = [{h: crowd.present(h, 0.0, r) for h in tree} for r in range(40)]
    assert all(sum(map(len, here.values())) == 6 for here in rounds) and rounds[0] != rounds[1]
    counts = np.bincount([int(n[1:]) for here in rounds for names in here.values() for n in names], minlength=40)
    assert counts.sum() == 240 and counts.max() < 16 and (counts > 0).sum() > 35
    assert sum(map(len, crowd.judges.values())) == 8
    assert all(list(names) == sorted(names) for here in rounds for names in here.values())
