"""Local noise in FedAL's outputs: the bound on each vector, the noise in it, what is counted, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from edge_sdk.algebra.secure_aggregation.privacy import epsilon_of
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.contract.run import Run
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.fedal.messages import HospitalLogits, Outputs, Settled
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedal.noise import LOCAL_NOISE, noise_of, round_within, shortened, vectors
from edge_sdk.methods.integers.vectors.privacy import Privacy
from edge_sdk.methods.shared.evaluation.evaluation import Scores, evaluated
from edge_sdk.methods.shared.evaluation.spent import PrivateProgress
from edge_sdk.nodes.configuration.assembly import method_of
from edge_sdk.nodes.policy.allow import Allow, RunFacts, find_objections
from edge_sdk.nodes.policy.epsilon_ledger import EpsilonLedger, answers_of_run, rho_of_answer, rho_of_run
from tests.methods import problems
from tests.methods.fedal.fedal_runs import SMALL
from tests.methods.fedal.logit_problems import CLASSES, PARTIES, envs_of
from tests.methods.integers.test_noise import Seeded
from tests.methods.problems import TREE, told

P = Privacy(clip=2.0, noise=1.5, cohort=1)
ROUNDS = 2


def played(privacy: Privacy = P, rounds: int = ROUNDS) -> Any:
    envs = envs_of(SMALL, rounds)
    envs |= {d: replace(envs[d], entropy=Seeded(d)) for d in PARTIES}
    method = evaluated(LOCAL_NOISE.around(FEDAL, SMALL, privacy))
    net = Loopback(method, TREE, envs, problems.PATIENT, 0, NetworkFaults(repeat=0.0))
    return net, net.run()


def outputs_of(transcript: Any, device: str) -> list[Any]:
    return [m.logits for a, _, m in transcript.crossed if a == device and isinstance(m, Outputs)]


def test_no_vector_is_longer_than_its_bound_and_it_points_where_it_pointed() -> None:
    noise = noise_of(SMALL, replace(P, noise=1e-3), 1, CLASSES)
    x = shortened(np.random.default_rng(0).normal(size=(500, CLASSES)) * 10, P.clip)
    assert np.linalg.norm(x, axis=1).max() <= P.clip * (1 + 1e-12)
    steps = [round_within(x / noise.step, noise.bound, np.random.default_rng(seed)) for seed in range(30)]
    assert max(np.linalg.norm(one, axis=1).max() for one in steps) <= noise.bound < 1.02 * P.clip / noise.step
    assert np.abs(np.mean(steps, 0) * noise.step - x).max() < noise.step
    short = shortened(np.array([[0.3, -0.2, 0.1], [np.nan, 0.0, 1.0]]), P.clip)
    assert short.tolist() == [[0.3, -0.2, 0.1], [0.0, 0.0, 0.0]]


def test_noise_of_each_vector_is_as_large_as_was_promised() -> None:
    """A clip of next to nothing: what is left is noise, and the share of rounding."""
    tiny = replace(P, clip=1e-6)
    _, transcript = played(tiny, rounds=20)
    sent = np.concatenate([np.concatenate(outputs_of(transcript, d)) for d in PARTIES])
    noise = noise_of(SMALL, tiny, 20, CLASSES)
    assert sqrt(noise.variance) * noise.step == pytest.approx(1.5e-6, rel=0.02)
    assert len(sent) > 1500 and sent.std() == pytest.approx(1e-6 * sqrt(1.5**2 + 1 / CLASSES), rel=0.03)


def test_epsilon_counts_every_vector() -> None:
    net, transcript = played()
    rho = noise_of(SMALL, P, ROUNDS, CLASSES).rho
    assert rho == pytest.approx(0.5 / 1.5**2, rel=1e-3)
    rows = vectors(SMALL, ROUNDS)
    assert rows == ROUNDS * SMALL.tau * SMALL.public_batch
    assert sum(len(one) for one in outputs_of(transcript, "d0")) == rows
    found = [e.spent.epsilon for e in told(transcript, PrivateProgress)]
    assert found[-1] == pytest.approx(epsilon_of(rows * rho, P.delta)) and 0 < found[0] < found[-1]
    assert net.nodes["aggregator"].record.state.inner.round == ROUNDS


def test_an_epsilon_that_is_asked_for_is_what_is_spent() -> None:
    _, transcript = played(Privacy(clip=2.0, epsilon=20.0, cohort=1))
    assert told(transcript, PrivateProgress)[-1].spent.epsilon == pytest.approx(20.0, rel=0.01)


def test_nothing_else_of_a_device_leaves() -> None:
    _, transcript = played()
    sent = [m for a, _, m in transcript.crossed if a in PARTIES]
    assert {type(m) for m in sent} == {Outputs, Settled, Scores}
    assert not [m for m in sent if isinstance(m, Settled) and m.scores]
    assert not [m for m in sent if isinstance(m, Scores) and m.sums]


def diverging() -> tuple[Any, Any, list[Any]]:
    """The env of a device whose training diverges at once, the same where it does not, and the questions of a round."""
    net, transcript = played(rounds=1)
    env = replace(net.nodes["d0"].env, me="d0")
    assert env.private is not None and env.grad_fn is not None
    pull = lambda theta, rows, c: np.full_like(theta, np.nan)  # noqa: E731
    bad = replace(
        env, private=replace(env.private, pull=pull), grad_fn=lambda theta, i: (1.0, np.full_like(theta, np.nan))
    )
    return bad, env, [m for _, to, m in transcript.crossed if to == "d0" and hasattr(m, "then")]


def test_a_device_that_diverges_answers_with_noise() -> None:
    bad, _, asked = diverging()
    role, kinds = LOCAL_NOISE.around(FEDAL, SMALL, P).device, []
    state = role.start(bad)[0]
    for m in asked:
        state, sends = role.receive(bad, state, UP, m)
        kinds += [type(send.message) for send in sends if send.to == UP]
    assert kinds == [Outputs] * SMALL.tau + [Settled]


@pytest.mark.parametrize(
    ("settings", "privacy", "says"),
    [
        ({"averaging": "after_local"}, {}, "averaging = 'after_local': models would leave"),
        ({}, {"cohort": 2}, "cohort = 2: outputs are read one by one"),
        ({}, {"scores": "clear"}, "scores = 'clear': only outputs have noise"),
    ],
)
def test_what_local_noise_cannot_keep_is_refused(settings: Any, privacy: Any, says: str) -> None:
    with pytest.raises(UsageError, match=f"run.privacy with method fedal: {says}"):
        LOCAL_NOISE.around(FEDAL, replace(SMALL, **settings), replace(P, **privacy))


# The holder decides ---------------------------------------------------------------------------------------------
RUN = Run(
    id="outputs",
    method="fedal",
    rounds=ROUNDS,
    settings={"tau": SMALL.tau, "public_batch": SMALL.public_batch},
    privacy={"clip": 2.0, "noise": 1.5, "cohort": 1},
)


def test_a_run_names_its_noise_as_any_other() -> None:
    assert method_of(RUN).spent is not None and not method_of(RUN).tells_scores
    with pytest.raises(UsageError, match=r"run.uploads with method fedal"):
        method_of(replace(RUN, uploads={"bits": 8}))


def test_more_noise_than_can_be_drawn_is_refused_before_the_run() -> None:
    """With so many vectors at epsilon 1 devices would find in their first round that they cannot draw their noise."""
    privacy = {"clip": 5.0, "epsilon": 1.0, "cohort": 1}
    run = replace(RUN, rounds=100, settings={"tau": 5, "public_batch": 1000}, classes=tuple("abcdefghij"))
    with pytest.raises(UsageError, match=r"run.privacy with method fedal: 500000 vectors of 10 numbers take noise"):
        method_of(replace(run, privacy=privacy))
    assert method_of(replace(run, privacy=privacy, rounds=1)).spent is not None


def test_the_holder_s_cap_counts_all_vectors_of_a_run() -> None:
    price = epsilon_of(vectors(SMALL, ROUNDS) * 0.5 / 1.5**2, 1e-5)
    assert epsilon_of(rho_of_run(RUN), 1e-5) == pytest.approx(price) and answers_of_run(RUN) == ROUNDS * SMALL.tau
    assert not list(find_objections(Allow(epsilon_per_run=1.01 * price), RUN, RunFacts()))
    (why,) = find_objections(Allow(epsilon_per_run=0.99 * price), RUN, RunFacts())
    assert why.startswith(f"it comes to epsilon {price:.4g}")


def test_every_answer_is_charged_before_it_leaves_and_once_across_a_kill(tmp_path: Path) -> None:
    net, transcript = played()
    asked = [m for _, to, m in transcript.crossed if to == "d0" and hasattr(m, "then")]
    env, count = replace(net.nodes["d0"].env, me="d0"), 0
    method = evaluated(LOCAL_NOISE.around(FEDAL, SMALL, P))
    state = method.device.start(env)[0]
    for m in asked:
        for _ in range(2):  # killed once after the charge, before anything was saved
            role = EpsilonLedger(tmp_path).guard(RUN, method.device)
            after, sends = role.receive(env, state, UP, m)
        state, count = after, count + any(isinstance(send.message, Outputs) for send in sends)
        assert EpsilonLedger(tmp_path).spent_by(RUN) == pytest.approx(count * rho_of_answer(RUN))
    assert count == answers_of_run(RUN)
    with pytest.raises(PeerError, match="this node has answered as many questions"):
        role.receive(env, state, UP, asked[0])


@pytest.mark.parametrize("exchange", [0, 1])
def test_a_device_that_diverges_is_charged_for_each_repetition(exchange: int, tmp_path: Path) -> None:
    """Its training is undone, but that it has answered is not: else noise could be taken off by asking again."""
    bad, sound, asked = diverging()
    ledger, method = EpsilonLedger(tmp_path), evaluated(LOCAL_NOISE.around(FEDAL, SMALL, P))
    role = ledger.guard(RUN, method.device)
    state = role.start(bad)[0]
    for m in asked[:exchange]:
        state, _ = role.receive(sound, state, UP, m)
    for count in range(exchange + 1, answers_of_run(RUN) + 1):
        state, _ = role.receive(bad, state, UP, asked[exchange])
        assert ledger.spent_by(RUN) == pytest.approx(count * rho_of_answer(RUN))
    with pytest.raises(PeerError, match="this node has answered as many questions"):
        role.receive(bad, state, UP, asked[exchange])


def test_the_hospital_is_charged_as_its_devices(tmp_path: Path) -> None:
    _, transcript = played()
    hospital = next(iter(TREE))
    ledger, seen = EpsilonLedger(tmp_path), [m for _, to, m in transcript.crossed if to == hospital]
    charged = [LOCAL_NOISE.number(SMALL, m) for m in seen]
    assert [n for n in charged if n is not None] == list(range(1, answers_of_run(RUN) + 1))
    for n in charged:
        if n is not None:
            ledger.charge(RUN, n, answered=False)
    assert ledger.spent_by(RUN) == pytest.approx(rho_of_run(RUN))
    assert [m for a, _, m in transcript.crossed if a == hospital and isinstance(m, HospitalLogits)]
