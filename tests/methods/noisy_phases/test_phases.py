"""Phases with noise: what leaves a device, how long and how noisy it is, what is refused, and what a run comes to."""

from collections import Counter
from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.privacy import epsilon_of
from edge_sdk.contract.method import UP, Send
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.noisy_phases import contents
from edge_sdk.methods.noisy_phases.contents import LABELS, MEANS, PHASES, SCALES, SETTLING
from edge_sdk.methods.noisy_phases.messages import InScales, NoisySums
from edge_sdk.methods.noisy_phases.method import NoisyPhasesState, noisy
from edge_sdk.methods.settling.counting import Counts
from edge_sdk.methods.settling.method import Choice, Settle
from edge_sdk.methods.settling.self_training import LabelChoice
from edge_sdk.methods.settling.settings import Settling
from edge_sdk.methods.shared.aggregation.exact import split
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.evaluation.spent import PrivateReport
from edge_sdk.methods.standardising.equations import UNIT, statistics_of
from edge_sdk.methods.standardising.messages import AskFeatures, FeatureSums
from edge_sdk.nodes.configuration.around import phases_of, settling_of
from edge_sdk.nodes.configuration.assembly import method_of
from tests.methods.noisy_phases.runs import ROUNDS, envs_of, noisy_run, played, sent, unwrapped
from tests.methods.problems import DEVICES, told
from tests.methods.secret.test_self_training_sums import LAYOUT, envs

QUIET = noisy_run()
S = settling_of(QUIET)


# Whole runs -----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def quiet():
    """A run with next to no noise."""
    return played(QUIET)


def test_a_run_with_noise_has_all_phases_and_nothing_leaves_without_noise(quiet):
    _, trace = quiet
    up = Counter(m.phase for _, m in sent(trace, NoisySums))
    assert up == dict.fromkeys(PHASES, len(DEVICES))
    assert not sent(trace, (Counts, FeatureSums), (*DEVICES, "h0", "h1"))
    assert len(sent(trace, Integers)) == ROUNDS * len(DEVICES)
    (choice,), (labels,) = told(trace, Choice), told(trace, LabelChoice)
    assert choice.devices == labels.devices == len(DEVICES) and choice.correct > 0.8 * choice.samples
    assert labels.threshold == 0.4


def test_with_next_to_no_noise_statistics_are_the_geometric_mean_of_scales_and_means_in_them(quiet):
    net, _ = quiet
    found = net.nodes["aggregator"].record.state.inner.inner.statistics
    own = [envs(QUIET)[d].feature_means() for d in DEVICES]
    logs = np.mean([0.5 * np.log(square - mean**2) for mean, square in own], 0)
    means = np.mean([mean for mean, _ in own], 0)
    assert found[5:] == pytest.approx(logs, abs=0.05) and found[:5] == pytest.approx(means, abs=0.05)


def test_masks_and_noise_go_together(quiet):
    run = noisy_run(secret=True)
    _, trace = played(run)
    kinds = (Choice, LabelChoice, PrivateReport)
    assert [told(trace, kind) for kind in kinds] == [told(quiet[1], kind) for kind in kinds]
    assert not sent(trace, (NoisySums, Counts, FeatureSums, Integers), (*DEVICES, "h0", "h1"))
    assert not [m for _, m in trace.told if isinstance(m, Refused)]


def test_a_hospital_passes_no_sum_of_too_few_on():
    _, trace = played(noisy_run(settle={"statistics": False}), envs_of(QUIET))
    assert all(m.terms == 3 for _, m in sent(trace, NoisySums, ("h0", "h1")))
    run = noisy_run(settle={"statistics": False})
    role, env = method_of(run).hospital, envs_of(run)["h0"]
    state, _ = role.start(env)
    state, _ = role.receive(env, state, UP, last(trace, Settle))
    answers = [(d, m) for d, m in sent(trace, NoisySums, ("d0", "d1")) if m.phase == SETTLING]
    for device, m in answers:
        state, _ = role.receive(env, state, device, m)
    _, (send,) = role.close(env, state)
    assert (send.message.terms, send.message.size) == (0, 0)


def last(trace, kind):
    """The latest question to h0 with one of that kind in it."""
    found = [m for _, to, m in trace.crossed if to == "h0" and contents.phase_of(m)]
    return next(m for m in reversed(found) if isinstance(unwrapped(m), kind))


# Noise ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("phase", PHASES)
def test_sums_that_the_aggregator_gets_have_the_noise_that_was_promised(phase):
    """Many answers of devices with nothing to say: what is in them is noise, of the variance that epsilon is of."""
    run = noisy_run(noise=2.0)
    plan, size = phases_of(run), contents.size_of(S, LAYOUT, phase)
    noise = plan.noise(size, phase)
    env, nothing = replace(envs_of(run)["d0"], me="d0"), contents.blank(S, LAYOUT, phase)
    answers = [answer(run, env, phase, nothing) for _ in range(60)]
    found = np.concatenate([m.steps.astype(float) - rounding.largest(m.bits) for m in answers])
    assert abs(found.std() / sqrt(noise.variance) - 1) < 4 / sqrt(2 * len(found)) + 0.01
    told_noise = sqrt(3 * noise.variance) * noise.step  # of a cohort
    assert told_noise == pytest.approx(2.0 * contents.length_of(phase, size), rel=0.01)


def answer(run, env, phase, message):
    """What leaves a device in place of the message of its role inside."""
    return noisy(env, phases_of(run), NoisyPhasesState(0), phase, np.full(5, 1e-6), Send(UP, message)).message


def test_what_a_hospital_passes_on_has_the_noise_of_a_cohort():
    """Three devices with nothing to say: the sum that its aggregator opens is noise of `noise` lengths."""
    run = noisy_run(noise=2.0)
    role, env, devices = method_of(run).hospital, envs_of(run)["h0"], envs_of(run)
    nothing, opened = contents.blank(S, LAYOUT, SETTLING), []
    for _ in range(40):
        state, _ = role.receive(env, role.start(env)[0], UP, Settle(None))
        for d in ("d0", "d1", "d2"):
            m = answer(run, replace(devices[d], me=d), SETTLING, nothing)
            state, _ = role.receive(env, state, d, m)
        _, (send,) = role.close(env, state)
        assert send.message.terms == 3
        opened.append(send.message.numbers())
    found = np.concatenate(opened)
    promised = 2.0 * contents.TOGETHER
    assert abs(found.std() / promised - 1) < 4 / sqrt(2 * len(found)) + 0.01
    assert abs(found.mean()) < 4 * promised / sqrt(len(found))


def test_noise_that_the_fleet_chooses_by_has_the_deviation_that_it_reckons_with():
    plan = phases_of(noisy_run(noise=2.0))
    random = np.random.default_rng(0)
    for phase in (LABELS, SETTLING):
        noise = plan.noise(contents.size_of(S, LAYOUT, phase), phase)
        rows = [
            contents.counts_of(S, phase, noise.step * random.normal(0, sqrt(7 * noise.variance), noise.size), 7).correct
            for _ in range(400)
        ]
        part = np.stack(rows)
        part = part[:, : len(S.label_weights)] if phase == LABELS else part - part.mean(1, keepdims=True)
        assert part.std() == pytest.approx(plan.doubt(phase, 7), rel=0.15)


# The bound ------------------------------------------------------------------------------------------------------
WILD = [
    (SCALES, FeatureSums(*split(np.concatenate([np.zeros(5), UNIT * np.full(5, 2.0**48)])), 1)),
    (MEANS, FeatureSums(*split(np.concatenate([np.full(5, 2.0**24), UNIT * np.full(5, 2.0**48)])), 1)),
    (LABELS, Counts(np.full(contents.labelling.count_size(S), 10**9), 1, 1)),
    (SETTLING, Counts(10**9 * np.arange(len(S.candidates)), 1, 1)),
]


@pytest.mark.parametrize(("phase", "message"), WILD, ids=[phase for phase, _ in WILD])
def test_no_numbers_of_a_device_make_its_vector_longer_than_its_bound(phase, message):
    """The device's own code shortens them, before any noise."""
    run = noisy_run(noise=1e-6, cohort=1)
    plan = phases_of(run)
    env = replace(envs_of(run)["d0"], me="d0")
    m = answer(run, env, phase, message)
    steps = m.steps.astype(float) - rounding.largest(m.bits)
    noise = plan.noise_for(env, phase)
    assert np.linalg.norm(steps) <= noise.bound + 4 * sqrt(noise.variance * m.size)
    assert noise.bound * noise.step < 1.01 * contents.length_of(phase, m.size)
    assert np.linalg.norm(steps) > 0.3 * noise.bound


# What it costs --------------------------------------------------------------------------------------------------
def test_epsilon_of_a_run_is_that_of_its_rounds_and_all_of_its_phases():
    run = noisy_run(epsilon=8.0)
    _, trace = played(run)
    report = told(trace, PrivateReport)[-1]
    plan = phases_of(run)
    assert plan.answers == ROUNDS + 2 + 1 + 1
    z = plan.privacy.multiplier(plan.answers)
    assert report.spent.epsilon == pytest.approx(epsilon_of(plan.answers * 0.5 / z**2, 1e-5), rel=1e-3)
    assert 7.9 < report.spent.epsilon <= 8.0


def test_epsilon_is_what_another_accountant_says():
    dp_event = pytest.importorskip("dp_accounting").dp_event
    from dp_accounting.rdp import RdpAccountant

    plan = phases_of(noisy_run(epsilon=8.0))
    accountant = RdpAccountant()
    accountant.compose(dp_event.GaussianDpEvent(plan.privacy.multiplier(plan.answers)), ROUNDS + 4)
    assert 7.9 < accountant.get_epsilon(1e-5) <= 8.0


# What is refused ------------------------------------------------------------------------------------------------
def test_counts_without_noise_and_sums_that_were_not_asked_for_are_refused(quiet):
    _, trace = quiet
    role, env = method_of(QUIET).hospital, envs_of(QUIET)["h0"]
    state, _ = role.start(env)
    state, _ = role.receive(env, state, UP, last(trace, Settle))
    (m,) = (m for d, m in sent(trace, NoisySums, ("d0",)) if m.phase == SETTLING)
    inner = state.inner
    for wrong, says in (
        (replace(m, phase=LABELS), "asked for 'settling'"),
        (replace(m, half=2 * m.half), "the noise of this run needs"),
        (contents.blank(S, LAYOUT, SETTLING), "without noise"),
    ):
        after, sends = role.receive(env, state, "d0", wrong)
        assert [says in str(s.message) for s in sends if isinstance(s.message, Refused)] == [True]
        assert after.inner.inner == inner.inner


def test_a_sum_of_more_devices_than_there_are_is_refused(quiet):
    plan, env = phases_of(QUIET), envs_of(QUIET)["aggregator"]
    (m,) = (m for h, m in sent(quiet[1], NoisySums, ("h0",)) if m.phase == SETTLING)
    with pytest.raises(PeerError, match="sum of 4 devices, it has 3"):
        plan.check(env, "h0", SETTLING, replace(m, terms=4))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"terms": -1}, "a sum of -1 devices"),
        ({"terms": 0}, "a sum of 0 devices"),
        ({"terms": 1 << 20}, "a sum of 1048576 devices"),
        ({"size": -1}, "-1 numbers"),
        ({"size": 1 << 20}, "1048576 numbers"),
        ({"phase": "settling" * 9}, "numbers of a phase"),
        ({"bits": 40}, "40 bits"),
        ({"half": float("nan")}, "bits for numbers up to nan"),
        ({"packed": np.zeros(3, np.uint8)}, "3 bytes for"),
        ({"packed": np.full(34, 255, np.uint8)}, "an integer that no 1 summands"),
    ],
)
def test_sums_that_cannot_be_are_refused_where_they_enter(changes, says):
    whole = NoisySums(SETTLING, 17, 16, 1.0, 1, np.zeros(34, np.uint8))
    whole.check(LAYOUT)
    with pytest.raises(ValueError, match=says):
        replace(whole, **changes).check(LAYOUT)


@pytest.mark.parametrize("values", [np.ones(4, np.float32), np.zeros(5, np.float32), np.full(5, np.nan, np.float32)])
def test_scales_that_are_none_are_refused(values):
    env = replace(envs_of(QUIET)["d0"], me="d0")
    role = method_of(QUIET).device
    with pytest.raises((PeerError, ValueError), match="scales of"):
        question = InScales(AskFeatures(), values)
        question.check(LAYOUT)
        role.receive(env, role.start(env)[0], UP, question)


def test_more_noise_than_can_be_drawn_is_refused_before_anybody_is_asked():
    run = noisy_run(noise=1e5)
    with pytest.raises(UsageError, match="too few for this noise"):
        method_of(run).aggregator.start(envs_of(run)["aggregator"])


# Contents -------------------------------------------------------------------------------------------------------
def test_counts_come_back_from_the_vectors_that_they_were_made_of():
    random = np.random.default_rng(1)
    for phase, size in ((LABELS, contents.labelling.count_size(S)), (SETTLING, len(S.candidates))):
        counts = Counts(random.integers(0, contents.SAMPLES, size), contents.SAMPLES, 1)
        back = contents.counts_of(S, phase, contents.vector_of(S, phase, counts, np.zeros(0)), 1)
        assert back.correct.tolist() == counts.correct.tolist() and back.samples == contents.SAMPLES


def test_statistics_come_back_as_those_of_one_device():
    scales = np.array([0.01, 1, 100, 3, 1], np.float32)
    sums = contents.features_of(np.array([6.0, 0, -3, 30, 1]), 3, scales)
    found = statistics_of(LAYOUT, sums.high, sums.low, sums.devices)
    assert found[:5] == pytest.approx([0.02, 0, -100, 24, 1 / 3], rel=1e-4, abs=1e-5)
    assert found[5:] == pytest.approx([log(0.01), 0, log(100), log(3), 0], abs=1e-3)


def test_statistics_of_much_noise_lie_nearer_to_what_is_true():
    random = np.random.default_rng(3)
    true = random.normal(1.0, 1.0, 400)
    for noise in (0.1, 1.0, 5.0):
        seen = true + random.normal(0, noise, 400)
        raw, near = (np.mean((x - true) ** 2) for x in (seen, contents.shrunk(seen, seen.mean(), noise)))
        assert near < 1.2 * min(raw, 1.0)
    assert contents.shrunk(np.zeros(0), 0.0, 1.0).size == 0
    assert contents.scales_of(np.log([1.0, 100.0]), 1) == pytest.approx([1.0, 100.0])


def test_fewer_candidates_where_counts_have_noise():
    few, usual = settling_of(noisy_run(settle={"steps": [0, 5]})), Settling()
    assert len(few.label_weights) < len(usual.label_weights) and few.steps == (0, 5)
    assert settling_of(replace(noisy_run(), privacy={})).label_weights == usual.label_weights
