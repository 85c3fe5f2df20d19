"""Two draws, one at the aggregator and one in each hospital, are one draw over all devices."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from aggregator.private_model.table import warnings_of
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedavg import Settings as FedavgSettings
from edge_sdk.methods.fedbcd.settings import Settings as FedbcdSettings
from edge_sdk.methods.shared.aggregation import draw
from edge_sdk.methods.shared.training.local import batches
from edge_sdk.nodes.configuration.assembly import describe_excess
from edge_sdk.replay.cohorts.form import form_cohort
from edge_sdk.replay.planning.plan import Replay, plan_run

SIZES = {"h0": 3, "h1": 2, "h2": 1}


def root(here=("h0", "h1", "h2"), sizes=SIZES, seed=0):
    return NodeEnv(me="aggregator", here=here, sizes=sizes, seed=seed)


def drawn(participation, selection, round, here=("h0", "h1", "h2")):
    """The devices of one round, over both tiers."""
    found = []
    for h, k in draw.quotas(root(here), round, participation, selection).items():
        devices = tuple(f"{h}.{i}" for i in range(SIZES[h]))
        found += draw.chosen(NodeEnv(me=h, here=devices), round, k)
    return tuple(found)


def test_fixed_every_subset_is_equally_likely():
    counts = Counter(drawn(3, "fixed", t) for t in range(4000))
    devices = [f"{h}.{i}" for h, n in SIZES.items() for i in range(n)]
    assert set(counts) == set(combinations(devices, 3))
    expected = 4000 / 20
    assert sum((c - expected) ** 2 / expected for c in counts.values()) < 43.8  # chi-square, 19 degrees, 0.1 %


def test_bernoulli_each_device_by_itself_and_never_nobody():
    found = [drawn(0.3, "bernoulli", t) for t in range(4000)]
    assert min(map(len, found)) == 1
    sizes = np.bincount([len(f) for f in found], minlength=7)[1:] / 4000
    binomial = np.array([6, 15, 20, 15, 6, 1]) * 0.3 ** np.arange(1, 7) * 0.7 ** np.arange(5, -1, -1)
    assert np.abs(sizes - binomial / (1 - 0.7**6)).max() < 0.03


@pytest.mark.parametrize("participation, count", [(1.0, 6), (0.5, 3), (0.01, 1), (2, 2), (6, 6), (50, 6), (0.6, 4)])
def test_how_many(participation, count):
    assert {len(drawn(participation, "fixed", t)) for t in range(20)} == {count}


def test_everybody_is_everybody():
    assert draw.quotas(root(), 0, 1.0, "fixed") == draw.quotas(root(), 0, 1.0, "bernoulli") == SIZES


def test_only_hospitals_that_are_here_and_have_devices():
    assert draw.quotas(root(here=("h0", "h2")), 0, 1.0, "fixed") == {"h0": 3, "h2": 1}
    assert draw.quotas(root(here=()), 0, 1.0, "fixed") == {}
    assert draw.quotas(root(sizes={"h0": 3, "h1": 0}), 0, 1.0, "fixed") == {"h0": 3}


def test_the_same_round_is_the_same_draw_and_the_next_another():
    assert drawn(3, "fixed", 5) == drawn(3, "fixed", 5)
    assert len({drawn(3, "fixed", t) for t in range(20)}) > 5


# Mini-batches ---------------------------------------------------------------------------------------------------
def parts(samples, batch, epochs):
    return list(batches(np.random.default_rng(0), samples, batch, epochs))


def test_every_epoch_shows_every_sample_once_in_a_new_order():
    found = parts(45, 20, 2)
    assert [len(p) for p in found] == [20, 20, 5] * 2
    one, other = np.concatenate(found[:3]), np.concatenate(found[3:])
    assert sorted(one) == sorted(other) == list(range(45)) and (one != other).any()


@pytest.mark.parametrize("samples, batch", [(20, 20), (7, 20), (500, 0)])
def test_one_batch_is_all_samples(samples, batch):
    assert parts(samples, batch, 3) == [None] * 3


def test_nothing_to_do():
    assert parts(0, 20, 3) == parts(50, 20, 0) == []


def test_more_devices_than_there_are_is_said():
    said = "participation = 50: a round asks 50 devices, there are 6; a number up to 6, or a share up to 1 (1: all)"
    assert describe_excess(FedavgSettings(participation=50), SIZES) == said
    for participation in (0.2, 1.0, 6):
        assert not describe_excess(FedavgSettings(participation=participation), SIZES)
    assert not describe_excess(FedbcdSettings(participation=3), SIZES)
    assert "no hospital has more than 3" in describe_excess(FedbcdSettings(participation=4), SIZES)


def test_a_replay_with_fewer_devices_than_are_asked_is_refused(tmp_path):
    job = Replay(data="breast-cancer", out=tmp_path / "out", method="fedavg", settings={"participation": 50})
    options = {"devices": 1, "public": 0, "samples": 40}
    cohort = form_cohort("breast-cancer", 3, 0, options)
    with pytest.raises(UsageError, match="participation = 50: a round asks 50 devices, there are 3"):
        plan_run(job, cohort)


def test_an_aggregator_warns_of_it():
    run = Run(id="r", method="fedavg", bundle="ab" * 32, classes=("a",), settings={"participation": 50})
    (said,) = warnings_of(run, SIZES, None, np.zeros(3, np.float32))
    assert said.startswith("participation = 50: a round asks 50 devices, there are 6")
