"""The network in memory: what its faults do, and that the same seed gives the same run."""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

import pytest

from edge_sdk.contract.loopback import ROOT, Loopback, NetworkFaults
from edge_sdk.contract.method import DOWN, OUT, UP, Method, NodeEnv, Role, Send, unchanged
from edge_sdk.contract.round import Policy

TREE = {"h0": ("a", "b"), "h1": ("c",)}
NODES = (ROOT, "h0", "h1", "a", "b", "c")
HASTY = {"aggregator": Policy(quorum=1, deadline=9.0), "hospital": Policy(deadline=4.0)}


@dataclass(frozen=True)
class Count:
    number: int = 0
    round: int = 0


def counted(env, s, sender, m):
    return (Count(0, m), [Send(DOWN, m)]) if sender == UP else (replace(s, number=s.number + m), [])


def root_close(env, s):
    told = Send(OUT, s.number)
    return Count(0, s.round + 1), [told, Send(DOWN, s.round + 1)] if s.round + 1 < env.rounds else [told]


COUNTING = Method(
    name="counting",
    device=Role(lambda env: (Count(), []), lambda env, s, _, m: (Count(1, m), [Send(UP, 1)]), unchanged, Count),
    hospital=Role(lambda env: (Count(), []), counted, lambda env, s: (s, [Send(UP, s.number)]), Count),
    aggregator=Role(lambda env: (Count(), [Send(DOWN, 0)]), counted, root_close, Count),
    messages=(int,),
    settings=Count,
    env=NodeEnv,
    show=lambda env, s: s,
    models=lambda env, s, m: {},
)


def play(faults=NetworkFaults(), seed=0, policies=None, until=inf, rounds=8, **more):  # noqa: B008 (frozen)
    net = Loopback(COUNTING, TREE, dict.fromkeys(NODES, NodeEnv(rounds=rounds)), policies, seed, faults, **more)
    return net.run(until)


def totals(transcript):
    return [m for _, m in transcript.told]


def test_a_run_without_faults():
    transcript = play(NetworkFaults(repeat=0.0))
    assert totals(transcript) == [3] * 8 and not transcript.refused
    assert all(transcript.ran[d] == list(range(1, 9)) for d in "abc")
    assert len(transcript.closed["h0"]) == 8 and transcript.closed["h0"][2].above == 3
    assert len(transcript.crossed) == 8 * (2 + 3) * 2


def test_the_same_seed_is_the_same_story():
    stories = [play(NetworkFaults(drop=0.2), seed, HASTY) for seed in (1, 1, 2)]
    assert stories[0].crossed == stories[1].crossed and stories[0].time == stories[1].time
    assert stories[0].time != stories[2].time


def test_repeated_messages_are_refused():
    transcript = play(NetworkFaults(repeat=1.0))
    assert totals(transcript) == [3] * 8 and len(transcript.refused) >= 8 * 10


def test_delays_reorder():
    orders = {tuple(c.children) for seed in range(6) for c in play(seed=seed).closed["h0"]}
    assert orders == {("a", "b"), ("b", "a")}


def test_dropped_messages_cost_answers_but_no_rounds():
    transcript = play(NetworkFaults(drop=0.3), policies=HASTY, rounds=30)
    assert len(totals(transcript)) == 30 and sum(totals(transcript)) < 80


def test_away_nodes_hear_and_say_nothing_and_come_back():
    transcript = play(NetworkFaults(repeat=0.0, away={"c": [(5.0, 20.0)]}), policies=HASTY)
    assert {2, 3} == set(totals(transcript)) and totals(transcript)[-1] == 3
    assert not any(5.0 <= at < 20.0 for at, _ in transcript.times["c"])


def test_a_child_that_is_back_in_time_still_counts():
    """Without deadlines the round waits; `join` repeats the question that was lost."""
    transcript = play(NetworkFaults(repeat=0.0, away={"c": [(0.0, 50.0)]}), rounds=2)
    assert totals(transcript) == [3, 3] and transcript.closed["h1"][0].time > 50.0


def test_slow_answers_come_after_the_close():
    transcript = play(NetworkFaults(repeat=0.0, slow={("b", 2): 30.0}), policies=HASTY)
    assert totals(transcript) == [3, 2, *[3] * 6]
    assert any(who == "h0" and sender == "b" for who, sender, _ in transcript.refused)


def test_a_busy_node_does_one_thing_at_a_time():
    transcript = play(NetworkFaults(repeat=0.0, work={"a": 5.0}), rounds=3)
    times = [at for at, _ in transcript.times["a"]]
    assert all(b - a >= 5.0 for a, b in pairwise(times))


def test_messages_pass_through_the_wire():
    seen = []
    transcript = play(NetworkFaults(repeat=0.0), through=lambda m: seen.append(m) or m, rounds=1)
    assert seen == [m for _, _, m in transcript.crossed]


@pytest.mark.parametrize("until", [3.0, 8.0])
def test_the_clock_stops(until):
    assert play(until=until).time <= until
