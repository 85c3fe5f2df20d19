"""What a holder's ledger counts of phases with noise: each answer, over kills, and no more than the run has."""

import os
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
        EpsilonLedger(tmp_path).guard(run, role).receive(env, state, UP, questions[-2])
    assert EpsilonLedger(tmp_path).spent_by(run) == pytest.approx(rho_of_run(run))


def test_a_phase_that_is_asked_for_twice_gets_the_same_bytes_and_costs_once(tmp_path):
    """A hospital that had lost its disk asked its devices again; each had no answer left for the last question then, so
    it was silent, and the run stood still."""
    run = noisy_run()
    _, transcript = played(run)
    questions, env = asked(transcript, "d1"), replace(envs_of(run)["d1"], me="d1", entropy=os.urandom)
    role, ledger = method_of(run).device, EpsilonLedger(tmp_path)
    state, _ = role.start(env)
    for k, question in enumerate(questions, 1):
        state, sends = ledger.guard(run, role).receive(env, state, UP, question)
        if phase_of(question):
            again, same = ledger.guard(run, role).receive(env, state, UP, question)
            assert again == state and [x.message.packed.tobytes() for x in same] == [sends[0].message.packed.tobytes()]
        assert ledger.spent_by(run) == pytest.approx(k * rho_of_answer(run))
    assert k == ROUNDS + 4
    with pytest.raises(PeerError, match="as many questions already"):  # another phase is no repetition
        ledger.guard(run, role).receive(env, state, UP, questions[0])


def test_a_kill_costs_nothing_and_a_backup_that_is_put_back_an_answer(tmp_path):
    run = noisy_run()
    _, transcript = played(run)
    question, env = asked(transcript, "d1")[0], replace(envs_of(run)["d1"], me="d1")
    role, price = method_of(run).device, rho_of_answer(run)
    state, _ = role.start(env)
    for times in (1, 1, 2):  # the first answer had not been saved
        EpsilonLedger(tmp_path).guard(run, role).receive(env, state, UP, question)
        assert EpsilonLedger(tmp_path).spent_by(run) == pytest.approx(times * price)
