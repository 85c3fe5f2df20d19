"""Every message of HSGD, the paper's cost and its clock; methods/test_hsgd_wire.py has the ledger against a run."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks import costs
from benchmarks.costs import Links, Traffic, count_floats, list_messages, paper_floats, pooled_floats
from edge_sdk.contract.environment.kernels import Split
from edge_sdk.errors import UsageError

SPLIT = Split(s0=1000, s1=300, s2=200, d1=16, d2=8)
TRAFFIC = Traffic(SPLIT, [(920, 18), (900, 18), (700, 14)])
PLANS = [(1, 1), (4, 1), (4, 2), (4, 4), (12, 3)]


@pytest.mark.parametrize("P, Q", PLANS)
@pytest.mark.parametrize("change", [{}, {"ratio": 7 / 32}, {"pairs": True}, {"pairs": True, "ratio": 0.5}], ids=str)
def test_I14_the_ledger_restricted_to_what_the_paper_counts_is_its_cost(P, Q, change):
    traffic, T = replace(TRAFFIC, **change), 24
    assert np.isclose(
        count_floats(list_messages(traffic, [(P, Q)] * (T // P)), counted=True), paper_floats(traffic, P, Q, T)
    )


def test_I14_the_formula_as_it_is_printed():
    s, N, M, T = SPLIT, 18, 10, 240
    traffic, Z1, Z2 = Traffic(SPLIT, [(920, N)] * M), N * s.d1, N * s.d2
    for P, Q in PLANS:
        relation = P // Q
        printed = (s.s1 + relation * (N * s.s2 + s.s0 + Z1 + Z2)) * M * T / P
        assert np.isclose(paper_floats(traffic, P, Q, T), printed)
    Z = (s.s1 + N * s.s2 + s.s0 + Z1 + Z2) * M
    assert np.isclose(paper_floats(traffic, 6, 6, T), Z * T / 6)
    rising = [paper_floats(traffic, 12, 12 // relation, T) for relation in (1, 2, 3, 4, 6, 12)]
    assert all(a < b for a, b in pairwise(rising))


def test_I14_compression_leaves_the_averages_alone():
    s, (N, T) = SPLIT, (18, 12)
    traffic = Traffic(SPLIT, [(920, N)])
    saved = paper_floats(traffic, 4, 2, T) - paper_floats(costs.compress(traffic), 4, 2, T)
    assert np.isclose(saved, (1 - 7 / 32) * (s.s0 + N * s.d1 + N * s.d2) / 2 * T)
    kinds = {m.what for m in list_messages(costs.compress(traffic), [(4, 2)])}
    assert kinds == {
        "theta_0, theta_1",
        "theta_2",
        "A_m",
        "zeta_2",
        "Z2",
        "theta_0, Z1",
        "theta_0, zeta_1",
        "theta_1",
        "theta_0",
    }


def test_uploads_end_with_the_run_and_exchanges_before_it():
    times = {}
    for m in list_messages(Traffic(SPLIT, [(10, 2)]), [(4, 2), (4, 2)]):
        times.setdefault((m.sender, m.to, m.what), []).append(m.t)
    assert times["device", "edge", "theta_2"] == [2, 4, 6, 8]
    assert times["device", "edge", "zeta_2"] == times["hospital", "edge", "theta_0, Z1"] == [0, 2, 4, 6]
    assert times["hospital", "cloud", "theta_1"] == [4, 8] and times["cloud", "edge", "theta_2"] == [0, 4]


def test_everybody_or_only_those_who_are_drawn():
    some, all_of_them = (Traffic(SPLIT, [(10, 2)], everybody=e) for e in (False, True))
    assert (
        count_floats(list_messages(all_of_them, [(4, 2)])) - count_floats(list_messages(some, [(4, 2)]))
        == 2 * (10 - 2) * SPLIT.s2
    )
    assert count_floats(list_messages(some, [(4, 2)]), counted=True) == count_floats(
        list_messages(all_of_them, [(4, 2)]), counted=True
    )


def test_pooled_cost_is_one_group_without_global_average():
    n, raw = 50, 1e6
    one = Traffic(SPLIT, [(2500, n)])
    with_global = paper_floats(one, 8, 2, 80)
    assert np.isclose(pooled_floats(SPLIT, n, 2, 80, raw), with_global - SPLIT.s1 / 8 * 80 + raw)


def test_a_plan_that_is_none_is_refused():
    with pytest.raises(UsageError, match="P = 3, Q = 2"):
        list(list_messages(TRAFFIC, [(3, 2)]))


def test_clock_with_the_papers_rates():
    s, n = SPLIT, 18
    t = costs.estimate_times(SPLIT, n)
    assert np.isclose(t.t_l, 32 * s.s2 / 14e6 + 32 * s.s2 / 110e6)
    exchange = 32 * s.d2 / 14e6 + 32 * n * s.d2 / 74e6 + 32 * (s.s0 + n * s.d1) / 74e6 + 32 * (s.s0 + s.d1) / 110e6
    assert np.isclose(t.t_e, exchange)
    assert np.isclose(t.t_g, 32 * 1300 * (1 / 74e6 + 1 / 204e6))
    assert np.isclose(costs.estimate_round(t, 6, 2, 0.06), t.t_g + 3 * (t.t_l + t.t_e) + 6 * 0.06)


def test_clock_one_device_after_the_other_and_compressed():
    together, in_turn = (costs.estimate_times(SPLIT, 18, Links(parallel=p)) for p in (True, False))
    assert np.isclose(in_turn.t_l, 18 * together.t_l) and in_turn.t_e > together.t_e and in_turn.t_g == together.t_g
    assert np.isclose(costs.estimate_times(SPLIT, 18, ratio=0.5).t_e, together.t_e / 2)


def test_to_a_target():
    curve = [{"iterations": 1, "auc": None, "loss": 2.0}, {"iterations": 2, "auc": 0.8, "loss": 1.0}, {"auc": 0.9}]
    assert costs.find_target(curve, "auc", 0.75) == curve[1]
    assert costs.find_target(curve, "loss", 1.5, falling=True) == curve[1]
    assert costs.find_target(curve, "auc", 0.95) is None
