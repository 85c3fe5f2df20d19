"""Noisy uploads: the bound on each, the noise in sums, what is refused, and what the aggregator counts."""

import hashlib
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.privacy import epsilon_of
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.messages import Changes, Integers
from edge_sdk.methods.integers.vectors.noise import round_within
from edge_sdk.methods.integers.vectors.privacy import Privacy, noise_of
from edge_sdk.methods.integers.vectors.rounded import UPWARD, Rounding
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.methods.shared.evaluation.healing import is_sound
from edge_sdk.methods.shared.evaluation.spent import PrivateProgress, PrivateReport
from edge_sdk.nodes.configuration.assembly import method_of
from edge_sdk.nodes.configuration.assembly import settings_of as settings_of_run
from tests.methods.problems import DEVICES, HASTY, LAYOUT, TREE, envs_of, play, told
from tests.methods.secret import parties
from tests.methods.test_contract import settings_of

CALM = NetworkFaults(repeat=0.0)
BITS = Uploads(bits=16, down_bits=16, feedback=False)
PRIVACY = Privacy(clip=1.0, noise=1.0, cohort=1)
CAN = {"fedavg", "perfedavg", "ditto", "apfl", "fedala", "fedper", "fedrep", "fedbabu", "fedbn"} | {
    *("fedslr", "feddyn", "scaffold"),  # whose devices keep vectors that move with uploads
}


class Seeded:
    """Bytes that are the same each time: for tests only, and no settings file leads here."""

    def __init__(self, seed):
        self.seed, self.drawn = seed, 0

    def __call__(self, count):
        self.drawn += 1
        return hashlib.shake_128(f"{self.seed}/{self.drawn}".encode()).digest(count)


def noisy(name="fedavg", privacy=PRIVACY, uploads=BITS, **changes):
    settings = replace(settings_of(METHODS[name]), **{"participation": 1.0, **changes})
    return rounded(METHODS[name], settings, uploads, privacy=privacy), settings


def played(name="fedavg", rounds=3, privacy=PRIVACY, evaluate=False, dtype=np.float64, **more):
    method, settings = noisy(name, privacy)
    envs = envs_of(METHODS[name], settings, rounds, dtype=dtype)
    envs |= {d: replace(envs[d], entropy=Seeded(d)) for d in DEVICES}
    method = evaluated(method) if evaluate else method
    return play(method, settings, rounds, faults=CALM, envs=envs, **more)


def uploads_of(transcript, senders=DEVICES):
    return [(a, m) for a, _, m in transcript.crossed if isinstance(m, Integers) and a in senders]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_whose_sums_noise_would_spoil_is_refused_by_name(name):
    settings = settings_of(METHODS[name])
    if name in CAN:
        assert rounded(METHODS[name], settings, BITS, privacy=PRIVACY).spent is not None
    else:
        why = "its hospitals keep each device's latest upload" if name in ("fedbcd", "augfl") else ""
        with pytest.raises(UsageError, match=f"with method {name.replace('+', '.')}: {why}"):
            rounded(METHODS[name], settings, BITS, privacy=PRIVACY)


@pytest.mark.parametrize("name", sorted(CAN))
def test_every_method_ends_with_noise_in_its_sums(name):
    _, transcript = played(name, evaluate=True)
    epsilons = [e.spent.epsilon for e in told(transcript, PrivateProgress)]
    assert len(epsilons) == 3 and 0 < epsilons[0] < epsilons[1] < epsilons[2]
    assert all(
        m.label.weight == m.terms == 1 and not m.label.scores and not m.spread for _, m in uploads_of(transcript)
    )


def test_error_feedback_and_robust_rules_are_refused():
    with pytest.raises(UsageError, match="feedback with run"):
        noisy(uploads=Uploads(bits=16))
    settings = settings_of(METHODS["fedavg"])
    with pytest.raises(UsageError, match="a rule looks at single uploads"):
        rounded(METHODS["fedavg"], settings, BITS, opens=True, privacy=PRIVACY)


@pytest.mark.parametrize("rotates", [True, False])
def test_no_upload_is_longer_than_its_bound(rotates):
    noise = noise_of(Privacy(clip=0.5, noise=0.01, cohort=1), 1, 6, rotates, LAYOUT.size)
    assert 1.05 < noise.bound * noise.step / 0.5 < 2, "six bits: rounding makes vectors longer"
    how, random = Rounding(7, 1, UPWARD, 6, rotates), np.random.default_rng(0)
    x = random.normal(size=LAYOUT.size)
    x *= 0.5 / np.linalg.norm(x)
    lengths = [np.linalg.norm(round_within(how, noise, x, random)) for _ in range(300)]
    assert max(lengths) <= noise.bound and max(lengths) > 0.9 * noise.bound
    mean = np.mean([how.turned_back(round_within(how, noise, x, random) * noise.step) for _ in range(2000)], 0)
    assert np.linalg.norm(mean - x) < 0.1 * np.linalg.norm(x), "and still points where it pointed"


def test_noise_of_a_sum_is_as_large_as_was_promised():
    """A thousand uploads: all that is in them beside clipped updates has the variance that epsilon is counted from."""
    privacy = Privacy(clip=1e-6, noise=2.0, cohort=3)
    _, transcript = played(rounds=200, privacy=replace(privacy, cohort=1))
    noise = noise_of(replace(privacy, cohort=1), 200, 16, True, LAYOUT.size)
    steps = np.stack([m.steps.astype(float) - rounding.largest(16) for _, m in uploads_of(transcript)])
    assert steps.shape[0] == 200 * len(DEVICES)
    assert abs(steps.var() / (noise.variance + noise.bound**2 / LAYOUT.size) - 1) < 0.03
    assert sqrt(noise.variance) * noise.step == pytest.approx(2.0 * 1e-6, rel=0.01)
    three = noise_of(privacy, 60, 16, True, LAYOUT.size)
    assert sqrt(3 * three.variance) * three.step == pytest.approx(2.0 * 1e-6, rel=0.01)


def test_epsilon_counts_the_smallest_sum_of_each_round():
    privacy = Privacy(clip=1.0, noise=2.0, cohort=1)
    _, transcript = played(privacy=privacy, evaluate=True)
    noise = noise_of(privacy, 3, 16, True, LAYOUT.size)
    found = told(transcript, PrivateProgress)
    assert [e.spent.epsilon for e in found] == [epsilon_of(t * noise.rho(1), 1e-5) for t in (1, 2, 3)], (
        "h2 has one device"
    )
    assert [e.spent.epsilon_model for e in found] == [epsilon_of(t * noise.rho(6), 1e-5) for t in (1, 2, 3)]
    (report,) = told(transcript, PrivateReport)
    assert report.spent == found[-1].spent and report.to_metrics()["epsilon"] == report.spent.epsilon
    assert report.sums == {}, "scores are off"


def test_a_hospital_passes_no_sum_of_too_few_on():
    """d4 is never heard, so h1 has one answer where two are needed; what h1 might have sent is counted nevertheless."""
    tree = {"h0": TREE["h0"], "h1": TREE["h1"]}
    method, settings = noisy(privacy=Privacy(clip=1.0, noise=1.0, cohort=2))
    envs = envs_of(METHODS["fedavg"], settings, 2)
    envs = {n: e for n, e in envs.items() if n not in ("h2", "d5")}
    envs["aggregator"] = replace(envs["aggregator"], sizes={"h0": 3, "h1": 2})
    envs |= {d: replace(envs[d], entropy=Seeded(d)) for d in envs if d[0] == "d"}
    faults = NetworkFaults(repeat=0.0, away={"d4": [(0, 10_000)]})
    _, transcript = play(evaluated(method), settings, 2, faults=faults, policies=HASTY, envs=envs, tree=tree)
    sent = {a: [type(m) for x, b, m in transcript.crossed if x == a and b == "aggregator"] for a in tree}
    assert sent["h0"][:2] == [Integers, Integers] and sent["h1"][:2] == [Nobody, Nobody]
    noise = noise_of(Privacy(clip=1.0, noise=1.0, cohort=2), 2, 16, True, LAYOUT.size)
    found = [e.spent.epsilon for e in told(transcript, PrivateProgress)]
    assert found == [epsilon_of(t * noise.rho(2), 1e-5) for t in (1, 2)]


def test_a_run_with_a_hospital_below_the_cohort_does_not_begin():
    with pytest.raises(UsageError, match="cohort = 2: hospital h2 has 1 devices"):
        played(privacy=Privacy(clip=1.0, noise=1.0, cohort=2))


@pytest.mark.parametrize(
    ("privacy", "bits", "says"),
    [
        (PRIVACY, 2, "bits = 2: too few for this noise"),
        (Privacy(clip=1.0, epsilon=1e-5, cohort=1), 16, "bits = 16: too few for this noise"),
    ],
)
def test_noise_that_cannot_be_made_is_refused_before_anybody_is_asked(privacy, bits, says):
    method, settings = noisy(privacy=privacy, uploads=Uploads(bits=bits, feedback=False))
    env = envs_of(METHODS["fedavg"], settings, 3)["aggregator"]
    with pytest.raises(UsageError, match=says):
        method.aggregator.start(env)


def test_a_device_refuses_a_scale_that_is_not_the_noise_s():
    """Whoever asks for coarser or finer steps would get noise that is worth less."""
    method, _ = noisy()
    net, transcript = played(rounds=1)
    env = replace(net.nodes["d0"].env, me="d0")
    question = next(m for _, to, m in transcript.crossed if isinstance(m, Changes) and to == "d0")
    state, _ = method.device.start(env)
    state, sends = method.device.receive(env, state, "up", question)
    assert isinstance(sends[0].message, Integers)
    with pytest.raises(PeerError, match="the noise of this run needs 16 up to"):
        method.device.receive(env, method.device.start(env)[0], "up", replace(question, half=question.half / 2))


def test_noise_does_not_follow_from_the_seed():
    method, _ = noisy()
    net, transcript = played(rounds=1)
    env = replace(net.nodes["d0"].env, me="d0")
    question = next(m for _, to, m in transcript.crossed if isinstance(m, Changes) and to == "d0")
    one, two = (
        method.device.receive(replace(env, entropy=Seeded(seed)), method.device.start(env)[0], "up", question)[1]
        for seed in "ab"
    )
    assert not np.array_equal(one[0].message.steps, two[0].message.steps)
    with pytest.raises(UsageError, match="source of entropy"):
        method.device.receive(replace(env, entropy=None), method.device.start(env)[0], "up", question)


def test_what_has_diverged_leaves_as_noise():
    method, _ = noisy()
    net, transcript = played(rounds=1)
    env = replace(net.nodes["d0"].env, me="d0")
    question = next(m for _, to, m in transcript.crossed if isinstance(m, Changes) and to == "d0")
    wild = replace(env, grad_fn=lambda theta, indices: (1.0, np.full_like(theta, np.inf)))
    with np.errstate(all="ignore"):
        _, sends = method.device.receive(wild, method.device.start(env)[0], "up", question)
    assert [type(send.message) for send in sends if send.to == UP] == [Integers]


@pytest.mark.parametrize("name", ["fedavg", "fedslr", "feddyn", "scaffold", "ditto"])
@pytest.mark.parametrize("changes", [{"samples": 0}, {"grad_fn": lambda theta, i: (1.0, np.full_like(theta, np.inf))}])
def test_whether_a_device_has_anything_to_send_cannot_be_told(name, changes):
    """Neither one without samples nor one whose training diverges stays out of the sum: that would tell."""
    method, _ = noisy(name)
    net, transcript = played(name, rounds=1)
    env = replace(net.nodes["d0"].env, me="d0")
    question = next(m for _, to, m in transcript.crossed if isinstance(m, Changes) and to == "d0")
    with np.errstate(all="ignore"):
        state, sends = method.device.receive(replace(env, **changes), method.device.start(env)[0], "up", question)
    assert [type(send.message) for send in sends if send.to == UP] == [Integers]
    assert is_sound(state.inner)


@pytest.mark.parametrize("name", ["fedavg", "fedslr"])
def test_noise_under_masks_is_the_noise_and_a_small_sum_is_not_opened(name):
    """With the same bytes for noise, a run with secret sums is the run in the clear, epsilon and all."""
    privacy = {"clip": 1.0, "epsilon": 8.0, "cohort": 3}
    ends = []
    for secret in (True, False):
        run = parties.run_of(name, rounds=2, secret=secret, uploads={"bits": 16, "cohort": 3}, privacy=privacy)
        envs = {n: replace(e, entropy=Seeded(n)) for n, e in parties.envs_for(run).items()}
        method = method_of(run)
        net, transcript = play(method, settings_of_run(run), 2, faults=CALM, envs=envs, tree=parties.TREE)
        ends.append(told(transcript, PrivateReport) + told(transcript, PrivateProgress))
        ends.append(method.show(envs["aggregator"], net.nodes["aggregator"].record.state).model.values.tobytes())
    assert ends[:2] == ends[2:] and 0 < ends[0][0].spent.epsilon < 8.1


def test_secret_sums_open_no_fewer_than_the_noise_needs():
    run = parties.run_of(uploads={"bits": 16, "cohort": 2}, privacy={"clip": 1.0, "epsilon": 8.0, "cohort": 3})
    with pytest.raises(UsageError, match="noise is for sums of 3"):
        method_of(run)


def test_uploads_of_much_noise_are_not_taken_for_attacks():
    """Their length is bounded by the scale, and says nothing of what a device has done."""
    _, transcript = played(privacy=Privacy(clip=100.0, noise=50.0, cohort=1), evaluate=True)
    refused = [m for _, m in transcript.told if isinstance(m, Refused)]
    assert not refused and [e.devices for e in told(transcript, PrivateProgress)] == [6, 6, 6]
