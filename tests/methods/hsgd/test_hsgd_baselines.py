"""HSGD's baselines, JFL and compression, against the literal algorithm; the contract for all of these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd import hospital as hsgd_hospital
from edge_sdk.methods.hsgd import messages as hsgd_messages
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Settings
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from tests.methods import contract
from tests.methods.hsgd import literal_hsgd as literal
from tests.methods.hsgd.hsgd_runs import BASIC, NET, by_literal, error
from tests.methods.hsgd.split_problems import BIG, SEVERAL, THETA0, envs_of, intervals, play
from tests.methods.problems import HASTY


@pytest.mark.parametrize("P, Q", [(1, 1), (4, 2), (4, 1), (4, 4)])
def test_jfl_agrees_with_the_literal_algorithm(P, Q):
    net, transcript = play(SEVERAL, Settings(P=P, Q=Q, eta=0.3, alpha=0.7, copies="pair"), 3)
    assert error(net, by_literal(net, transcript, SEVERAL, [(P, Q, 0.3)] * 3, pairs=True)) < 1e-13


@pytest.mark.parametrize("seed", range(2))
def test_jfl_with_lost_messages(seed):
    policies = {"aggregator": replace(HASTY["aggregator"], deadline=30.0), "hospital": HASTY["hospital"]}
    settings = replace(BASIC, copies="pair")
    net, transcript = play(BIG, settings, 4, faults=NetworkFaults(drop=0.1), policies=policies, seed=seed)
    found = intervals(transcript)
    sound = [r for r, g in enumerate(found.groups) if all(found.back.get((m, r, 1)) for m in g)]
    assert sound == [0, 1, 2, 3] and any(found.A[k] != found.back[k] for k in found.A)
    assert error(net, by_literal(net, transcript, BIG, [(4, 2, 0.3)] * 4, pairs=True)) < 1e-12


def test_jfl_sends_theta_2_only_for_the_global_average():
    _, transcript = play(BIG, replace(BASIC, P=4, Q=1, copies="pair"), 1, faults=NetworkFaults(repeat=0))
    sent = [m for _, _, m in transcript.crossed if isinstance(m, hsgd_messages.Embed)]
    back = [m for _, _, m in transcript.crossed if isinstance(m, hsgd_messages.Trained)]
    assert sum(m.device is not None for m in sent) == sum(m.device is not None for m in back) == 13
    assert len(sent) == len(back) == 4 * 13


@pytest.mark.parametrize("pairs", [False, True], ids=["C-HSGD", "JFL"])
def test_top_k_agrees_with_the_literal_algorithm(pairs):
    settings = replace(BASIC, keep=0.4, copies="pair" if pairs else "group")
    net, transcript = play(SEVERAL, settings, 3)
    squeeze = lambda x: literal.top(x, max(1, int(0.4 * len(x))))  # noqa: E731
    path = by_literal(net, transcript, SEVERAL, [(4, 2, 0.3)] * 3, squeeze=squeeze, pairs=pairs)
    assert error(net, path) < 1e-13


def test_theta_0_is_compressed_tensor_by_tensor():
    env = envs_of(BIG, NET, THETA0, replace(BASIC, keep=0.5), 1)["h0"]
    sizes = (("weight", (4, 5), "linear"), ("bias", (4,), "bias"), ("towers", (22,), "other"))
    found = compression.unpack(hsgd_hospital.pack_theta_0(replace(env, layout=layout_of(*sizes)), THETA0[:24]))[0]
    assert (found == np.concatenate([literal.top(THETA0[:20], 10), literal.top(THETA0[20:24], 2)])).all()


def test_levels_agree_with_the_literal_algorithm():
    def coarse(x, b=16):
        step = (x.max() - x.min()) / (b - 1)
        return x.min() + np.array([min(range(b), key=lambda k: abs(v - x.min() - k * step)) for v in x]) * step

    net, transcript = play(SEVERAL, replace(BASIC, levels=16), 2)
    assert error(net, by_literal(net, transcript, SEVERAL, [(4, 2, 0.3)] * 2, squeeze=coarse)) < 1e-12


def test_columns_are_chosen_by_the_last_gradient():
    """First exchange in full; then whole columns of zeta_2, those whose bias moved most."""
    envs = envs_of(SEVERAL, NET, THETA0, replace(BASIC, keep=0.4, columns=True), 2)
    envs = {n: replace(e, bias=slice(0, 3)) for n, e in envs.items()}
    transcript = Loopback(HSGD, {h: tuple(ds) for h, ds in SEVERAL.items()}, envs, {}, 0, NetworkFaults(repeat=0)).run()
    sent = [m.zeta_2 for a, _, m in transcript.crossed if a == "d1" and isinstance(m, hsgd_messages.Embedding)]
    assert isinstance(sent[0], compression.Dense) and len(sent) == 4
    weights = [s.weights for s in transcript.states["d1"]]
    for parcel, before in zip(sent[1:], weights[1::2], strict=False):
        assert {tuple(row) for row in compression.unpack_mask(parcel).tolist()} == {tuple(before == before.max())}
    rows = [m.zeta_1 for _, b, m in transcript.crossed if b == "d1" and isinstance(m, hsgd_messages.Train)]
    assert isinstance(rows[0], compression.Dense) and all(isinstance(p, compression.Sparse) for p in rows[1:])


# The contract, for settings that send and remember other things than the defaults -------------------------------
OTHERS = {
    "intervals": dict(P=4, Q=2, alpha=0.6, batch=2),
    "JFL": dict(P=4, Q=2, copies="pair"),
    "C-HSGD": dict(P=2, Q=1, keep=7 / 32),
    "columns": dict(P=2, Q=1, keep=0.4, columns=True),
    "JFL with columns": dict(P=2, Q=1, keep=0.4, columns=True, copies="pair"),
    "levels": dict(P=2, Q=2, levels=16),
    "strategies": dict(P=4, Q=2, pretraining=3, strategies=("rate",), alpha=0.6),
}
CHECKS = (contract.survives_the_codec, contract.order_does_not_matter, contract.replays, contract.inputs_untouched)


@pytest.mark.parametrize("check", CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_contract(change, check):
    check(evaluated(HSGD, every=2), Settings(eta=0.05, **change))
