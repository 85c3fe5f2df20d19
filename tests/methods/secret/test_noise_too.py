"""Noise before masks: a run with both is the same as one with noise alone, and its answers are hidden all the same."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError
from edge_sdk.methods.integers.vectors.messages import Changes
from edge_sdk.methods.secret.messages.messages import Masked, NumberedQuestion
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.policy.epsilon_ledger import EpsilonLedger, rho_of_answer, rho_of_run
from tests.methods.contract import fingerprint
from tests.methods.problems import PATIENT, play
from tests.methods.secret.parties import KEYS, TREE, WatchedMasks, envs_for, masks_of, run_of

NOISE = {"clip": 1.0, "noise": 0.1, "cohort": 2}


def entropy_of(name):
    """Bytes that are the same in both runs, other ones for each device and call."""
    dice = np.random.default_rng(list(name.encode()))
    return lambda count: dice.bytes(count)


def played(secret):
    run = run_of("fedavg", rounds=3, secret=secret, privacy=NOISE, uploads={"bits": 16, "feedback": False})
    envs = {n: replace(env, entropy=entropy_of(n)) if n in KEYS else env for n, env in envs_for(run).items()}
    faults = NetworkFaults(repeat=0.0)
    return play(method_of(run), settings_of(run), run.rounds, envs=envs, tree=TREE, policies=PATIENT, faults=faults)


def test_noise_and_masks_go_together():
    (net, transcript), (plain, in_the_clear) = played(True), played(False)
    told = [[fingerprint(m) for who, m in each.told if who == "aggregator"] for each in (transcript, in_the_clear)]
    assert told[0] == told[1] and any(isinstance(m, Finished) for _, m in transcript.told)
    models = [n.nodes["aggregator"].record.state for n in (net, plain)]
    assert fingerprint(models[0].inner.inner.inner) == fingerprint(models[1].inner.inner)


def test_noise_that_is_drawn_again_has_another_mask():
    """Killed after it drew its noise, a device draws other noise: two answers to one question, and two masks."""
    _, transcript = played(True)
    question = next(m for _, b, m in transcript.crossed if b == "d1")
    run = run_of("fedavg", rounds=3, privacy=NOISE, uploads={"bits": 16, "feedback": False})
    watch, dice = WatchedMasks(masks_of("d1")), np.random.default_rng(0)
    env = replace(envs_for(run)["d1"], me="d1", masks=watch, entropy=lambda count: dice.bytes(count))
    device = method_of(run).device
    for _ in range(2):
        _, sends = device.receive(env, device.start(env)[0], UP, question)
        assert any(isinstance(e.message, Masked) for e in sends)
    assert len(watch.used) == 2 and not watch.reused()


@pytest.mark.parametrize(("name", "tier"), [("d1", "device"), ("h0", "hospital")])
def test_every_secret_answer_is_charged_before_it_leaves(name, tier, tmp_path):
    run = run_of("fedavg", rounds=3, privacy=NOISE, uploads={"bits": 16, "feedback": False})
    net, transcript = played(True)
    asked = [m for _, b, m in transcript.crossed if b == name and isinstance(m, NumberedQuestion)]
    asked = [m for m in asked if isinstance(m.question, Changes)]
    assert len(asked) == run.rounds
    role, env = getattr(method_of(run), tier), replace(net.nodes[name].env, me=name)
    state, _ = role.start(env)
    for k, question in enumerate(asked, 1):
        state, _ = EpsilonLedger(tmp_path).guard(run, role).receive(env, state, UP, question)
        assert EpsilonLedger(tmp_path).spent_by(run) == pytest.approx(k * rho_of_answer(run))
    with pytest.raises(PeerError, match="this node has answered as many questions"):
        EpsilonLedger(tmp_path).guard(run, role).receive(env, state, UP, asked[-1])
    assert EpsilonLedger(tmp_path).spent_by(run) == pytest.approx(rho_of_run(run))
