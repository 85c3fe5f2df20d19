"""Running sums: FedBCD and AugFL whose hospitals only add up, against the forms in which they keep every upload."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.errors import PeerError
from edge_sdk.methods import METHODS
from edge_sdk.methods.augfl.settings import Settings as AugflSettings
from edge_sdk.methods.integers.method import rounded
from edge_sdk.methods.integers.vectors.settings import Uploads
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.methods.shared.membership import running
from edge_sdk.methods.shared.membership.mirror import Account, CountedQuestion
from edge_sdk.methods.shared.membership.running import Increment
from tests.methods import contract
from tests.methods.augfl import augfl_problems
from tests.methods.augfl.augfl_problems import SMOOTH
from tests.methods.fedbcd.fedbcd_runs import DRAWN, OFFLINE, SYNC, model, off
from tests.methods.fedbcd.fedbcd_runs import run as play_fedbcd
from tests.methods.lost_disks import putting_back, replacing_a_disk
from tests.methods.problems import HASTY, LAYOUT, LOSSY, SIZES, envs_of, play, state
from tests.methods.test_contract import settings_of

CALM = NetworkFaults(repeat=0.0)
ADDING = {name: METHODS[name].adding for name in ("fedbcd", "fedbcd-i", "augfl")}


# The same iterates ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings",
    [
        SYNC,
        replace(DRAWN, participation=0.5),
        replace(DRAWN, selection="fastest", participation=0.5),
        replace(SYNC, cloud_steps=3, lam=0.02, server_penalty="l1"),
        OFFLINE,
    ],
)
def test_fedbcd_has_the_iterates_of_the_form_that_keeps_every_upload(settings):
    name = "fedbcd-i" if settings is OFFLINE else "fedbcd"
    found = [model(play_fedbcd(settings, 15, method=method)[0]) for method in (METHODS[name], ADDING[name])]
    assert off(*found) < 1e-12 and off(found[0], 0) > 0.1


@pytest.mark.parametrize(
    "changes", [{}, {"upload": "u"}, {"upload": "y"}, {"participation": 0.5}, {"y_init": "plain"}, {"dual": False}]
)
def test_augfl_has_the_iterates_of_the_form_that_keeps_every_upload(changes):
    settings = AugflSettings(alpha=0.1, **changes)
    paths = [augfl_problems.play(SMOOTH, settings, 12, method=m)[2] for m in (METHODS["augfl"], ADDING["augfl"])]
    assert max(off(a, b) for a, b in zip(*paths, strict=True)) < 1e-12


@pytest.mark.long
def test_augfl_stops_where_the_other_form_stops():
    settings = AugflSettings(alpha=0.05, stop=1e-2, rho=2.0)
    paths = [augfl_problems.play(SMOOTH, settings, 400, method=m)[2] for m in (METHODS["augfl"], ADDING["augfl"])]
    assert 3 < len(paths[0]) == len(paths[1]) < 400


# Losses ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["fedbcd", "augfl"])
@pytest.mark.parametrize("uploads", [None, Uploads(bits=4, unopened=True)])
def test_the_sum_is_that_of_what_was_counted_whatever_is_lost(name, uploads):
    """With integers too: of all uploads that were counted together, one rounding is left out, that of the last one."""
    method, settings = ADDING[name], settings_of(METHODS[name])
    method = method if uploads is None else rounded(METHODS[name].adding, settings, uploads)
    net, transcript = play(method, settings, 14, faults=LOSSY, policies=HASTY)
    top = net.nodes["aggregator"].record.state
    inner = top if uploads is None else top.inner
    assert inner.ledger.era == 0 and inner.running is not None
    counted = last_counted(net, inner)
    parts = [counted_of(net, d, uploads is not None, r) for d, r in counted.items()]
    total = gather.total(inner.running, np.zeros(0))
    assert len(parts) > 3 and transcript.refused
    assert off(total.total, sum(parts)) < 1e-9
    assert total.weight == pytest.approx(sum(settings_of_device(settings, d) for d in counted))


def last_counted(net, inner):
    """Device -> the round of its last upload that is in the running sum, by what its hospital and the root know."""
    found = {}
    for h in SIZES:
        s = net.nodes[h].record.state
        s = getattr(s, "inner", s)
        s = getattr(s, "rounds", s)
        found |= s.counted
        if s.tally is not None and inner.ledger.counted.get(h, -1) == s.account.round:
            found |= dict.fromkeys(s.tally.heard, s.account.round)
    return found


def counted_of(net, device, integers, round):
    """What a device counts with: its contribution of that round, less what rounding has left of it."""
    s = net.nodes[device].record.state
    stake = s.inner.stake if integers else s.stake
    if not integers:
        return stake.tried if stake.account.round == round else stake.counted
    return stake.tried - s.left if stake.account.round == round else stake.counted - s.before


def settings_of_device(settings, device):
    return settings.weight(device) if hasattr(settings, "gamma") else settings.penalty_of(device)


@pytest.mark.parametrize("node", ["d1", pytest.param("h0", marks=pytest.mark.long)])
def test_a_lost_disk_costs_its_round_and_everybody_speaks_anew(node):
    settings = replace(SYNC, local_steps=20)
    net, transcript = play_fedbcd(settings, 60, faults=CALM, method=replacing_a_disk(ADDING["fedbcd"], node, 20))
    z = np.array([c.state.model.values for c in transcript.closed["aggregator"]])
    assert state(net, "aggregator").ledger.era == 1
    assert np.array_equal(z[20], z[19]), "the round in which it was said"
    assert off(model(net), model(play_fedbcd(settings, 60, faults=CALM)[0])) < 0.02 * off(z[-1], z[0])


@pytest.mark.parametrize("name", ["fedbcd", "augfl"])
@pytest.mark.parametrize("at", [1, 7])
def test_a_hospital_put_back_from_the_middle_of_a_round_costs_that_round_and_everybody_speaks_anew(name, at):
    """The backup has not heard all whose changes are in the sum: told so, they would send the same changes again."""
    method, settings = putting_back(ADDING[name], "h0", at), settings_of(METHODS[name])
    net, _ = play(method, settings, 14, faults=CALM)
    s = state(net, "aggregator")
    assert s.ledger.era == 1
    parts = [counted_of(net, d, False, r) for d, r in last_counted(net, s).items()]
    assert off(gather.total(s.running, np.zeros(0)).total, sum(parts)) < 1e-9


def test_a_lost_disk_does_not_move_a_model_that_has_settled():
    """Of each hospital one device is asked in a round, and all in the round after."""
    settings, at = replace(SYNC, local_steps=20, participation=0.34), 200
    _, transcript = play_fedbcd(settings, at + 6, faults=CALM, method=replacing_a_disk(ADDING["fedbcd"], "h0", at))
    z = np.array([c.state.model.values for c in transcript.closed["aggregator"]])
    steps, way = np.abs(np.diff(z, axis=0)).max(1), np.abs(z[at - 3] - z[0]).max()
    assert steps[at - 2 :].max() < 0.005 * way


# What is refused ------------------------------------------------------------------------------------------------
def test_more_weight_than_there_is_is_refused():
    tally = gather.add(None, "h0", Increment(np.ones(3), 2.0, 2))
    running.check_weight(None, tally, "h1", Increment(np.ones(3), 1.0), 3.0)
    with pytest.raises(PeerError, match=r"h1 adds weight 1\.5 to 2; all devices have 3"):
        running.check_weight(None, tally, "h1", Increment(np.ones(3), 1.5), 3.0)
    with pytest.raises(PeerError, match="all devices have 3"):
        running.check_weight(tally, tally, "h1", Increment(np.ones(3), 0.0), 3.0)


def test_a_sum_of_lengths_or_counts_that_are_not_there_is_refused():
    env = replace(envs_of(METHODS["fedbcd"], SYNC, 1)["aggregator"], me="aggregator")
    with pytest.raises(PeerError, match="3 numbers, expected 40"):
        running.gathered(env, None, "h0", Increment(np.ones(3), 1.0), 40)
    with pytest.raises(PeerError, match="sum of 4 devices, it has 3"):
        running.gathered(env, None, "h0", Increment(np.ones(40), 1.0, 4), 40)
    for bad in (Increment(np.full(3, np.nan), 1.0), Increment(np.ones(3), -1.0), Increment(np.ones(3), 1.0, 0)):
        with pytest.raises(ValueError):
            bad.check(LAYOUT)


def test_a_device_that_is_told_of_an_upload_it_does_not_know_says_so():
    stake = running.no_stake(envs_of(METHODS["fedbcd"], SYNC, 1)["d0"])
    stake, change, first = running.raise_stake(stake, 3, np.ones(4))
    assert first and np.array_equal(change, np.ones(4))

    def asked(counted, era=0):
        return CountedQuestion(9, 1, counted, era)

    assert running.settle_stake(stake, "d0", asked({"d0": 2})) is None
    assert not running.settle_stake(stake, "d0", asked({})).counted.size
    kept = running.settle_stake(stake, "d0", asked({"d0": 3}))
    assert np.array_equal(kept.counted, np.ones(4)) and kept.account == Account(0, 3, 3)
    assert not running.settle_stake(kept, "d0", asked({}, era=1)).counted.size
    assert [running.was_counted(stake, "d0", m) for m in (asked({"d0": 3}), asked({}), asked({}, 1))] == [
        True,
        False,
        None,
    ]


def test_sums_beyond_the_integers_begin_anew():
    tally = gather.add(None, "h0", Increment(np.full(2, 2.0**32), 1.0))
    total = None
    for _ in range(2000):
        total = running.add_round(total, tally)
    assert running.is_full(total) and not running.is_full(tally) and not running.is_full(None)


# The contract ---------------------------------------------------------------------------------------------------
CHECKS = [check for check in contract.CHECKS if check is not contract.an_interrupted_round_is_dropped]
EACH = [(name, check) for name in ADDING for check in CHECKS]


@pytest.mark.long
@pytest.mark.parametrize(("name", "check"), EACH, ids=[f"{name}-{check.__name__}" for name, check in EACH])
def test_contract(name, check):
    settings = settings_of(METHODS[name])
    check(evaluated(rounded(METHODS[name].adding, settings, Uploads(unopened=True)), every=3), settings)
    check(evaluated(ADDING[name], every=3), settings)
