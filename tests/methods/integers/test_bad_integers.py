"""Integers of bad peers: what the codec, the hospital and the bounds around it refuse."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.messages import Changes, Integers
from edge_sdk.methods.integers.vectors.rounded import DOWNWARD, Rounding, round_vector
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.evaluation.evaluation import Progress, evaluated
from edge_sdk.methods.shared.evaluation.reports import Diverged
from edge_sdk.wire.codec.codec import Codec, DecodeError
from tests.methods.integers.test_integers import CALM, UPLOADS, around, crossed
from tests.methods.problems import LAYOUT, PATIENT, THETA0, TREE, envs_of, play, told

METHOD, SETTINGS = around("fedavg", weighting="samples")
CODEC = Codec(METHOD.messages, layout=LAYOUT)
CARELESS = Codec(METHOD.messages, layout=LAYOUT, finite=False)  # writes whatever it is given
_, TRANSCRIPT = play(METHOD, SETTINGS, 3, faults=CALM, envs=envs_of(METHOD, SETTINGS, 3, np.float32))
QUESTIONS = [m for _, b, m in crossed(TRANSCRIPT, Changes) if b == "d1"]
UPLOAD = [m for a, _, m in crossed(TRANSCRIPT, Integers) if a == "d1"][-1]
SUM = [m for a, _, m in crossed(TRANSCRIPT, Integers) if a == "h0"][-1]


def hospital(asked=3):
    """h0 and its state after so many questions."""
    env = replace(envs_of(METHOD, SETTINGS, 3, np.float32)["h0"], me="h0", here=TREE["h0"])
    s, _ = METHOD.hospital.start(env)
    for _, b, question in crossed(TRANSCRIPT, Changes):
        if b == "h0" and asked:
            s, _ = METHOD.hospital.receive(env, s, UP, question)
            asked -= 1
    return env, s


FULL = rounding.pack(np.full(UPLOAD.size, 15, np.uint32), 4)
BAD = {
    "too many bits": dict(bits=17),
    "one bit": dict(bits=1),
    "endless numbers": dict(half=inf),
    "no number": dict(half=nan),
    "a negative range": dict(half=-1.0),
    "a range finer than any number": dict(half=1e-37),
    "a spread that is none": dict(spread=nan),
    "no vector": dict(there=()),
    "a vector twice": dict(there=("total", "total")),
    "too few bytes": dict(packed=UPLOAD.packed[:-1].copy()),
    "more numbers than bytes": dict(size=UPLOAD.size + 8),
    "an endless sum": dict(terms=1 << 40),
    "no summand": dict(terms=0),
    "an integer above the largest": dict(packed=FULL),
    "a weight below zero": dict(label=replace(UPLOAD.label, weight=-1.0)),
    "a score that is none": dict(label=replace(UPLOAD.label, scores={"loss": nan})),
}


@pytest.mark.parametrize("what", BAD)
def test_the_codec_refuses(what):
    assert CODEC.decode(CODEC.encode(UPLOAD)).bits == 4
    with pytest.raises(DecodeError):
        CODEC.decode(CARELESS.encode(replace(UPLOAD, **BAD[what])))


def test_changes_that_lead_nowhere_are_refused():
    for changed in (dict(base=0), dict(version=9), dict(base=7, changes=())):
        with pytest.raises(DecodeError, match="lead not"):
            CODEC.decode(CODEC.encode(replace(QUESTIONS[2], **changed)))


@pytest.mark.parametrize("half", [5e-324, 1e-37, nan, inf, 1e38, -1.0])
def test_a_question_with_a_scale_on_which_nobody_can_round_is_refused(half):
    with pytest.raises(DecodeError, match=r"bits for numbers|at \$\.half"):
        CODEC.decode(CARELESS.encode(replace(QUESTIONS[2], half=half)))


@pytest.mark.parametrize("size", [1e-44, 1e-37, 1e-33])
@pytest.mark.parametrize("rotates", [True, False])
def test_a_vector_of_next_to_nothing_is_rounded_on_a_scale_that_all_can_read(size, rotates):
    """As what rounding left of a model that has not moved for a while may be."""
    x = np.zeros(64, np.float32)
    x[3] = size
    found = round_vector(Rounding(0, 1, DOWNWARD, 8, rotates), x, 0.0, np.random.default_rng(0))
    assert found.half >= rounding.FINEST and (found.steps <= 2 * rounding.largest(8)).all()
    assert np.abs(found.left).max() <= 2 * found.half


STRANGE = {
    "another scale": replace(UPLOAD, half=2 * UPLOAD.half),
    "other bits": replace(UPLOAD, bits=8, packed=rounding.pack(UPLOAD.steps, 8)),
    "a sum of a device": replace(UPLOAD, terms=2, packed=rounding.pack(UPLOAD.steps, 5)),
    "floats": Sum(THETA0.astype(np.float32), 1.0),
    "a question": replace(UPLOAD, label=QUESTIONS[0].label),
    "fewer numbers": replace(UPLOAD, size=8, packed=rounding.pack(UPLOAD.steps[:8], 4)),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_hospital_refuses(what):
    env, s = hospital()
    s, _ = METHOD.hospital.receive(env, s, "d0", UPLOAD)
    with pytest.raises(PeerError):
        METHOD.hospital.receive(env, s, "d1", STRANGE[what])


def test_the_aggregator_refuses_a_sum_of_more_devices_than_there_are():
    env = replace(envs_of(METHOD, SETTINGS, 3, np.float32)["aggregator"], me="aggregator", here=tuple(TREE))
    net, _ = play(METHOD, SETTINGS, 3, faults=CALM, envs=envs_of(METHOD, SETTINGS, 3, np.float32))
    s = net.nodes["aggregator"].record.state
    with pytest.raises(PeerError, match="a sum of 3 uploads, it has 1"):
        METHOD.aggregator.receive(env, s, "h2", SUM)


def test_a_change_of_another_size_is_refused():
    device, _ = METHOD.device.start(envs_of(METHOD, SETTINGS, 3, np.float32)["d1"])
    first = QUESTIONS[0]
    short = replace(first, changes=(replace(first.changes[0], packed=first.changes[0].packed[:-3].copy()),))
    with pytest.raises(PeerError, match="a change of"):
        METHOD.device.receive(envs_of(METHOD, SETTINGS, 3, np.float32)["d1"], device, UP, short)


# The bounds around ----------------------------------------------------------------------------------------------
def lying(method, change):
    """The method, whose device d1 sends what it is given after a change."""

    def receive(env, s, sender, m):
        s, sends = method.device.receive(env, s, sender, m)
        return s, [
            replace(send, message=change(send.message))
            if env.me == "d1" and isinstance(send.message, Integers)
            else send
            for send in sends
        ]

    return replace(method, device=replace(method.device, receive=receive))


def test_who_claims_a_spread_out_of_all_proportion_is_refused():
    """Its claim does not make the scale of the others coarse."""
    method = lying(METHOD, lambda m: replace(m, spread=1e6 * m.spread))
    net, transcript = play(evaluated(method), SETTINGS, 6, faults=CALM, envs=envs_of(METHOD, SETTINGS, 6, np.float32))
    assert any(m.sender == "d1" and "length" in m.reason for m in told(transcript, Refused, "h0"))
    honest, _ = play(evaluated(METHOD), SETTINGS, 6, faults=CALM, envs=envs_of(METHOD, SETTINGS, 6, np.float32))
    spreads = [n.nodes["aggregator"].record.state.inner.spread for n in (net, honest)]
    assert spreads[0] < 2 * spreads[1]


def test_who_overclaims_counts_with_what_is_registered():
    envs = envs_of(METHOD, SETTINGS, 4)
    samples = envs["d1"].samples
    envs["h0"] = replace(envs["h0"], limits=Limits(samples={"d1": samples // 2}))
    method = evaluated(METHOD)
    _, transcript = play(method, SETTINGS, 4, faults=CALM, envs=envs, policies=PATIENT)
    sums = [m for a, _, m in crossed(transcript, Integers) if a == "h0"]
    expected = sum(envs[d].samples for d in TREE["h0"]) - samples + samples // 2
    assert {m.label.weight for m in sums} == {float(expected)}
    assert not told(transcript, Refused, "h0")


def test_less_weight_means_smaller_integers():
    half = UPLOAD.weighing(UPLOAD.label.weight / 2)
    exact = UPLOAD.numbers(np.zeros(0)) / 2
    assert np.abs(half.numbers(np.zeros(0)) - exact).max() <= UPLOAD.half / rounding.largest(4) / 2 + 1e-12
    half.check(LAYOUT)


def test_training_that_diverges_costs_its_round_only():
    method = evaluated(METHOD)
    envs = envs_of(METHOD, SETTINGS, 6, np.float32)
    problem, calls = envs["d1"].grad_fn, [0]

    def broken(theta, indices=None):
        calls[0] += 1
        loss, slope = problem(theta, indices)
        return loss, slope * np.float32(1e30) if calls[0] == 8 else slope  # the last batch of the second round

    envs["d1"] = replace(envs["d1"], grad_fn=broken)
    _, transcript = play(method, SETTINGS, 6, faults=CALM, envs=envs)
    assert [m.round for m in told(transcript, Diverged, "d1")] == [1]
    assert [p.devices for p in told(transcript, Progress)] == [6, 5, 5, 6, 6, 6]  # then it is behind, for one round


# Settings -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("given", [dict(bits=1), dict(bits=17), dict(down_bits=1), dict(down_bits=17)])
def test_settings_are_checked(given):
    with pytest.raises(UsageError, match="2 to 16 bits"):
        Uploads(**given)


@pytest.mark.parametrize("name", ["hsgd", "fedal", "fedslr-b", "fedslr+fedal"])
def test_who_cannot_says_why(name):
    with pytest.raises(UsageError, match=f"run.uploads with method {name.replace('+', '.')}: "):
        rounded(METHODS[name], METHODS[name].settings(), UPLOADS)


def test_an_empty_layout_is_no_model():
    with pytest.raises(ValueError, match="the model has 0"):
        replace(UPLOAD, size=400).check(Layout(()))
