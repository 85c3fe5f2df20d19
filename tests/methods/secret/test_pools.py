"""Sums over hospitals: the aggregator reads nothing of one of them, whoever stops, lies, is killed or put back."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.integers.vectors.labels import label_type
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.integers.vectors.settings import why_opened
from edge_sdk.methods.secret.messages.messages import MaskedSum
from edge_sdk.methods.secret.messages.pool_messages import NotOpened, NotPooled, PoolQuestion, PoolReady
from edge_sdk.methods.secret.over_hospitals import pool_aggregator, pool_sums
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.evaluation.evaluation import Progress, Report
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.secrets import mask_assignment
from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys
from tests.methods.problems import HASTY, PATIENT, play, told
from tests.methods.secret.parties import envs_for, masks_of_hospital, run_of

TREE = {"h0": ("d0", "d1", "d2"), "h1": ("d3", "d4"), "h2": ("d5",)}
SIZES = {h: len(devices) for h, devices in TREE.items()}
CALM = NetworkFaults(repeat=0.0)


def pool_run(method="fedavg", hospitals=3, **more):
    uploads = {"cohort": 2, "hospitals": hospitals, **more.pop("uploads", {})}
    return run_of(method, uploads=uploads, **more)


def envs_of(run):
    """The envs of a run's nodes on a tree of three hospitals, one of which has a single device."""
    envs = envs_for(replace(run, uploads={k: v for k, v in run.uploads.items() if k != "hospitals"}))
    envs["aggregator"] = replace(envs["aggregator"], sizes=SIZES)
    like = envs["h0"]
    return envs | {
        h: replace(like, sizes=dict.fromkeys(TREE[h], 1), masks=masks_of_hospital(h, tuple(TREE))) for h in TREE
    }


def played(run, method=None, **more):
    given = {"policies": PATIENT, "tree": TREE, "envs": envs_of(run), "faults": CALM} | more
    return play(method or method_of(run), settings_of(run), run.rounds, **given)


def model(net):
    s = net.nodes["aggregator"].record.state
    while not (hasattr(s, "model") or hasattr(s, "values")):
        s = s.inner
    found = s.model if hasattr(s, "model") else s.values
    return found.values if isinstance(found, lowrank.Packed) else found


# The same run ---------------------------------------------------------------------------------------------------
def unmasked(method):
    """The method with pools, whose hospitals put no masks of their own on their sums."""

    def close(env, s):
        return method.hospital.close(replace(env, masks=Unmasking(env.masks)), s)

    def receive(env, s, sender, m):
        return method.hospital.receive(replace(env, masks=Unmasking(env.masks)), s, sender, m)

    return replace(method, hospital=replace(method.hospital, close=close, receive=receive))


class Unmasking:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def stream(self, peer, context, tag, size):
        return np.zeros(size, np.uint8)


OTHERS = [n for n in METHODS if n != "fedavg" and not why_opened(METHODS[n], METHODS[n].settings())]


@pytest.mark.parametrize("name", ["fedavg", *(pytest.param(n, marks=pytest.mark.long) for n in OTHERS)])
def test_a_pool_has_the_sum_and_the_run_goes_as_without(name):
    """To the bit as without masks between hospitals; and nearly as where each hospital's sum is read."""
    run = pool_run(name, rounds=4, evaluate_every=2)
    net, transcript = played(run)
    bare, _ = played(run, unmasked(method_of(run)))
    assert np.array_equal(model(net), model(bare))
    apart = replace(run, uploads={**run.uploads, "hospitals": 0, "cohort": 2})
    tree = {"h0": ("d0", "d1", "d2"), "h1": ("d3", "d4", "d5")}  # a hospital of one would never count there
    envs = envs_of(apart)
    envs["aggregator"] = replace(envs["aggregator"], sizes={h: len(d) for h, d in tree.items()})
    envs |= {h: replace(envs[h], sizes=dict.fromkeys(d, 1)) for h, d in tree.items()}
    single, _ = played(apart, tree=tree, envs=envs)
    assert np.abs(model(net) - model(single)).max() < 0.05 * np.abs(model(single)).max()
    assert [p.devices for p in told(transcript, Progress)] == [6] * 4 and not told(transcript, NotPooled)
    assert told(transcript, Report)[-1].sums["devices"] == 6


def test_what_a_hospital_sends_is_noise_without_the_others():
    """Also to the aggregator, which takes the devices' masks off it: every byte value is about as frequent."""
    _, transcript = played(pool_run())
    sums = [m for a, b, m in transcript.crossed if isinstance(m, MaskedSum) and b == "aggregator"]
    plain = [
        m for a, b, m in played(pool_run(), unmasked(method_of(pool_run())))[1].crossed if isinstance(m, MaskedSum)
    ]
    assert len(sums) == len(plain) > 6
    for masked, bare in zip(sums, plain, strict=True):
        assert masked.names == bare.names and (masked.words != bare.words).all()
        assert (masked.steps != bare.steps).mean() > 0.9


# Who stops ------------------------------------------------------------------------------------------------------
def silent(at, hospital="h1", what=None):
    """The method, in which a hospital does not send the sum of a question that it has said it has."""
    method = method_of(pool_run())

    def close(env, s):
        after, sends = method.hospital.close(env, s)
        if env.me == hospital and s.pooling and s.inner.ticket == at:
            sends = [replace(e, message=what(e.message) if what else Nobody()) for e in sends]
        return after, sends

    return replace(method, hospital=replace(method.hospital, close=close))


def test_a_hospital_that_drops_out_costs_the_question_and_no_more():
    run = pool_run(rounds=4)
    _, transcript = played(run, silent(at=3))
    (missed,) = told(transcript, NotPooled)
    assert missed == NotPooled(("h0", "h1", "h2"), ("h1",), 3)
    assert [p.devices for p in told(transcript, Progress)] == [6, 0, 6, 6]
    sent = [(a, m.ticket) for a, b, m in transcript.crossed if isinstance(m, MaskedSum)]
    assert ("h0", 3) in sent and len(sent) == len({*sent}), "no sum is in two pools"


def test_the_sum_of_a_hospital_that_leaves_after_it_has_sent_it_is_opened():
    """Once the aggregator held it for one of more devices than there are, and the question counted for nothing."""
    run = pool_run(rounds=2)
    method = method_of(run)

    def close(env, s):
        left = s.inner.ticket == 3 and len(s.sums) == 3
        sizes = {h: n for h, n in env.sizes.items() if not left or h != "h1"}
        return method.aggregator.close(replace(env, sizes=sizes), s)

    _, transcript = played(run, replace(method, aggregator=replace(method.aggregator, close=close)))
    assert [p.devices for p in told(transcript, Progress)] == [6, 6] and not told(transcript, NotOpened)


def test_those_who_are_there_are_enough_if_they_are_as_many_as_the_run_wants():
    run = pool_run(hospitals=2, rounds=5)
    away = NetworkFaults(repeat=0.0, away={"h2": [(6, 60)]})
    _, transcript = played(run, policies=HASTY, faults=away)
    members = [m.members for a, b, m in transcript.crossed if isinstance(m, PoolQuestion)]
    assert ("h0", "h1") in members and ("h0", "h1", "h2") in members


def test_too_few_hospitals_open_nothing():
    run = pool_run(hospitals=3, rounds=5)
    away = NetworkFaults(repeat=0.0, away={"h2": [(6, 60)]})
    _, transcript = played(run, policies=HASTY, faults=away)
    assert any(m.members == ("h0", "h1") and not m.missing for m in told(transcript, NotPooled))
    assert all(len(m.members) == 3 for a, b, m in transcript.crossed if isinstance(m, PoolQuestion))


# Who lies -------------------------------------------------------------------------------------------------------
def test_a_hospital_that_sends_another_sum_voids_the_question():
    shift = lambda m: replace(m, words=m.words + np.uint64(1))  # noqa: E731
    _, transcript = played(pool_run(rounds=4), silent(at=3, what=shift))
    assert [p.devices for p in told(transcript, Progress)] == [6, 0, 6, 6]


def hospital_at_work():
    """Env and state of a hospital that has said that it has a sum, the method, and the question that asks for it."""
    run = pool_run()
    method, kept = method_of(run), {}

    def receive(env, s, sender, m):
        if isinstance(m, PoolQuestion) and env.me == "h0" and not kept:
            kept.update(env=env, state=s, question=m)
        return method.hospital.receive(env, s, sender, m)

    played(run, replace(method, hospital=replace(method.hospital, receive=receive)))
    return method, kept["env"], kept["state"], kept["question"]


METHOD, ENV, STATE, QUESTION = hospital_at_work()


def answer(question, state=STATE, env=None, cohort=2):
    """What the hospital answers, in a run with this cohort; and its state after that."""
    env = env or replace(ENV, masks=fresh())
    hospital = METHOD.hospital if cohort == 2 else method_of(pool_run(uploads={"cohort": cohort})).hospital
    state, sends = hospital.receive(env, state, UP, question)
    assert [send.to for send in sends] == [()]
    state, (send,) = hospital.close(env, state)
    return send.message, state


def fresh():
    """Keystreams of the hospital's process, which has drawn its nonce and spent it on nothing."""
    masks = masks_of_hospital("h0", tuple(TREE))
    masks.drawn = {QUESTION.ticket: (QUESTION.nonce_of("h0"), b"")}
    return masks


def with_members(*members):
    nonces = [np.frombuffer(QUESTION.nonce_of(m), np.uint8) for m in members]
    devices = tuple(QUESTION.devices_of(m) for m in members)
    return PoolQuestion(QUESTION.ticket, members, np.concatenate(nonces), devices)


def test_a_sum_is_in_one_pool_only():
    env = replace(ENV, masks=fresh())
    first, state = answer(QUESTION, env=env)
    assert isinstance(first, MaskedSum) and state.held is None
    assert answer(QUESTION, state, env)[0] == Nobody(), "it is gone from the state"
    again, _ = answer(QUESTION, env=env)
    assert np.array_equal(again.steps, first.steps), "the same call made again gives the same bytes"
    other = replace(QUESTION, nonces=QUESTION.nonces[::-1].copy())
    assert answer(other, env=env)[0] == Nobody(), "nor is it masked for another pool, by whomever it is asked"


def test_a_store_that_was_put_back_has_a_sum_that_nobody_can_mask():
    """A backup has the sum and not the nonce, and so has a process that was killed in between."""
    assert answer(QUESTION, env=replace(ENV, masks=masks_of_hospital("h0", tuple(TREE))))[0] == Nobody()


@pytest.mark.parametrize(
    "question",
    [
        with_members("h0", "h1"),
        with_members("h1", "h2"),
        replace(QUESTION, ticket=QUESTION.ticket + 1),
        PoolQuestion(QUESTION.ticket, ("h0", "h1", "x"), QUESTION.nonces, QUESTION.devices),
    ],
    ids=["too few hospitals", "without this one", "another question", "a hospital of which it has no key"],
)
def test_a_hospital_does_not_send_its_sum_to_a_pool_that_does_not_hide_it(question):
    assert answer(question)[0] == Nobody()


def test_sums_that_were_not_asked_for_are_refused():
    state = pool_aggregator.PoolState(STATE.inner)
    env = replace(ENV, me="aggregator", sizes=SIZES, asked=STATE.inner.ticket)
    m, _ = answer(QUESTION)
    with pytest.raises(PeerError, match="was not asked for"):
        pool_aggregator.summed(env, None, state, "h0", m)
    ready = PoolReady(QUESTION.ticket, QUESTION.nonces[:16], m.form, 2)
    asked = replace(state, ready={"h0": ready}, number=env.asked + 1)
    with pytest.raises(PeerError, match="another than the one it said"):
        pool_aggregator.summed(replace(env, asked=env.asked + 1), None, asked, "h0", m)
    with pytest.raises(PeerError, match="a sum of 4 devices, it has 3"):
        pool_aggregator.noted(env, None, state, "h0", replace(ready, devices=4))
    with pytest.raises(PeerError, match="has a sum of question 9"):
        pool_aggregator.noted(env, None, state, "h0", replace(ready, ticket=9))


# What the method is given ---------------------------------------------------------------------------------------
def test_shares_add_up_to_the_bit_and_stay_within_bounds():
    rng = np.random.default_rng(0)
    counts, bits = {"a": 1, "b": 3, "c": 2}, 4
    steps = rng.integers(0, 2 * rounding.largest(bits) * 6 + 1, 500).astype(np.uint32)
    steps[:2] = 0, 2 * rounding.largest(bits) * 6
    label = label_type(Sum, ("total",))(weight=7.0, count=6, scores={"loss": 3.0})
    whole = Integers(label, ("total",), 500, bits, 1.0, 6, 1.0, rounding.pack(steps, rounding.width(bits, 6)))
    found = dict(pool_sums.shares(None, None, whole, counts))
    assert {h: m.terms for h, m in found.items()} == counts
    assert np.array_equal(sum(m.steps.astype(np.int64) for m in found.values()), steps)
    assert all((m.steps <= 2 * rounding.largest(bits) * m.terms).all() for m in found.values())
    assert sum(m.label.weight for m in found.values()) == pytest.approx(7.0)


# Before the start -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"uploads": {"hospitals": 1}}, "hospitals = 1: a sum of 2 or more"),
        ({"uploads": {"hospitals": 2, "secret": False, "unopened": True}}, "without secret = true"),
        ({"privacy": {"clip": 1.0, "noise": 1.0}, "uploads": {"hospitals": 2, "bits": 16}}, r"with run\.privacy"),
        ({"method": "fedal"}, "with method fedal"),
    ],
)
def test_a_run_that_cannot_keep_it_is_refused_before_it_starts(more, why):
    with pytest.raises(UsageError, match=why):
        settings_of(pool_run(**{"settings": {}, **more}))


def test_a_run_of_too_few_hospitals_or_without_keys_is_refused_before_it_starts(tmp_path):
    run = pool_run()
    keys = AggregatorKeys(key=tmp_path / "key", devices=tmp_path / "devices.pub")
    with pytest.raises(UsageError, match=r"hospitals = 3: there are 2"):
        mask_assignment.for_aggregator(run, keys, {"h0": 3, "h1": 2})
    mask_assignment.check_hospitals(run, SIZES)  # one of a single device, whose sum nobody reads
    with pytest.raises(UsageError, match="this one no keys"):
        mask_assignment.for_pooling(run, None, "h0")
    assert mask_assignment.for_pooling(run_of(), None, "h0") == {}
