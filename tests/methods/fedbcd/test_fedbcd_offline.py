"""FedBCD-I over three tiers against the paper's algorithm: training offline, suspension, the end."""

from dataclasses import replace
from math import inf

import pytest

from edge_sdk.contract.loopback import Loopback, NetworkFaults
from edge_sdk.methods.fedbcd.equations import cloud_eta
from edge_sdk.methods.fedbcd.method import FEDBCD_I, policies
from edge_sdk.methods.shared.evaluation.evaluation import Models, evaluated
from tests.methods.fedbcd import literal_fedbcd as literal
from tests.methods.fedbcd.fedbcd_runs import OFFLINE, SLOW, X0, model, off, parts_of, run
from tests.methods.problems import DEVICES, PROBLEMS, SIZES, TREE, devices_counted, devices_that_ran, envs_of, state


def trainings(transcript):
    """Round -> {device: trainings just before that contact}: its ticks since the last one, at least 1, at most 4."""
    rounds = [{} for _ in transcript.closed["aggregator"]]
    parent = {d: h for h, devices in TREE.items() for d in devices}
    for d in DEVICES:
        times, ticks = transcript.times[d], [c.time for c in transcript.closed.get(d, [])]
        for before, (now, number) in zip([(0, 0), *times], times, strict=False):
            offline = sum(before[0] <= t < now for t in ticks)
            rounds[transcript.asked[parent[d]][number] - 1][d] = min(max(offline, 1), 4)
    return rounds


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("after_pull", ["keep", "reset"])
@pytest.mark.parametrize("mode", ["raw", "relative", "mean"])
def test_offline_training_and_suspension(mode, after_pull, seed):
    faults = NetworkFaults(away={"d0": [(30, 200)], "d3": [(25, 70), (90, 130)]})
    settings = replace(OFFLINE, offline_every=15.0, after_pull=after_pull, eta_mode=mode, draw_steps=True)
    net, transcript = run_until(settings, 30, 700.0, seed, faults)
    contact, trained = devices_that_ran(transcript), trainings(transcript)
    eta_z = lambda count: cloud_eta(settings, SIZES, count)  # noqa: E731
    path, _ = literal.fedbcd_i(PROBLEMS, settings, X0, eta_z, trained, contact, devices_counted(transcript))
    assert off(model(net), path[-1]) < 1e-12
    assert max(t.get("d0", 0) for t in trained) == 4  # suspended after 4
    missed = [t for t, c in enumerate(contact) if "d0" not in c]
    assert len(missed) >= 5 and "d0" in contact[missed[-1] + 1]


def run_until(settings, rounds, until, seed, faults, method=FEDBCD_I):
    """Devices' clocks never stop, so the virtual one must."""
    kept = policies(settings, SIZES, 20.0, 10.0)
    net = Loopback(method, TREE, envs_of(method, settings, rounds), kept, seed, faults)
    return net, net.run(until)


def test_after_the_end_nobody_trains_by_itself():
    """What was judged and told last is what the device keeps, however long its clock goes on."""
    settings = replace(OFFLINE, offline_every=0.5, offline_limit=100)
    net, transcript = run_until(settings, 3, 500.0, 0, NetworkFaults(), evaluated(FEDBCD_I))
    for d in DEVICES:
        (last,) = [m for n, m in transcript.told if n == d and isinstance(m, Models)]
        assert (net.nodes[d].record.state.inner.x == last.models["personal"]).all()


def test_a_round_without_anybody_moves_nothing_in_fedbcd_i():
    faults = NetworkFaults(away={d: [(12, inf)] for d in DEVICES})
    net, transcript = run(OFFLINE, 10, faults=faults, deadline=9.0, hospital_deadline=4.0)
    counted = devices_counted(transcript)
    assert counted[0] and not counted[-1]
    path, _ = literal.fedbcd_i(
        PROBLEMS, OFFLINE, X0, lambda n: 0.08, [dict.fromkeys(c, 1) for c in devices_that_ran(transcript)],
        devices_that_ran(transcript), counted,
    )  # fmt: skip
    assert off(model(net), path[-1]) < 1e-12


@pytest.mark.parametrize("cloud", ["first-b", "rigorous"])
@pytest.mark.parametrize("seed", range(2))
def test_asynchronous_fedbcd_i(cloud, seed):
    settings = replace(OFFLINE, cloud=cloud, eta_mode="relative", eta_z=0.5, participation=2.0, cloud_steps=1 + seed)
    net, transcript = run(settings, 25, faults=SLOW, seed=seed)
    members, active = parts_of(transcript)
    eta_z = cloud_eta(settings, SIZES, 0)
    assert eta_z == 0.5 / (0.5 * 2)
    play_it = literal.first_b if cloud == "first-b" else literal.rigorous
    shown = play_it(PROBLEMS, settings, X0, eta_z, members, active)
    assert off(model(net), shown[0] if cloud == "first-b" else shown) < 1e-12
    assert off(model(net), X0) > 0.05


def test_a_device_that_is_not_always_able_trains_offline_less_often():
    """|Q~_n| of the paper: 8 of 10 can train in a round, connected or not."""
    settings = replace(OFFLINE, offline_every=5.0, offline_share=0.5, offline_limit=100)
    net, _ = run_until(settings, 3, 400.0, 0, NetworkFaults(away={"d0": [(0, inf)]}))
    assert 20 < state(net, "d0").trainings < 60 and state(net, "d0").ticks == 80
