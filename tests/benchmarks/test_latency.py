"""Round lengths: the simulator against the reference table, the theory, and the loopback's virtual clock."""

from math import exp, gamma, inf, log

import numpy as np
import pytest

from benchmarks import latency
from benchmarks.latency import Hospitals, make_schedule
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedbcd.method import FEDBCD, policies
from edge_sdk.methods.fedbcd.settings import Settings
from edge_sdk.methods.shared.evaluation.reports import Progress

ROUNDS = 12_000
REFERENCE = {  # (computing, |Q|): E tau, then E tau_(1), (2), (3), (5), (7), (10)
    ("mult", 3): (6.31, 1.81, 2.59, 3.30, 4.82, 6.86, 15.01),
    ("mult", 5): (8.28, 3.13, 4.15, 5.02, 6.79, 9.04, 17.50),
    ("mult", 6): (9.12, 3.75, 4.86, 5.78, 7.62, 9.94, 18.52),
    ("sum", 3): (5.40, 2.50, 3.29, 3.88, 4.90, 6.01, 9.25),
    ("sum", 5): (6.62, 3.76, 4.56, 5.14, 6.14, 7.21, 10.38),
    ("sum", 6): (7.14, 4.29, 5.09, 5.67, 6.67, 7.73, 10.87),
}


def times(computing="mult", accepted=3, rounds=ROUNDS, seed=1):
    return latency.draw_hospital_times(
        np.random.default_rng(seed), Hospitals(computing=computing, accepted=accepted), rounds
    )


@pytest.mark.parametrize("computing, accepted", REFERENCE)
def test_order_statistics_of_the_reference_table(computing, accepted):
    tau = times(computing, accepted)
    mean, *rest = REFERENCE[computing, accepted]
    assert abs(tau.mean() - mean) < 0.06
    for ready, expected in zip((1, 2, 3, 5, 7, 10), rest, strict=True):
        got = make_schedule("restart", tau, ready).mean_round
        assert abs(got - expected) < 0.05 + 0.012 * expected
    assert abs(make_schedule("sync", tau, 1).mean_round - rest[-1]) < 0.25


@pytest.mark.parametrize("clock, expected", [
    ("fifo", {1: 0.63, 2: 1.33, 3: 2.10, 5: 3.94, 7: 6.36, 10: 14.98}),
    ("rigorous", {2: 6.59, 3: 6.90, 5: 7.69, 7: 8.94, 10: 15.0}),
])  # fmt: skip
def test_clocks_of_the_reference_table(clock, expected):
    tau = times()
    for ready, mean in expected.items():
        assert abs(make_schedule(clock, tau, ready).mean_round - mean) < 0.02 + 0.02 * mean


def test_with_everybody_all_clocks_are_sync():
    tau = times(rounds=50)
    ends = make_schedule("sync", tau, 10).ends
    for clock in latency.CLOCKS:
        done = make_schedule(clock, tau, 10)
        assert np.allclose(done.ends, ends) and done.members.all()


@pytest.mark.parametrize("clock", ["restart", "fifo", "rigorous"])
def test_so_many_are_members(clock):
    done = make_schedule(clock, times(rounds=200), 3)
    assert (done.members.sum(1) == 3).all() and (np.diff(done.ends) >= 0).all()


def test_by_hand():
    tau = np.array([[1.0, 5.0, 3.0], [1.0, 1.0, 1.0], [9.0, 1.0, 1.0]])
    fifo = make_schedule("fifo", tau, 1)
    assert fifo.ends.tolist() == [1, 2, 3] and fifo.members.argmax(1).tolist() == [0, 0, 2]
    alone = make_schedule("rigorous", tau, 1)  # all are ready at 2, 6, 4 for round 1, then at 11, 7, 5 for round 2
    assert alone.ends.tolist() == [1, 2, 5]
    assert make_schedule("restart", tau, 2).ends.tolist() == [3, 4, 5]


def test_exponential_times_do_not_remember():
    """`restart` and `fifo` have the same law then, and the ratio is known exactly."""
    tau = np.random.default_rng(2).exponential(3.0, (ROUNDS, 10))
    sync = make_schedule("sync", tau, 10).mean_round
    for ready, exact in {1: 0.03414, 2: 0.07208, 3: 0.11475, 5: 0.22043, 7: 0.37407}.items():
        assert latency.exponential_ratio(ready, 10) == pytest.approx(exact, abs=5e-6)
        for clock in ("restart", "fifo"):
            assert make_schedule(clock, tau, ready).mean_round / sync == pytest.approx(exact, rel=0.03)
    assert latency.exponential_ratio(10, 10) == 1


def test_the_bound_of_equation_8():
    quantile = lambda p: -log(1 - p)  # noqa: E731
    for ready, bound in {1: 0.0458, 2: 0.0969, 3: 0.1549, 5: 0.3010, 7: 0.5229}.items():
        assert latency.quantile_ratio(quantile, ready, 10) == pytest.approx(bound, abs=5e-5)
        assert latency.weibull_ratio(ready, 10, 1.0) == pytest.approx(bound, abs=5e-5)
        assert bound > latency.exponential_ratio(ready, 10)
    assert latency.weibull_ratio(10, 10, 1.0) == inf


@pytest.mark.parametrize("shape", [0.7, 1.5, 3.0])
def test_weibull(shape):
    """The sign inside the power. The exact ratio of means lies below, and nears it."""
    quantile = lambda p: (-log(1 - p)) ** (1 / shape)  # noqa: E731
    assert latency.weibull_ratio(3, 10, shape) == pytest.approx(latency.quantile_ratio(quantile, 3, 10))
    tau = np.sort(np.random.default_rng(3).weibull(shape, (4000, 40)), 1).mean(0)
    assert tau.mean() == pytest.approx(gamma(1 + 1 / shape), rel=0.02)
    assert tau[11] / tau[-1] < latency.weibull_ratio(12, 40, shape)


def test_unbounded_times_gain_without_limit_and_bounded_ones_do_not():
    assert (
        latency.weibull_ratio(300_000, 10**6, 1.5)
        < latency.weibull_ratio(300, 1000, 1.5)
        < latency.weibull_ratio(3, 10, 1.5)
    )
    limit = latency.bounded_ratio(lambda p: 4 * p, 300, 1000, 4.0)
    tau = np.sort(np.random.default_rng(4).uniform(0, 4, (200, 1000)), 1).mean(0)
    assert limit == 0.3 and tau[299] / tau[-1] == pytest.approx(limit, rel=0.01)


def test_the_normal_limit_of_order_statistics():
    mean, variance = latency.normal_order_statistic(lambda p: -log(1 - p), lambda t: exp(-t), 120, 400)
    tau = np.sort(np.random.default_rng(5).exponential(1.0, (4000, 400)), 1)[:, 119]
    assert tau.mean() == pytest.approx(mean, rel=0.01) and tau.var() == pytest.approx(variance, rel=0.08)


def test_work_that_is_kept_makes_rounds_shorter_than_the_analysis_says():
    rows = latency.make_table(Hospitals(), (1, 3, 5, 10), rounds=4000)
    assert all(r.fifo < r.restart < r.rigorous for r in rows[:3])
    assert all(r.ratio < r.estimate for r in rows[:3]) and rows[3].ratio == 1
    assert latency.format_table(rows).count("\n") == 4


def test_pull_only_is_faster():
    assert times("pull-only", rounds=500).mean() < 0.3 * times("mult", rounds=500).mean()


def test_accuracy_against_time():
    ends, values = [2.0, 5.0, 9.0], [0.3, 0.6, 0.5]
    assert np.isnan(latency.read_at(ends, values, [1.0])[0])
    assert latency.read_at(ends, values, [2.0, 4.9, 5.0, 100.0]).tolist() == [0.3, 0.3, 0.6, 0.5]
    assert latency.find_time(ends, values, 0.55) == 5.0 and latency.find_time(ends, values, 0.9) == inf


# The loopback's clock as the simulated time ---------------------------------------------------------------------
TREE = {f"h{n}": tuple(f"d{n}{i}" for i in range(4)) for n in range(4)}
SMALL = Hospitals(hospitals=4, devices=4, accepted=2)


def played(cloud, ready, rounds=120):
    """FedBCD on scalars; (ends of the rounds, the personal models' distance to their own data after each)."""
    settings = Settings(eta_x=0.1, unit="step", batch=0, cloud=cloud, ready=ready, participation=2.0)
    common = dict(rounds=rounds, layout=layout_of(("w", (1,), "other")), theta0=np.zeros(1), settings=settings)
    sizes = {h: len(devices) for h, devices in TREE.items()}
    envs = {"aggregator": FEDBCD.env(**common, sizes=sizes)}
    for i, (h, devices) in enumerate(TREE.items()):
        envs[h] = FEDBCD.env(**common, sizes=dict.fromkeys(devices, 1))
        score = lambda x, i=i: {"samples": 1, "loss": float(x[0] - i / 4) ** 2}  # noqa: E731
        grad = lambda x, _, i=i: (0.0, x - i / 4)  # noqa: E731
        envs |= {d: FEDBCD.env(**common, grad_fn=grad, samples=1, score=score) for d in devices}
    faults = NetworkFaults(repeat=0.0, delay=(0.0, 0.0), slow=latency.Delays(TREE, SMALL))
    transcript = Loopback(FEDBCD, TREE, envs, policies(settings, sizes, inf, inf), 0, faults).run()
    told = [m for _, m in transcript.told if isinstance(m, Progress)]
    return [c.time for c in transcript.closed["aggregator"]], [-m.sums["personal_loss"] / m.devices for m in told]


def test_a_run_takes_the_time_that_its_clock_says_and_sync_is_last():
    tau = latency.draw_hospital_times(np.random.default_rng(0), SMALL, 4000)
    reached = {}
    for cloud, clock, ready in (("sync", "sync", 2), ("first-b", "fifo", 2), ("rigorous", "rigorous", 2)):
        ends, values = played(cloud, ready)
        assert ends[-1] / len(ends) == pytest.approx(make_schedule(clock, tau, ready).mean_round, rel=0.15)
        reached[cloud] = latency.find_time(ends, values, -0.02)
    assert max(reached["first-b"], reached["rigorous"]) < reached["sync"] < inf


@pytest.mark.parametrize("wrong", [
    lambda: Hospitals(accepted=11), lambda: Hospitals(computing="magic"), lambda: Hospitals(arrival=0.0),
    lambda: make_schedule("fifo", times(rounds=2), 11), lambda: make_schedule("lamport", times(rounds=2), 1),
    lambda: latency.exponential_ratio(0, 10),
])  # fmt: skip
def test_mistakes_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()
