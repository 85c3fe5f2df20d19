"""FedBCD's asynchronous clouds, first-B and rigorous, against the literal algorithms, and what they outlive."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.methods.fedbcd.method import FEDBCD
from edge_sdk.methods.shared.consensus import mixing
from edge_sdk.methods.shared.evaluation.evaluation import Progress, Report, evaluated
from tests.methods.fedbcd import literal_fedbcd as literal
from tests.methods.fedbcd.fedbcd_runs import DRAWN, SLOW, X0, model, off, parts_of, run
from tests.methods.problems import DEVICES, LAYOUT, LOSSY, PROBLEMS, TREE, told


def z_of(net, hospital):
    return lowrank.unpack(LAYOUT, net.nodes[hospital].record.state.inner.model)


# First-B --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ready", [1, 2, 3])
@pytest.mark.parametrize("cloud_steps", [1, 3])
def test_first_b_with_carry_over(ready, cloud_steps, seed):
    settings = replace(DRAWN, cloud="first-b", ready=ready, participation=2.0, cloud_steps=cloud_steps)
    net, transcript = run(settings, 40, seed=seed, faults=SLOW)
    members, active = parts_of(transcript)
    shown, z, _ = literal.first_b(PROBLEMS, settings, X0, 0.08, members, active)
    assert len(members) == 40 and all(len(V) == ready for V in members)
    assert ready == 3 or 0 < sum("h2" in V for V in members) < 20  # h2 is slow, joins late, is never lost
    assert off(model(net), shown) < 1e-12
    assert all(off(z_of(net, h), z[h]) < 1e-12 for h in TREE if h not in members[-1])


@pytest.mark.parametrize("graph", ["ring", "identity", "h0~h1, h1~h2"])
def test_other_graphs(graph):
    settings = replace(DRAWN, cloud="first-b", ready=3, graph=graph, cloud_steps=2)
    net, transcript = run(settings, 20)
    members, active = parts_of(transcript)
    edges = mixing.ring(TREE) if graph == "ring" else [("h0", "h1"), ("h1", "h2")]
    a = np.eye(3) if graph == "identity" else mixing.metropolis(sorted(TREE), edges)
    shown, _, _ = literal.first_b(PROBLEMS, settings, X0, 0.08, members, active, lambda V: a)
    assert off(model(net), shown) < 1e-12


@pytest.mark.parametrize("cloud", ["first-b", "rigorous"])
@pytest.mark.parametrize("seed", range(2))
def test_asynchronous_under_loss_lives_and_stays_in_the_feasible_set(cloud, seed):
    """A dead device, a hospital away for several rounds, 15 % loss. In first-B, who waits keeps its z_n."""
    settings = replace(DRAWN, cloud=cloud, eta_mode="relative", eta_z=1.0)
    faults = replace(LOSSY, away={"d5": [(0, inf)], "h1": [(20, 60)]})
    _net, transcript = run(settings, 30, seed=seed, faults=faults, deadline=9.0, hospital_deadline=4.0)
    assert [m.round for m in told(transcript, Progress)] == list(range(1, 31))
    for h in TREE:
        shown = [lowrank.unpack(LAYOUT, s.inner.model) for s in transcript.states[h]]
        assert max(np.abs(z).max() for z in shown) <= 2 + 1e-12
        phases = [s.phase for s in transcript.states[h]]
        assert phases == sorted(phases) and phases[-1] > 3
    assert sum("h1" in c.children for c in transcript.closed["aggregator"][-8:]) or cloud == "rigorous"


@pytest.mark.parametrize("ready, until", [(2, 30), (3, 30)])
def test_a_hospital_that_dies_does_not_stop_first_b(ready, until):
    """Of three, with two needed; with three needed, the deadline goes on with two."""
    settings = replace(DRAWN, cloud="first-b", ready=ready)
    _, transcript = run(settings, until, faults=NetworkFaults(away={"h2": [(15, inf)]}), deadline=40.0)
    assert len(transcript.closed["aggregator"]) == until


def test_a_hospital_that_comes_late_joins_first_b():
    settings = replace(DRAWN, cloud="first-b")
    _, transcript = run(settings, 30, faults=NetworkFaults(away={"h2": [(0, 20)]}))
    assert any("h2" in c.children for c in transcript.closed["aggregator"])


@pytest.mark.parametrize("cloud", ["first-b", "rigorous"])
def test_the_final_evaluation_ends_an_asynchronous_run(cloud):
    settings = replace(DRAWN, cloud=cloud)
    net, transcript = run(settings, 10, method=evaluated(FEDBCD), faults=SLOW)
    (report,) = told(transcript, Report)
    assert report.final and report.sums["devices"] == len(DEVICES)  # of all hospitals, though a round needs only two
    assert all(net.nodes[d].record.state.final for d in DEVICES)


# Rigorous -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cloud_steps", [1, 3])
def test_rigorous(cloud_steps, seed):
    settings = replace(DRAWN, cloud="rigorous", ready=2, participation=2.0, cloud_steps=cloud_steps)
    net, transcript = run(settings, 30, seed=seed, faults=SLOW)
    members, active = parts_of(transcript)
    mean = literal.rigorous(PROBLEMS, settings, X0, 0.08, members, active)
    assert all(len(V) == 2 for V in members) and sum("h2" in V for V in members) < 15
    assert off(model(net), mean) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_rigorous_when_a_hospital_is_away(seed):
    """Who has missed rounds steps alone until it has caught up: nobody skips a round. One device is dead."""
    settings = replace(DRAWN, cloud="rigorous", ready=2)
    faults = NetworkFaults(away={"h2": [(8, 25)], "d1": [(0, inf)]}, slow={("d3", 3): 50.0})
    net, transcript = run(settings, 40, seed=seed, faults=faults, hospital_deadline=4.0)
    members, heard = parts_of(transcript)
    assert sum("h2" not in V for V in members[:20]) > 1 and any("h2" in V for V in members[-5:])
    asked = lambda n, k: [d for d in TREE[n] if k + 1 in transcript.ran.get(d, [])]  # noqa: E731
    assert asked("h1", 2) == ["d3", "d4"] != heard("h1", 2)  # an answer was lost: the copy is older than x
    lost = {(t, n) for t, V in enumerate(members[:-1]) for n in V if t + 2 not in transcript.ran[n]}
    mean = literal.rigorous(PROBLEMS, settings, X0, 0.08, members, asked, heard, lost)
    assert off(model(net), mean) < 1e-12
