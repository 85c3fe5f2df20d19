"""One node: numbers, repetition, and what leaves it when."""

from dataclasses import dataclass, replace

import pytest

from edge_sdk.contract import node as nodes
from edge_sdk.contract.method import DOWN, ME, OUT, UP, NodeEnv, Role, Send, ask_nobody, unchanged
from edge_sdk.contract.node import Envelope
from edge_sdk.contract.round import EMPTY, Policy
from edge_sdk.errors import PeerError


@dataclass(frozen=True)
class Log:
    """State of the roles below: what has happened."""

    lines: tuple[str, ...] = ()


def noted(s, line):
    return replace(s, lines=(*s.lines, line))


def starting(env):
    return Log(), []


def receiving(env, s, sender, m):
    """Passes on what comes from above, notes what comes from below."""
    if sender == UP:
        return noted(s, f"asked {m}"), [Send(DOWN, m)]
    return noted(s, f"{sender} {m}"), []


def closing(env, s):
    return noted(s, "closed"), [Send(UP, len(s.lines)), Send(OUT, "told")]


HOSPITAL = Role(starting, receiving, closing, Log)
ECHO = Role(starting, lambda env, s, sender, m: (noted(s, m), [Send(UP, f"re {m}")]), unchanged, Log)


def hospital(policy=Policy(), here=("a", "b"), role=HOSPITAL):  # noqa: B008 (frozen)
    return nodes.start(nodes.new("h", role, NodeEnv(), "root", policy, 0.0, here), 0.0).node


def question(number, message="q"):
    return Envelope("root", "h", number, message, True)


def answer(child, number, message="r"):
    return Envelope(child, "h", number, message)


def lines(done):
    return done.node.record.state.lines


def test_a_hospital_echoes_the_parents_number_and_counts_its_own():
    done = nodes.arrive(hospital(), question(7), 0.0)
    assert [(e.to, e.number, e.asks) for e in done.out] == [("a", 1, True), ("b", 1, True)]
    done = nodes.arrive(done.node, answer("a", 1), 0.0)
    assert not done.out
    done = nodes.arrive(done.node, answer("b", 1), 0.0)
    assert [(e.to, e.number, e.message) for e in done.out] == [("root", 7, 3)]
    assert done.told == ("told",) and lines(done) == ("asked q", "a r", "b r", "closed")
    done = nodes.arrive(done.node, question(9), 0.0)
    assert [e.number for e in done.out] == [2, 2]


def test_a_repeated_question_is_answered_from_memory():
    device = nodes.start(nodes.new("d", ECHO, NodeEnv(), "h", Policy(), 0.0), 0.0).node
    first = nodes.arrive(device, Envelope("h", "d", 3, "q", True), 0.0)
    again = nodes.arrive(first.node, Envelope("h", "d", 3, "q", True), 0.0)
    assert again.refused and again.again == first.out and again.node == first.node
    old = nodes.arrive(first.node, Envelope("h", "d", 2, "q", True), 0.0)
    assert old.refused and not old.again and old.node == first.node


def test_what_does_not_count_changes_nothing():
    node = nodes.arrive(hospital(), question(1), 0.0).node
    for e in (answer("a", 2), answer("z", 1), question(1), question(0)):
        done = nodes.arrive(node, e, 0.0)
        assert done.refused and done.node == node and not done.out and not done.told


def test_a_role_that_raises_leaves_the_node_as_it_was():
    def receive(env, s, sender, m):
        raise PeerError("no")

    node = hospital(role=replace(HOSPITAL, receive=receive))
    with pytest.raises(PeerError):
        nodes.arrive(node, question(1), 0.0)
    assert node.record.above == 0


def test_the_deadline_closes_and_a_stuck_question_is_repeated():
    node = nodes.arrive(hospital(Policy(quorum=1, deadline=5.0)), question(1), 0.0).node
    done = nodes.tick(node, 5.0)
    assert [e.to for e in done.again] == ["a", "b"] and not done.out and lines(done) == ("asked q",)
    done = nodes.arrive(done.node, answer("a", 1), 6.0)
    assert [e.to for e in nodes.tick(done.node, 10.0).out] == ["root"]


def test_a_child_that_is_back_hears_what_it_owes():
    node = nodes.left(nodes.arrive(hospital(), question(1), 0.0).node, "b")
    assert node.here == ("a",)
    done = nodes.joined(node, "b")
    assert [(e.to, e.message) for e in done.again] == [("b", "q")] and done.node.here == ("a", "b")
    paid = nodes.arrive(done.node, answer("b", 1), 0.0).node
    assert not nodes.joined(nodes.left(paid, "b"), "b").again
    assert not nodes.joined(node, "new").again


def test_work_for_oneself_leaves_last_and_is_owed():
    def receive(env, s, sender, m):
        if sender == UP:
            return s, [Send(DOWN, m), Send(ME, "work")]
        return noted(s, f"{sender} {m}"), []

    done = nodes.arrive(hospital(role=replace(HOSPITAL, receive=receive)), question(1), 0.0)
    assert [e.to for e in done.out] == ["a", "b", "h"] and set(done.node.record.below.owed) == {"a", "b", "h"}
    done = nodes.arrive(done.node, done.out[-1], 0.0)
    assert lines(done) == ("me work",)


def test_last_words_are_owed_nothing():
    def receive(env, s, sender, m):
        return s, [Send(("a",), "bye", answer=False), Send(("b", "absent"), "bye", answer=False), Send(UP, "ok")]

    done = nodes.arrive(hospital(role=replace(HOSPITAL, receive=receive)), question(1), 0.0)
    assert [(e.to, e.asks) for e in done.out] == [("a", False), ("b", False), ("absent", False), ("root", False)]
    assert not done.node.record.below.owed and not done.node.record.below.open


def test_env_knows_the_place():
    seen = []

    def start(env):
        seen.append((env.me, env.here))
        return Log(), []

    hospital(here=("b", "a"), role=replace(HOSPITAL, start=start))
    assert seen == [("h", ("a", "b"))]


def test_the_first_close_may_open_the_next_round():
    """tick goes on for as long as rounds are over: an aggregator with nobody to wait for."""

    def close(env, s):
        s = noted(s, "closed")
        return s, [ask_nobody("next")] if len(s.lines) < 3 else []

    role = Role(lambda env: (Log(), [ask_nobody("first")]), receiving, close, Log)
    node = nodes.start(nodes.new("root", role, NodeEnv(), None, Policy(), 0.0), 0.0).node
    assert lines(nodes.tick(node, 0.0)) == ("closed",) * 3
    node = nodes.start(nodes.new("root", role, NodeEnv(), None, Policy(quorum=1), 0.0), 0.0).node
    assert lines(nodes.tick(node, EMPTY - 1)) == () and lines(nodes.tick(node, EMPTY)) == ("closed",)


def test_randomness_depends_on_run_round_node_and_purpose():
    def draw(seed=1, me="d", *at):
        return NodeEnv(seed=seed, me=me).random(*at).integers(2**60)

    assert draw(1, "d", 3, 1) == draw(1, "d", 3, 1)
    assert (
        len({draw(1, "d", 3, 1), draw(2, "d", 3, 1), draw(1, "e", 3, 1), draw(1, "d", 4, 1), draw(1, "d", 3, 2)}) == 5
    )


def test_an_answer_of_no_use_is_not_waited_for():
    """It has come and will not come again; whoever else owes is."""
    node = nodes.arrive(hospital(), question(7), 0.0).node
    assert nodes.excused(node, "a", 9, 0.0).node == node  # another question's
    done = nodes.excused(node, "a", 1, 0.0)
    assert not done.out and done.node.record.below.owed == {"b": 1}
    done = nodes.arrive(done.node, answer("b", 1), 0.0)
    assert [(e.to, e.number) for e in done.out] == [("root", 7)]
    assert lines(done) == ("asked q", "b r", "closed")


def telling(env, s, sender, m):
    """As `receiving`, but some answers are told to the application, and some make the hospital send something."""
    s, sends = receiving(env, s, sender, m)
    words = {"tell": [Send(OUT, sender)], "send": [Send(OUT, sender), Send(UP, "first")]}
    return s, [*sends, *words.get(m, [])]


def one_by_one(node, answers, now):
    done = nodes.Effects(node)
    for e in answers:
        done = done.then(nodes.arrive(done.node, e, now))
    return done


@pytest.mark.parametrize(
    "policy, answers, taken",
    [
        (Policy(), [("a", 1, "r"), ("b", 1, "tell"), ("a", 1, "r"), ("x", 1, "r"), ("b", 9, "r"), ("c", 1, "r")], 6),
        (Policy(), [("a", 1, "r"), ("b", 1, "send"), ("c", 1, "r")], 2),
        (Policy(), [(name, 1, "r") for name in "abcd"], 3),
        (Policy(need=2), [("a", 1, "r"), ("b", 1, "r")], 0),
        (Policy(deadline=3.0), [("a", 1, "r"), ("b", 1, "r")], 2),
        (Policy(deadline=2.0), [("a", 1, "r"), ("b", 1, "r")], 0),
    ],
)
def test_answers_that_arrive_together_are_those_one_after_the_other(policy, answers, taken):
    """It stops before an answer that may end the round, and behind one after which something is sent."""
    role = Role(starting, telling, closing, Log)
    node = nodes.arrive(hospital(policy, here=("a", "b", "c", "d"), role=role), question(1), 0.0).node
    mails = [answer(*one) for one in answers]
    done, count = nodes.arrive_together(node, mails, 2.0)
    expected = one_by_one(node, mails[:taken], 2.0)
    assert count == taken
    assert (done.node.record, done.out, done.told) == (expected.node.record, expected.out, expected.told)
