"""What every method must keep to, as checks that raise AssertionError. Each takes a method and plays it.

inputs_untouched, replays        roles are pure functions
survives_the_codec               states and messages can be written and read, and mean the same afterwards
no_number_below_zero             of COUNTED is taken in a message
only_declared_messages           nothing else leaves a node
duplicates_change_nothing        every message twice, or once: the same
late_answers_change_nothing      an answer after the close, or never: the same
an_interrupted_round_is_dropped  what a hospital had gathered does not leak into its next answer
a_silent_device_does_not_stall
a_device_without_samples_spoils_nothing
order_does_not_matter            any delays: the same, bit for bit
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from math import inf

import numpy as np

from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP, Method, Role
from edge_sdk.errors import AuscultError
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from edge_sdk.wire.codec.codec import Codec
from tests.methods.problems import DEVICES, HASTY, LAYOUT, PATIENT, TREE, envs_of, play, told

ROUNDS = 6
TIERS = ("device", "hospital", "aggregator")


COUNTED = ("round", "interval", "exchange", "era", "pick", "count")
"""What messages call numbers that are counted from 0."""
PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
name_fields = cache(lambda kind: [f.name for f in dataclasses.fields(kind)])


def fingerprint(value) -> bytes:
    """Equal for equal plain data, bit for bit. Most of a run's time goes here, so the common kinds come first."""
    if type(value) in PLAIN:
        return repr(value).encode()
    if isinstance(value, np.ndarray):
        return repr((value.dtype.str, value.shape)).encode() + value.tobytes()
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(map(fingerprint, value)) + b"]"
    if type(value) is Layout:
        return fingerprint_layout(value)
    if dataclasses.is_dataclass(value):
        kind = type(value)
        fields = (f"{name}=".encode() + fingerprint(getattr(value, name)) for name in name_fields(kind))
        return kind.__name__.encode() + b"(" + b",".join(fields) + b")"
    if isinstance(value, Mapping):
        return b"{" + fingerprint(sorted(value.items())) + b"}"
    return repr(value).encode()


@cache
def fingerprint_layout(layout: Layout) -> bytes:
    """Nothing in a layout can be changed, so it is read once."""
    return repr(layout).encode()


def run(method, settings, **more):
    return play(method, settings, ROUNDS, envs=envs_of(method, settings, ROUNDS, np.float32), **more)


def outcome(played) -> dict[str, bytes]:
    """Node -> its final state and what it told its application."""
    net, transcript = played
    names = ("aggregator", *TREE, *DEVICES)
    return {
        n: fingerprint([net.nodes[n].record.state, sorted(fingerprint(m) for who, m in transcript.told if who == n)])
        for n in names
    }


def around(method: Method, wrap) -> Method:
    """The method with wrap(tier, name of the function, function) in place of each function of its roles."""

    def role(tier):
        inner = getattr(method, tier)
        calls = {f: wrap(tier, f, getattr(inner, f)) for f in ("start", "receive", "close")}
        return Role(**calls, state=inner.state)

    return dataclasses.replace(method, **{tier: role(tier) for tier in TIERS})


def inputs_untouched(method, settings):
    def wrap(tier, what, f):
        def call(*args):
            before = [fingerprint(a) for a in args]
            done = f(*args)
            assert [fingerprint(a) for a in args] == before, f"{tier}.{what} changed its input"
            return done

        return call

    run(around(method, wrap), settings)


def replays(method, settings):
    def wrap(tier, what, f):
        def call(*args):
            done = f(*args)
            assert fingerprint(f(*args)) == fingerprint(done), f"{tier}.{what} is no function of its arguments"
            return done

        return call

    run(around(method, wrap), settings)


def survives_the_codec(method, settings):
    """As over a wire and through a store: every message and every state is bytes in between."""
    messages = Codec(method.messages, layout=LAYOUT, dtype=np.float32)

    def wrap(tier, what, f):
        role = getattr(method, tier)
        records = Codec([role.state, *method.messages], layout=LAYOUT, dtype=np.float32, finite=False)

        def call(env, *args):
            s, sends = f(env, *args)
            assert type(s) is role.state, f"{tier}.{what} left a {type(s).__name__}, declared {role.state.__name__}"
            return records.decode(records.encode(s), role.state), sends

        return call

    plain = outcome(run(method, settings))
    through = run(around(method, wrap), settings, through=lambda m: messages.decode(messages.encode(m)))
    assert outcome(through) == plain, "bytes in between change the result"


def no_number_below_zero(method, settings):
    """From a round of -1 no random stream derives, and -1 devices would be subtracted."""
    seen = {}
    run(method, settings, through=lambda m: seen.setdefault(type(m), m) and m)
    for message in seen.values():
        for field in dataclasses.fields(message):
            if field.name in COUNTED and type(getattr(message, field.name)) is int:
                wrong = dataclasses.replace(message, **{field.name: -1})
                assert is_refused(wrong), f"{type(message).__name__} may say {field.name} = -1"


def is_refused(message) -> bool:
    try:
        getattr(message, "check", lambda layout: None)(LAYOUT)
    except ValueError:
        return True
    return False


def only_declared_messages(method, settings):
    def leaving(m):
        assert type(m) in method.messages, f"{type(m).__name__} leaves a node, undeclared"
        return m

    run(method, settings, through=leaving)


def duplicates_change_nothing(method, settings):
    once = outcome(run(method, settings, faults=NetworkFaults(repeat=0.0)))
    twice = run(method, settings, faults=NetworkFaults(repeat=1.0))
    assert twice[1].refused and outcome(twice) == once, "a duplicate changed something"


def late_answers_change_nothing(method, settings):
    def played(delay):
        slow = {("d1", 2): delay, ("h1", 3): delay}
        return run(method, settings, faults=NetworkFaults(slow=slow), policies=HASTY)

    late, never = played(60.0), played(1e6)
    assert any(sender == "d1" for _, sender, _ in late[1].refused)
    assert outcome(late) == outcome(never), "a late answer changed something"


def an_interrupted_round_is_dropped(method, settings):
    """A hospital that is asked anew before it has closed answers as one that nobody had answered yet."""
    heard = recorded_hospital_calls(method, settings)
    role, answers = method.hospital, []
    (first, second), (early, late), env = heard["questions"][:2], heard["answers"][:2], heard["env"]
    for interrupted in (True, False):
        s, _ = role.start(env)
        s, _ = role.receive(env, s, UP, first)
        if interrupted:
            s, _ = role.receive(env, s, *early)
        s, _ = role.receive(env, s, UP, second)
        s, _ = role.receive(env, s, *late)
        answers.append(fingerprint(role.close(env, s)[1]))
    assert answers[0] == answers[1], "what was gathered before an interruption was counted after it"


def recorded_hospital_calls(method, settings):
    """env, training questions and training answers that h0 has seen."""
    seen = {"env": None, "questions": [], "answers": []}

    def wrap(tier, what, f):
        def call(env, *args):
            if tier == "hospital" and what == "receive" and env.me == "h0":
                seen["env"] = env
                seen["questions" if args[1] == UP else "answers"].append(args[2] if args[1] == UP else args[1:])
            return f(env, *args)

        return call

    run(around(method, wrap), settings, faults=NetworkFaults(repeat=0.0))
    return seen


def a_silent_device_does_not_stall(method, settings):
    _, transcript = run(method, settings, faults=NetworkFaults(away={"d5": [(0, inf)]}), policies=HASTY)
    rounds = [m.round for m in told(transcript, Progress)]
    assert rounds == list(range(1, ROUNDS + 1)), f"{len(rounds)} of {ROUNDS} rounds with a silent device"


def a_device_without_samples_spoils_nothing(method, settings):
    """What it answers can be read by who gets it, and so can all that follows from it. (Where features are divided,
    its hospital knows how many samples it has, and refuses an answer for others.)"""
    if method.kernels == "split":
        return
    messages = Codec(method.messages, layout=LAYOUT, dtype=np.float32)
    envs = envs_of(method, settings, ROUNDS, np.float32)
    envs["d4"] = dataclasses.replace(envs["d4"], samples=0)

    def read(m):
        try:
            return messages.decode(messages.encode(m))
        except AuscultError as error:
            raise AssertionError(f"{type(m).__name__}: {error}") from error

    with np.errstate(all="ignore"):
        _, transcript = play(method, settings, ROUNDS, envs=envs, through=read)
    assert len(told(transcript, Progress)) == ROUNDS


def order_does_not_matter(method, settings):
    """Delays in between, so that every seed has another order of arrival."""
    played = [run(method, settings, policies=PATIENT, seed=s, faults=NetworkFaults(delay=(0.1, 9.0))) for s in range(3)]
    orders = {tuple(c.children) for _, transcript in played for c in transcript.closed["h0"]}
    assert len(orders) > 2
    assert len({tuple(outcome(p).items()) for p in played}) == 1, "the order of arrival changes the result"


CHECKS = (
    inputs_untouched,
    replays,
    survives_the_codec,
    no_number_below_zero,
    only_declared_messages,
    duplicates_change_nothing,
    late_answers_change_nothing,
    an_interrupted_round_is_dropped,
    a_silent_device_does_not_stall,
    a_device_without_samples_spoils_nothing,
    order_does_not_matter,
)
