"""First-B consensus around another method: FedSLR's aggregator role, unchanged, stands inside as the hospital."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import Method
from edge_sdk.contract.round import Policy
from edge_sdk.methods.fedslr import aggregator as fedslr_aggregator
from edge_sdk.methods.fedslr import settings as fedslr_settings
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.shared.consensus import consensus
from edge_sdk.methods.shared.consensus.consensus import Cloud, Isolated, Mixed, Pieces, Ready
from tests.methods import literal
from tests.methods.problems import DEVICES, LAYOUT, PROBLEMS, THETA0, TREE, envs_of, play

SETTINGS = fedslr_settings.Settings(
    eta_g=0.5, eta_l=0.1, decay=1.0, lam=0.3, mu=0.2, weight_decay=0.0, batch=0, local_epochs=20, participation=2
)
INSIDE = Pieces(
    ready=lambda env, s: Ready(lowrank.unpack(env.layout, s.model)),
    take=lambda env, s, mixed, round, step: s if mixed is None else replace(s, model=mixed),
    ask=fedslr_aggregator.ask_hospitals,
)


def fedslr_inside(cloud):
    first = lambda env: lowrank.dense(env.layout, env.theta0)  # noqa: E731
    return Method(
        "fedslr with consensus", FEDSLR.device, consensus.around(FEDSLR.aggregator, INSIDE),
        consensus.coordinator(first, lambda env: cloud), (*FEDSLR.messages, Mixed, Isolated, Ready),
        fedslr_settings.Settings, fedslr_settings.Env, FEDSLR.show, FEDSLR.models,
    )  # fmt: skip


def literally(members, active):
    """FedSLR inside every hospital, the mean of the first B models between them."""
    s, gamma, w = SETTINGS, {i: np.zeros(LAYOUT.size) for i in DEVICES}, dict.fromkeys(TREE, THETA0)
    phase = dict.fromkeys(TREE, 0)
    for V in members:
        for n in V:
            local = {}
            for i in active(n, phase[n]):
                v = w[n]
                for _ in range(s.local_epochs):
                    v = v - s.eta_l * (PROBLEMS[i](v)[1] - gamma[i] + (v - w[n]) / s.eta_g)
                local[i], gamma[i] = v, gamma[i] + (w[n] - v) / s.eta_g
            x = sum(local.values()) / len(local) - s.eta_g * sum(gamma[i] for i in TREE[n]) / len(TREE[n])
            w[n], phase[n] = literal.on_layers(lambda m: literal.svt(m, s.lam * s.eta_g), x), phase[n] + 1
        mean = sum(w[n] for n in V) / len(V)
        w |= dict.fromkeys(V, mean)
    return mean


@pytest.mark.parametrize("seed", range(2))
def test_first_b_around_fedslr(seed):
    method = fedslr_inside(Cloud(step=0.0))
    envs = envs_of(method, SETTINGS, 20)
    envs |= {h: replace(envs[h], rounds=10**6) for h in TREE}
    policies = {"aggregator": Policy(need=2, keep_late=True)}
    net, transcript = play(
        method, SETTINGS, 20, faults=NetworkFaults(work={"d5": 7.0}), policies=policies, seed=seed, envs=envs
    )
    members = [sorted(c.children) for c in transcript.closed["aggregator"]]
    w = literally(members, lambda n, k: sorted(transcript.closed[n][k].children))
    assert len(members) == 20 and len({tuple(m) for m in members}) > 1
    got = lowrank.unpack(LAYOUT, net.nodes["aggregator"].record.state.model)
    assert np.abs(got - w).max() < 1e-11


@pytest.mark.parametrize("rigorous", [False, True])
def test_a_deadline_with_nobody_ready_leaves_all_as_they_are(rigorous):
    """Without a quorum the aggregator goes on; its hospitals join it when they are back."""
    method = fedslr_inside(Cloud(step=0.0, rigorous=rigorous))
    envs = envs_of(method, SETTINGS, 20)
    envs |= {h: replace(envs[h], rounds=10**6) for h in TREE}
    policies = {"aggregator": Policy(need=2, deadline=9.0, keep_late=not rigorous), "hospital": Policy(deadline=4.0)}
    away = NetworkFaults(away={key: [(5, 40)] for key in TREE})
    _, transcript = play(method, SETTINGS, 20, faults=away, policies=policies, envs=envs)
    closes = [c.children for c in transcript.closed["aggregator"]]
    assert len(closes) == 20 and [] in closes and len(closes[-1]) >= 2
