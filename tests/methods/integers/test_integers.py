"""Integers around every method that takes them: against a plain channel, the contract, losses and lost disks."""

from dataclasses import fields, replace
from math import inf

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.methods import METHODS
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.messages import Behind, Changes, Integers
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.shared.evaluation.evaluation import Progress, evaluated
from tests.methods import contract
from tests.methods.integers.plain_channel import Channel
from tests.methods.problems import DEVICES, HASTY, LAYOUT, LOSSY, TREE, envs_of, play, told
from tests.methods.test_contract import settings_of

CALM = NetworkFaults(repeat=0.0)
SUPPORTED = [n for n, m in METHODS.items() if not isinstance(m.traffic(settings_of(m)), str)]
UPLOADS = Uploads(bits=4, down_bits=3)


def around(name, uploads=UPLOADS, **changes):
    """A method with integers, and its settings."""
    method = METHODS[name]
    settings = replace(settings_of(method), **changes)
    return rounded(method, settings, uploads), settings


def model_of(state):
    """The vectors that an aggregator's inner state holds, whatever it calls them."""
    found = [getattr(state, f.name) for f in fields(state) if f.name in ("model", "values", "control", "gamma_mean")]
    return np.concatenate([lowrank.unpack(LAYOUT, v) if isinstance(v, lowrank.Packed) else v for v in found])


def aggregator(net):
    return net.nodes["aggregator"].record.state


def crossed(transcript, kind):
    return [(a, b, m) for a, b, m in transcript.crossed if isinstance(m, kind)]


def test_these_methods_can():
    assert {*METHODS} - {*SUPPORTED} == {"hsgd", "fedal", "fedslr-b", "fedslr+fedal", "fedslr-b+fedal"}


# Against a plain channel ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SUPPORTED)
def test_agrees_with_the_plain_channel(name):
    """In float64 and with everybody: the same model, and the same sums of integers at each hospital."""
    method, settings = around(name, participation=1.0)
    net, transcript = play(method, settings, 4, faults=CALM)
    envs = envs_of(METHODS[name], settings, 4)
    traffic = METHODS[name].traffic(settings)
    channel = Channel(METHODS[name], envs, 4, 3, traffic, opens=not traffic.adds)
    expected = model_of(channel.run())
    assert np.abs(model_of(aggregator(net).inner) - expected).max() < 1e-9 * max(1.0, np.abs(expected).max())
    sums = {(h, v): s for h, v, s in summed_integers(transcript)}
    assert sums == channel.sums and (len(sums) == 3 * len(TREE)) == traffic.adds


def summed_integers(transcript):
    """(hospital, version, signed sums) of every sum of integers that no hospital has opened."""
    asked = {b: [m.version for _, to, m in crossed(transcript, Changes) if to == b] for b in TREE}
    for h in TREE:
        uploads = [m for a, b, m in crossed(transcript, Integers) if a == h]
        for version, m in zip(asked[h], uploads, strict=True):
            if m.bits == 4 and m.terms == len(TREE[h]) and method_adds(m):
                yield h, version, [int(s) - 7 * m.terms for s in m.steps]


def method_adds(m):
    return type(m.label).__name__ == "SumLabel" or type(m.label).__name__ == "VectorSumLabel"


def test_factors_travel_where_they_are_smaller():
    """FedSLR at rank one: the plain channel again, fewer bytes than a difference, and whoever is new can read them."""
    method, settings = around("fedslr", Uploads(bits=4, down_bits=16), participation=1.0, lam=3.0, eta_g=1.0)
    net, transcript = play(method, settings, 6, faults=CALM)
    channel = Channel(METHODS["fedslr"], envs_of(METHODS["fedslr"], settings, 6), 4, 16, method.traffic(settings))
    expected = model_of(channel.run())
    assert np.abs(model_of(aggregator(net).inner) - expected).max() < 1e-9 * max(1.0, np.abs(expected).max())
    asked = [m for _, b, m in crossed(transcript, Changes) if b == "d1"]
    factored = [m for m in asked if any(change.ranks for change in m.changes)]
    assert len(factored) == channel.factored > 2
    env, (device, _) = (
        replace(envs_of(method, settings, 6)["d1"], me="d1"),
        method.device.start(None or net.nodes["d1"].env),
    )
    device, _ = method.device.receive(env, device, UP, replace(factored[-1], base=-1))
    assert device.reference.model.tobytes() == aggregator(net).reference.model.tobytes()


# The contract ---------------------------------------------------------------------------------------------------
LONG = [name for name in SUPPORTED if name not in ("fedslr", "fedbcd")]
CHECKS = [check for check in contract.CHECKS if check is not contract.an_interrupted_round_is_dropped]


@pytest.mark.parametrize("check", CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["fedslr", "fedbcd", *(pytest.param(n, marks=pytest.mark.long) for n in LONG)])
def test_contract(name, check):
    method, settings = around(name)
    check(evaluated(method, every=3), settings)


@pytest.mark.parametrize("name", ["fedslr", "scaffold", "fedbcd"])
def test_an_interrupted_round_is_dropped(name):
    """A hospital that is asked anew before it has closed sends the sum of the new round's integers only."""
    method, settings = around(name)
    questions, answers = calls_of_h0(method, settings)
    env, found = replace(envs_of(method, settings, 6, np.float32)["h0"], me="h0", here=TREE["h0"]), []
    for interrupted in (False, True):
        s, _ = method.hospital.start(env)
        for k, question in enumerate(questions[:3]):
            s, _ = method.hospital.receive(env, s, UP, question)
            for answer in answers[k][: 1 if k == 1 and interrupted else 0 if k == 1 else None]:
                s, _ = method.hospital.receive(env, s, *answer)
            s, sends = (s, []) if k == 1 else method.hospital.close(env, s)
        found.append(contract.fingerprint([send.message for send in sends]))
    assert found[0] == found[1]


def calls_of_h0(method, settings):
    """Questions that h0 has had, and the answers to each."""
    questions, answers = [], []

    def wrap(tier, what, f):
        def call(env, *args):
            if tier == "hospital" and what == "receive" and env.me == "h0":
                if args[1] == UP:
                    questions.append(args[2])
                    answers.append([])
                else:
                    answers[-1].append(args[1:])
            return f(env, *args)

        return call

    contract.run(contract.around(method, wrap), settings, faults=CALM)
    return questions, answers


# Losses ---------------------------------------------------------------------------------------------------------
def references(net):
    return {name: node.record.state.reference for name, node in net.nodes.items()}


@pytest.mark.parametrize("name", ["fedslr", "fedbcd"])
def test_whoever_was_away_reads_the_next_question(name):
    """Messages are lost, devices and hospitals away for several rounds: nobody is ever behind, and all end alike."""
    method, settings = around(name)
    net, transcript = play(method, settings, 30, faults=LOSSY, policies=HASTY, envs=envs_of(method, settings, 30))
    assert len(told(transcript, Progress)) == 30 and not crossed(transcript, Behind)
    found = references(net)
    top = found["aggregator"]
    for name_, r in found.items():
        assert r.version < top.version or r.model.tobytes() == top.model.tobytes(), name_
    assert sum(r.version == top.version for r in found.values()) > 5


def test_who_missed_a_few_rounds_is_sent_changes_and_after_many_the_whole():
    method, settings = around("fedavg", Uploads(bits=8, down_bits=8))
    for away, whole in (((3, 9), False), ((3, 40), True)):
        faults = NetworkFaults(repeat=0.0, delay=(0.1, 0.2), away={"d1": [away]})
        _, transcript = play(method, settings, 25, faults=faults, policies=HASTY)
        asked = [m for a, b, m in crossed(transcript, Changes) if b == "d1"]
        caught_up = [m for m in asked if m.base != m.version - 1][-1]
        assert (caught_up.base < 0) == whole and (len(caught_up.changes) > 1) != whole
        assert not crossed(transcript, Behind) and transcript.ran["d1"][-1] == 25


def test_after_a_lost_disk_fedslr_begins_an_era():
    """The device is sent the whole reference first, and then says that it has forgotten its gamma."""
    method, settings = around("fedslr")
    lost = []

    def receive(env, s, sender, m):
        if env.me == "d1" and isinstance(m, Changes) and m.version == 3 and not lost:
            lost.append(s)
            s = method.device.start(env)[0]
        return method.device.receive(env, s, sender, m)

    broken = replace(method, device=replace(method.device, receive=receive))
    net, transcript = play(broken, settings, 8, faults=CALM)
    kinds = [type(m).__name__ for a, b, m in transcript.crossed if a == "d1"]
    assert kinds == [*["Integers"] * 2, "Behind", "Forgotten", *["Integers"] * 4]
    assert aggregator(net).inner.era == 1


@pytest.mark.parametrize("node", ["d1", "h0"])
def test_a_replaced_disk_is_sent_the_whole_reference(node):
    """It says that it is behind, sits out one round, and goes on with the same reference as the others."""
    method, settings = around("fedavg")
    lost = []

    def once(role):
        def receive(env, s, sender, m):
            if env.me == node and isinstance(m, Changes) and m.version == 4 and not lost:
                lost.append(s)
                s = role.start(env)[0]
            return role.receive(env, s, sender, m)

        return replace(role, receive=receive)

    broken = replace(method, device=once(method.device), hospital=once(method.hospital))
    net, transcript = play(broken, settings, 8, faults=CALM)
    assert lost and {a for a, _, _ in crossed(transcript, Behind)} == {node}
    asked = [m for _, b, m in crossed(transcript, Changes) if b == node]
    assert [m.version for m in asked if m.base < 0] == [5]
    found = references(net)
    assert {r.model.tobytes() for r in found.values()} == {found["aggregator"].model.tobytes()}
    progress = [p.devices for p in told(transcript, Progress)]
    assert progress[3] == 6 - (1 if node == "d1" else 3) and set(progress[:3] + progress[4:]) == {6}


def test_a_parent_that_lost_its_disk_begins_again_with_all_of_them():
    """The aggregator's own reference is at version 0 again, and its children's are not: they say so, and are told."""
    method, settings = around("fedavg")
    env = replace(envs_of(method, settings, 8)["d1"], me="d1")
    device, _ = method.device.start(env)
    _, transcript = play(method, settings, 3, faults=CALM)
    asked = [m for _, b, m in crossed(transcript, Changes) if b == "d1"]
    for question in asked:
        device, _ = method.device.receive(env, device, UP, question)
    again, sends = method.device.receive(env, device, UP, asked[0])
    assert isinstance(sends[0].message, Behind) and again is device


def test_a_reference_that_differs_in_a_bit_is_noticed():
    method, settings = around("fedavg")
    env = replace(envs_of(method, settings, 8)["d1"], me="d1")
    _, transcript = play(method, settings, 3, faults=CALM)
    asked = [m for _, b, m in crossed(transcript, Changes) if b == "d1"]
    device, _ = method.device.start(env)
    device, _ = method.device.receive(env, device, UP, asked[0])
    other = device.reference.model.copy()
    other[3] = np.nextafter(other[3], inf)
    device = replace(device, reference=replace(device.reference, model=other))
    _, sends = method.device.receive(env, device, UP, asked[1])
    assert isinstance(sends[0].message, Behind)


# Error feedback -------------------------------------------------------------------------------------------------
def test_error_feedback_telescopes():
    """FedSLR: gamma of the aggregator differs from the mean of its devices' by what is left over now, and no more."""
    gaps = {}
    for feedback in (True, False):
        method, settings = around("fedslr", Uploads(bits=2, feedback=feedback), participation=1.0, eta_g=1.0)
        net, _ = play(method, settings, 20, faults=CALM)
        devices = [net.nodes[d].record.state for d in DEVICES]
        mean = sum(s.inner.tried for s in devices) / len(devices)
        gap = aggregator(net).inner.gamma_mean - mean
        gaps[feedback] = np.abs(gap).max()
        if feedback:
            states = [node.record.state for name, node in net.nodes.items() if name != "aggregator"]
            left = sum(s.left for s in states if s.left.size) / len(devices)
            assert np.abs(gap - left / settings.eta_g).max() < 1e-9
    assert gaps[True] < gaps[False]


def test_without_clipping_and_with_many_bits_it_is_the_method_itself():
    method, settings = around("fedslr", Uploads(bits=16))
    net, _ = play(method, settings, 10, faults=CALM)
    plain, _ = play(METHODS["fedslr"], settings, 10, faults=CALM)
    expected = model_of(plain.nodes["aggregator"].record.state)
    assert np.abs(model_of(aggregator(net).inner) - expected).max() < 1e-3 * np.abs(expected).max()
