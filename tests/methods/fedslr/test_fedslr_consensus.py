"""FedSLR in every hospital under first-B consensus, against a literal transcription of both."""

from dataclasses import fields, replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedslr_consensus
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr.settings import Settings as FedslrSettings
from edge_sdk.methods.fedslr_consensus import FEDSLR_B, Settings
from edge_sdk.methods.shared.evaluation.reports import Progress
from tests.methods import literal
from tests.methods.problems import DEVICES, LAYOUT, PROBLEMS, THETA0, TREE, envs_of, play, state

SETTINGS = Settings(
    eta_g=0.5, eta_l=0.1, decay=0.98, lam=0.3, mu=0.2, weight_decay=0.0, batch=0, local_epochs=20, participation=2,
    cloud="first-b", ready=2,
)  # fmt: skip
SLOW = NetworkFaults(work={"d5": 7.0})


def literally(settings, members, active, pull=lambda w: 0.0):
    """FedSLR inside every hospital; between them the mean of the first B models by number of devices, and a step."""
    s, gamma, w = settings, {i: np.zeros(LAYOUT.size) for i in DEVICES}, dict.fromkeys(TREE, THETA0)
    phase, joined = dict.fromkeys(TREE, 0), dict.fromkeys(TREE, 0)
    for t, V in enumerate(members):
        for n in V:
            local, eta = {}, s.eta(joined[n])
            for i in active(n, phase[n]):
                v = w[n]
                for _ in range(s.local_epochs):
                    v = v - eta * (PROBLEMS[i](v)[1] - gamma[i] + (v - w[n]) / s.eta_g)
                local[i], gamma[i] = v, gamma[i] + (w[n] - v) / s.eta_g
            x = sum(local.values()) / len(local) - s.eta_g * sum(gamma[i] for i in TREE[n]) / len(TREE[n])
            w[n], phase[n] = literal.on_layers(lambda m: literal.svt(m, s.lam * s.eta_g), x), phase[n] + 1
        mean = sum(len(TREE[n]) * w[n] for n in V) / sum(len(TREE[n]) for n in V)
        if s.cloud_step:
            mean = literal.on_layers(lambda m: literal.svt(m, s.lam * s.cloud_step), mean - s.cloud_step * pull(mean))
        w |= dict.fromkeys(V, mean)
        joined |= dict.fromkeys(V, t + 1)
    return mean


def run(settings, seed=0, smooth_grad=None, faults=SLOW, rounds=20):
    envs = envs_of(FEDSLR_B, settings, rounds)
    envs["aggregator"] = replace(envs["aggregator"], smooth_grad=smooth_grad)
    policies = FEDSLR_B.policies(settings, {h: len(TREE[h]) for h in TREE}, np.inf, np.inf, 0)
    net, transcript = play(FEDSLR_B, settings, rounds, faults=faults, policies=policies, seed=seed, envs=envs)
    members = [sorted(c.children) for c in transcript.closed["aggregator"]]
    return net, transcript, members, lambda n, k: sorted(transcript.closed[n][k].children)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cloud_step", [0.0, 0.4])
def test_first_b(seed, cloud_step):
    settings = replace(SETTINGS, cloud_step=cloud_step)
    toward = np.linspace(-1, 1, LAYOUT.size)
    net, _, members, active = run(settings, seed, smooth_grad=(lambda w: w - toward) if cloud_step else None)
    assert len(members) == 20 and len({tuple(m) for m in members}) > 1
    got = lowrank.unpack(LAYOUT, state(net, "aggregator").model)
    assert np.abs(got - literally(settings, members, active, lambda w: w - toward)).max() < 1e-11


# FedSLR's one problem --------------------------------------------------------------------------------------------
COMMON = replace(SETTINGS, one_prox=True, participation=1.0, decay=1.0, local_epochs=40, eta_l=0.2)


def literally_one_prox(settings, members):
    """The mean of what all hospitals showed last, by number of devices, and one proximal step."""
    s, gamma, seen, shown = settings, {i: np.zeros(LAYOUT.size) for i in DEVICES}, dict.fromkeys(TREE, THETA0), {}
    for V in members:
        for n in V:
            local = {}
            for i in TREE[n]:
                v = seen[n]
                for _ in range(s.local_epochs):
                    v = v - s.eta_l * (PROBLEMS[i](v)[1] - gamma[i] + (v - seen[n]) / s.eta_g)
                local[i], gamma[i] = v, gamma[i] + (seen[n] - v) / s.eta_g
            shown[n] = np.mean(list(local.values()), 0) - s.eta_g * np.mean([gamma[i] for i in TREE[n]], 0)
        mean = sum(len(TREE[n]) * shown[n] for n in shown) / sum(len(TREE[n]) for n in shown)
        w = literal.on_layers(lambda m: literal.svt(m, s.lam * s.eta_g), mean)
        seen |= dict.fromkeys(V, w)
    return w


def distance_to_optimal(w, s):
    """|| w - prox(w - eta_g mean of grad f_i(w)) || / eta_g: 0 at a minimiser of FedSLR's problem."""
    gradient = np.mean([PROBLEMS[i](w)[1] for i in DEVICES], 0)
    near = literal.on_layers(lambda m: literal.svt(m, s.lam * s.eta_g), w - s.eta_g * gradient)
    return np.linalg.norm(w - near) / s.eta_g


def test_one_prox_under_first_b():
    net, _, members, _ = run(COMMON)
    assert len({tuple(m) for m in members}) > 1
    got = lowrank.unpack(LAYOUT, state(net, "aggregator").model)
    assert np.abs(got - literally_one_prox(COMMON, members)).max() < 1e-11


def test_one_prox_in_step_is_fedslr():
    """Each hospital is asked for all its devices, and so is FedSLR's aggregator: the same model in every round."""
    same = {f.name: getattr(COMMON, f.name) for f in fields(FedslrSettings)}
    settings = FedslrSettings(**same)
    net, _ = play(FEDSLR, settings, 20, envs=envs_of(FEDSLR, settings, 20))
    here, _, members, _ = run(replace(COMMON, cloud="sync", ready=0))
    assert all(m == sorted(TREE) for m in members)
    one, other = (lowrank.unpack(LAYOUT, state(n, "aggregator").model) for n in (net, here))
    assert np.abs(one - other).max() < 1e-11


def test_with_one_prox_a_slow_hospital_counts_and_the_limit_is_fedslrs():
    found = {}
    for settings in (COMMON, replace(COMMON, one_prox=False)):
        net, _, members, _ = run(settings, rounds=120)
        assert {n for m in members for n in m} == {*TREE} and len({tuple(m) for m in members}) > 1
        found[settings.one_prox] = distance_to_optimal(lowrank.unpack(LAYOUT, state(net, "aggregator").model), settings)
    assert found[True] < 1e-6 < 1e-2 < found[False]


def test_one_prox_has_no_other_step():
    for wrong in (dict(cloud="rigorous"), dict(cloud_step=0.4)):
        with pytest.raises(UsageError, match="one_prox"):
            replace(COMMON, **wrong)


def test_sync_waits_for_everybody():
    settings = replace(SETTINGS, cloud="sync", ready=0, participation=1.0)
    net, transcript, members, active = run(settings)
    assert members == [sorted(TREE)] * 20
    got = lowrank.unpack(LAYOUT, state(net, "aggregator").model)
    assert np.abs(got - literally(settings, members, active)).max() < 1e-11
    rounds = [m for m in transcript.told if isinstance(m[1], Progress)]
    assert [m.devices for _, m in rounds] == [len(DEVICES)] * 20


def test_rigorous_never_stops_a_hospital():
    settings = replace(SETTINGS, cloud="rigorous")
    _, transcript, members, _ = run(settings)
    assert all(len(m) >= 2 for m in members)
    assert min(len(transcript.closed[h]) for h in TREE) >= 10


def test_after_the_own_step_of_the_aggregator_factors_travel():
    plain, stepped = (state(run(replace(SETTINGS, cloud_step=c))[0], "aggregator").model for c in (0.0, 2.0))
    assert set(plain.ranks) == {lowrank.DENSE}  # the mean of low-rank models is none
    assert min(stepped.ranks) >= 0


def test_a_term_of_the_aggregator_without_a_step_is_refused():
    with pytest.raises(UsageError, match="cloud_step = 0"):
        run(SETTINGS, smooth_grad=lambda w: w, rounds=1)


def test_without_penalty_equal_devices_weigh_the_same_wherever_they_are():
    """lam = 0 and one exact local phase: the common model is the mean over all devices, as FedSLR's."""
    settings = replace(SETTINGS, cloud="sync", ready=0, participation=1.0, lam=0.0)
    net, _, _, _ = run(settings, rounds=1)
    same, _ = play(FEDSLR, settings_of_fedslr(settings), 1)
    got, expected = (lowrank.unpack(LAYOUT, state(n, "aggregator").model) for n in (net, same))
    assert np.abs(got - expected).max() < 1e-12


def settings_of_fedslr(s):
    return FedslrSettings(**{f.name: getattr(s, f.name) for f in fields(FedslrSettings)})


def test_settings_are_checked():
    with pytest.raises(UsageError, match="ready = 0 with cloud = 'first-b'"):
        Settings(cloud="first-b")
    with pytest.raises(UsageError, match="cloud"):
        Settings(cloud="never")
    with pytest.raises(UsageError, match="would interrupt"):
        fedslr_consensus.policies(SETTINGS, {"h": 2}, 1.0, 1.0, evaluate_every=2)
    assert "no round will be over" in fedslr_consensus.warnings(SETTINGS, {"h": 2})[0]


def test_switches_without_effect_are_said():
    """The low rank of the hospitals' models is gone in their mean, unless the aggregator makes a step of its own."""
    quiet = replace(SETTINGS, cloud_step=2.0, ready=1)
    assert fedslr_consensus.warnings(quiet, {"h": 2, "g": 2}) == []
    (said,) = fedslr_consensus.warnings(replace(quiet, cloud_step=0.0), {"h": 2, "g": 2})
    assert said.startswith("cloud_step = 0") and "lam" in said
    assert fedslr_consensus.warnings(replace(quiet, cloud_step=0.0, lam=0.0), {"h": 2, "g": 2}) == []
    (said,) = fedslr_consensus.warnings(replace(quiet, cloud="sync"), {"h": 2, "g": 2})
    assert said.startswith("ready = 1 with cloud = 'sync'")
