"""Devices of other architectures beside a shared model: proximal step, discriminator and consensus in one close."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.round import Policy
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods import fedslr_consensus
from edge_sdk.methods.companions import device as companions_device
from edge_sdk.methods.companions.messages import Both, SharedModel
from edge_sdk.methods.companions.method import FEDSLR_B_FEDAL, FEDSLR_FEDAL
from edge_sdk.methods.companions.settings import ConsensusSettings, Settings
from edge_sdk.methods.fedal import distillation
from edge_sdk.methods.fedal import equations as fedal_equations
from edge_sdk.methods.fedal import settings as fedal_settings
from edge_sdk.methods.fedal.messages import HospitalLogits, Outputs, Settled
from edge_sdk.methods.fedslr import settings as fedslr_settings
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.evaluation.reports import Progress
from tests.methods.fedal.logit_problems import CLASSES, COMPANIONS, PUBLIC, Net
from tests.methods.problems import DEVICES, LAYOUT, SEED, SIZES, THETA0, TREE, envs_of, play, state

SHARED = fedslr_settings.Settings(
    eta_g=0.5, eta_l=0.1, decay=0.98, lam=0.3, mu=0.2, weight_decay=0.0, batch=0, local_epochs=5
)
OUTPUTS = fedal_settings.Settings(tau=2, eta_l=0.02, batch=16, public_batch=8, al=0.5, widths=(6,), eta_d=1e-2)
SETTINGS = Settings(shared=SHARED, outputs=OUTPUTS, into=0.2)
APART = {d for devices in COMPANIONS.values() for d in devices}
OURS = {h: tuple(d for d in devices if d not in APART) for h, devices in TREE.items()}


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").shared.model)


# The shared method does not notice ------------------------------------------------------------------------------
def test_without_pull_the_shared_model_is_as_without_companions():
    net, _ = play(FEDSLR_FEDAL, replace(SETTINGS, into=0.0), 12)
    envs = envs_of(FEDSLR, SHARED, 12)
    envs["aggregator"] = replace(envs["aggregator"], sizes={h: len(d) for h, d in OURS.items()})
    envs |= {h: replace(envs[h], sizes=dict.fromkeys(d, 1)) for h, d in OURS.items()}
    alone, _ = play(FEDSLR, SHARED, 12, tree=OURS, envs=envs)
    assert np.array_equal(model(net), lowrank.unpack(LAYOUT, state(alone, "aggregator").model))
    for d in set(DEVICES) - APART:
        assert np.array_equal(state(net, d).shared.p, state(alone, d).p)


def test_the_companions_learn():
    net, _ = play(FEDSLR_FEDAL, SETTINGS, 40)
    start = envs_of(FEDSLR_FEDAL, SETTINGS, 40)
    for d in APART:
        theta = state(net, d).outputs.theta
        assert start[d].grad_fn(theta)[0] < 0.7 * start[d].grad_fn(start[d].theta0)[0]


# One close, by hand ---------------------------------------------------------------------------------------------
def one_close(settings, smooth_grad=None):
    """The aggregator after one answer of each hospital: (env, state before, after, sends)."""
    rng = np.random.default_rng(5)
    env = replace(envs_of(FEDSLR_FEDAL, settings, 9)["aggregator"], here=tuple(TREE), smooth_grad=smooth_grad, me="top")
    s, _ = FEDSLR_FEDAL.aggregator.start(env)
    for h in TREE:
        ours, n = len(OURS[h]), len(COMPANIONS.get(h, ()))
        total = ours * (THETA0 + 0.3 * rng.normal(size=LAYOUT.size))
        logits = rng.normal(size=(n, OUTPUTS.public_batch, CLASSES))
        outputs = HospitalLogits(tuple(range(n)), logits) if n else None
        s, _ = FEDSLR_FEDAL.aggregator.receive(env, s, h, Both(Sum(total, float(ours), ours), outputs))
    return env, s, *FEDSLR_FEDAL.aggregator.close(env, s)


PLAIN = fedal_settings.Env(seed=SEED, settings=OUTPUTS, public=Net((2,)).inputs(PUBLIC))
ROWS = fedal_equations.draw_public_rows(PLAIN, 0, 0)


def logits_of_w(w):
    return Net((2,)).logits(w, PUBLIC[ROWS])


def kd_term(w, others):
    """K(mean of the others' logits, own), per input: what the companions want of the shared model."""
    q, p = distillation.softmax(others), distillation.softmax(logits_of_w(w))
    return float((q * (np.log(q) - np.log(p))).sum() / len(ROWS))


def numerical(f, w, h=1e-6):
    found = np.zeros_like(w)
    for i in range(len(w)):
        e = np.zeros_like(w)
        e[i] = h
        found[i] = (f(w + e) - f(w - e)) / (2 * h)
    return found


@pytest.mark.parametrize("regularised", [False, True])
def test_proximal_and_outputs_and_regulariser_are_one_forward_backward_step(regularised):
    """The certificate: the rest of the step is a subgradient of the nuclear norm at the new model."""
    settings = replace(SETTINGS, outputs=replace(OUTPUTS, al=0.0))
    toward = np.linspace(-1, 1, LAYOUT.size)
    pull_r = (lambda w: 0.4 * (w - toward)) if regularised else None
    _, before, after, _ = one_close(settings, pull_r)
    w, new = THETA0, lowrank.unpack(LAYOUT, after.shared.model)
    uploads = before.shared.tally
    others = np.mean([row for p in before.outputs.parcels.values() for row in p.logits], axis=0)
    gradient = settings.into * numerical(lambda v: kd_term(v, others), w)
    gradient += pull_r(w) if regularised else 0.0
    total = gather.total(uploads, THETA0)
    x = total.total / total.count - SHARED.eta_g * after.shared.gamma_mean
    rest = (x - SHARED.eta_g * gradient - new) / SHARED.eta_g
    for slot in LAYOUT.slots:
        if not lowrank.has_matrix(slot):
            assert np.abs(LAYOUT.view(rest, slot)).max() < 1e-8
            continue
        z, g = (lowrank.matrix(slot, LAYOUT.view(v, slot)) for v in (new, rest))
        u, sigma, vt = np.linalg.svd(z, full_matrices=False)
        r = int((sigma > 1e-10).sum())
        u, v = u[:, :r], vt[:r].T
        assert np.abs(u.T @ g @ v - SHARED.lam * np.eye(r)).max(initial=0) < 1e-8
        outside = g - u @ u.T @ g - g @ v @ v.T + u @ u.T @ g @ v @ v.T
        assert np.linalg.norm(outside, 2) < SHARED.lam + 1e-8
        assert np.abs(g - outside - SHARED.lam * u @ v.T).max() < 1e-8


def test_the_global_model_is_in_the_companions_consensus():
    _, before, _, sends = one_close(SETTINGS)
    stack = [row for p in before.outputs.parcels.values() for row in p.logits] + [logits_of_w(THETA0)]
    told = [m.message.outputs for m in sends if m.to != "out" and isinstance(m.message, Both) and m.message.outputs]
    assert told
    for m in told:
        assert m.count == len(APART) + 1
        assert np.abs(m.mean - np.mean(stack, axis=0)).max() < 1e-12


def test_the_discriminator_pulls_on_the_global_model_too():
    kd = one_close(replace(SETTINGS, outputs=replace(OUTPUTS, al=0.0)))[2]
    both = one_close(SETTINGS)[2]
    assert np.abs(kd.shared.model.values - both.shared.model.values).max() > 1e-6
    assert len(both.outputs.w) > 0 and not np.array_equal(both.outputs.w, one_close(SETTINGS)[1].outputs.w)


# Tiers ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
def test_consensus_between_hospitals_goes_on_while_one_is_slow(seed):
    shared = fedslr_consensus.Settings(
        **{k: v for k, v in vars(SHARED).items() if k != "participation"}, cloud="first-b", ready=2, cloud_step=0.3
    )
    settings = ConsensusSettings(shared=shared, outputs=OUTPUTS, into=0.2)
    policies = FEDSLR_B_FEDAL.policies(settings, SIZES, np.inf, np.inf, 0)
    net, transcript = play(
        FEDSLR_B_FEDAL, settings, 20, faults=NetworkFaults(work={"d3": 7.0}), policies=policies, seed=seed
    )
    members = [sorted(c.children) for c in transcript.closed["aggregator"]]
    assert len(members) == 20 and len({tuple(m) for m in members}) > 1
    late = [c for c in transcript.closed["aggregator"] if "h1" in c.children]
    assert late  # it joins, and what its companion says of an exchange that is over is not counted
    assert np.isfinite(model(net)).all()
    for c in transcript.closed["aggregator"]:
        assert set(c.state.outputs.parcels) <= set(TREE)


def test_an_answer_to_an_exchange_that_is_over_is_not_counted():
    env, before, _, _ = one_close(SETTINGS)
    stale = replace(before, outputs=replace(before.outputs, parcels={}), exchanges={"h0": (0, 7, "logits")})
    logits = np.zeros((1, OUTPUTS.public_batch, CLASSES))
    after, _ = FEDSLR_FEDAL.aggregator.receive(env, stale, "h0", Both(None, HospitalLogits((0,), logits)))
    assert after.outputs.parcels == {}


def test_no_parameter_of_a_companion_leaves_it():
    _, transcript = play(FEDSLR_FEDAL, SETTINGS, 12)
    said = {type(m) for sender, _, m in transcript.crossed if sender in APART}
    assert said <= {Outputs, Settled, Nobody}
    up = [m.outputs for sender, to, m in transcript.crossed if sender in TREE and to == "aggregator"]
    assert {type(m) for m in up} <= {HospitalLogits, Settled, Nobody, type(None)}


def test_lost_messages_and_a_dead_companion_stop_nobody():
    hasty = {"aggregator": Policy(quorum=1, deadline=9.0), "hospital": Policy(deadline=4.0)}
    faults = NetworkFaults(drop=0.15, away={"d4": [(0, np.inf)], "h0": [(20, 60)]})
    net, transcript = play(FEDSLR_FEDAL, SETTINGS, 30, faults=faults, policies=hasty)
    assert state(net, "aggregator").shared.round == 30
    told = [m for who, m in transcript.told if who == "aggregator" and isinstance(m, Progress)]
    assert len(told) == 30 and np.isfinite(model(net)).all()


def test_the_report_of_a_round_tells_of_the_game():
    _, transcript = play(FEDSLR_FEDAL, SETTINGS, 12)
    sums = [m.sums for _, m in transcript.told if isinstance(m, Progress)]
    assert any({"payoff", "floor", "caught", "gap", "exchanged"} <= set(s) for s in sums)


# What is refused ------------------------------------------------------------------------------------------------
def test_settings_are_checked():
    with pytest.raises(UsageError, match="averaging"):
        Settings(outputs=fedal_settings.Settings(averaging="after_local"))
    with pytest.raises(UsageError, match="rigorous"):
        ConsensusSettings(shared=fedslr_consensus.Settings(cloud="rigorous", ready=1))
    with pytest.raises(UsageError, match=r"into = 0\.2 with shared\.cloud_step = 0"):
        ConsensusSettings(into=0.2)
    with pytest.raises(UsageError, match="into"):
        Settings(into=-1.0)


ALL = ConsensusSettings(
    shared=fedslr_consensus.Settings(**{**vars(SHARED), "cloud": "first-b", "ready": 2, "cloud_step": 0.3}),
    outputs=OUTPUTS,
    into=0.2,
)


def switched(shared=None, outputs=None, **more):
    return replace(
        ALL, shared=replace(ALL.shared, **(shared or {})), outputs=replace(OUTPUTS, **(outputs or {})), **more
    )


def common_model(settings, private=True):
    """The aggregator's model after a few closes, each by the first hospitals."""
    envs = envs_of(FEDSLR_B_FEDAL, settings, 8)
    term = (lambda w: 0.4 * (w - 1)) if private else None
    envs["aggregator"] = replace(envs["aggregator"], smooth_grad=term)
    policies = FEDSLR_B_FEDAL.policies(settings, SIZES, 1e9, 1e8, 0)
    net, _ = play(FEDSLR_B_FEDAL, settings, 8, envs=envs, policies=policies, faults=NetworkFaults(repeat=0))
    return model(net)


def test_each_of_the_five_steps_acts_on_the_shared_model():
    every = common_model(ALL)
    others = {
        "prox": common_model(switched({"global_penalty": "none"})),
        "private model": common_model(ALL, private=False),
        "outputs": common_model(switched(into=0.0)),
        "discriminator": common_model(switched(outputs={"al": 0.0})),
        "consensus": common_model(switched({"cloud": "sync", "ready": 0})),
    }
    assert np.array_equal(every, common_model(ALL))
    assert {name: float(np.abs(w - every).max()) > 1e-9 for name, w in others.items()} == dict.fromkeys(others, True)


def test_switches_without_effect_are_said():
    sizes = {h: len(d) for h, d in TREE.items()}
    assert FEDSLR_FEDAL.warnings(SETTINGS, sizes) == []
    (said,) = FEDSLR_FEDAL.warnings(replace(SETTINGS, into=0.0), sizes)
    assert said.startswith("into = 0") and "outputs.al" in said
    (said,) = FEDSLR_B_FEDAL.warnings(ALL, sizes)
    assert said.startswith("shared.ready = 2 of 3 hospitals")
    assert FEDSLR_B_FEDAL.warnings(switched({"ready": 3}), sizes) == []


def test_hospitals_that_are_not_waited_for_miss_exchanges_of_outputs():
    """What the warning says: fewer than a third of the exchanges that all hospitals together make."""
    found = {}
    for ready in (2, 3):
        settings = switched({"ready": ready}, {"tau": 5})
        policies = FEDSLR_B_FEDAL.policies(settings, SIZES, np.inf, np.inf, 0)
        _, transcript = play(FEDSLR_B_FEDAL, settings, 30, policies=policies, faults=NetworkFaults(repeat=0))
        rounds = [m for name, m in transcript.told if name == "aggregator" and isinstance(m, Progress)]
        found[ready] = sum(m.sums.get("exchanged", 0) for m in rounds)
    assert 0 < 3 * found[2] < found[3]


def test_a_hospital_of_companions_only_is_refused():
    env = envs_of(FEDSLR_FEDAL, SETTINGS, 3)
    with pytest.raises(UsageError, match="at least one"):
        FEDSLR_FEDAL.hospital.start(replace(env["h2"], companions=("d5",), me="h2"))
    with pytest.raises(UsageError, match="at least one"):
        FEDSLR_FEDAL.aggregator.start(replace(env["aggregator"], counts={"h2": 1}))
    with pytest.raises(UsageError, match="public inputs"):
        FEDSLR_FEDAL.aggregator.start(replace(env["aggregator"], public=None))


def test_a_model_of_another_layout_is_no_model():
    with pytest.raises(PeerError, match="model of round 3"):
        companions_device.check_model(LAYOUT, SharedModel(3, (1, 1), np.zeros(5)))
