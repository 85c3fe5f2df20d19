"""What a holder's ledger counts of phases with noise: each answer, over kills, and no more than the run has."""

from dataclasses import replace

import pytest

from edge_sdk.algebra.secure_aggregation.privacy import epsilon_of
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.vectors.messages import Changes
from edge_sdk.methods.noisy_phases.contents import phase_of
from edge_sdk.methods.secret.messages.messages import NumberedQuestion
from edge_sdk.nodes.configuration.assembly import method_of
from edge_sdk.nodes.policy.allow import Allow, RunFacts, find_objections
from edge_sdk.nodes.policy.epsilon_ledger import EpsilonLedger, answers_of_run, rho_of_answer, rho_of_run
from tests.methods.noisy_phases.runs import ROUNDS, envs_of, noisy_run, played, unwrapped


def asks_for_noise(m):
    question = m.question if isinstance(m, NumberedQuestion) else m
    return bool(phase_of(question)) or isinstance(unwrapped(question), Changes)


def asked(transcript, name):
    return [m for _, to, m in transcript.crossed if to == name and asks_for_noise(m)]


def test_a_limit_counts_phases_too():
    run = noisy_run(noise=2.0)
    bare = replace(run, settle={})
    assert (answers_of_run(run), answers_of_run(bare)) == (ROUNDS + 4, ROUNDS)
    limit = 1.01 * epsilon_of(rho_of_run(bare), 1e-5)
    assert list(find_objections(Allow(epsilon_per_run=limit), bare, RunFacts())) == []
    (why,) = find_objections(Allow(epsilon_per_run=limit), run, RunFacts())
    assert f"it comes to epsilon {epsilon_of(rho_of_run(run), 1e-5):.4g} at delta 1e-05" in why
    with_epsilon = noisy_run(epsilon=8.0)
    assert 7.9 < epsilon_of(rho_of_run(with_epsilon), 1e-5) <= 8.0


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize(("name", "tier"), [("d1", "device"), ("h0", "hospital")])
def test_every_answer_of_a_run_with_phases_is_charged_and_one_more_is_refused(secret, name, tier, tmp_path):
    run = noisy_run(secret=secret)
    _, transcript = played(run)
    questions, env = asked(transcript, name), replace(envs_of(run)[name], me=name)
    assert len(questions) == ROUNDS + 4
    role = getattr(method_of(run), tier)
    state, _ = role.start(env)
    for k, question in enumerate(questions, 1):
        state, _ = EpsilonLedger(tmp_path).guard(run, role).receive(env, state, UP, question)
        assert EpsilonLedger(tmp_path).spent_by(run) == pytest.approx(k * rho_of_answer(run))
    with pytest.raises(PeerError, match=f"with {ROUNDS + 4} answers"):
        EpsilonLedger(tmp_path).guard(run, role).receive(env, state, UP, questions[-1])
    assert EpsilonLedger(tmp_path).spent_by(run) == pytest.approx(rho_of_run(run))


def test_a_phase_that_is_asked_for_twice_costs_twice_and_a_kill_costs_nothing(tmp_path):
    run = noisy_run()
    _, transcript = played(run)
    question, env = asked(transcript, "d1")[0], replace(envs_of(run)["d1"], me="d1")
    role, price = method_of(run).device, rho_of_answer(run)
    state, _ = role.start(env)
    after, _ = EpsilonLedger(tmp_path).guard(run, role).receive(env, state, UP, question)
    after, _ = EpsilonLedger(tmp_path).guard(run, role).receive(env, state, UP, question)  # nothing had been saved
    assert EpsilonLedger(tmp_path).spent_by(run) == pytest.approx(price)
    EpsilonLedger(tmp_path).guard(run, role).receive(env, after, UP, question)
    assert EpsilonLedger(tmp_path).spent_by(run) == pytest.approx(2 * price)
    EpsilonLedger(tmp_path).guard(run, role).receive(env, state, UP, question)  # a backup put back
    assert EpsilonLedger(tmp_path).spent_by(run) == pytest.approx(3 * price)
