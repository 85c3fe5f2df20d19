"""What FedBCD's nodes keep and what they send: running sums, vectors on links, scores, refusals."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.errors import PeerError
from edge_sdk.methods.fedbcd import aggregator as fedbcd_aggregator
from edge_sdk.methods.fedbcd import hospital as fedbcd_hospital
from edge_sdk.methods.fedbcd import messages as fedbcd_messages
from edge_sdk.methods.fedbcd import sums as fedbcd_sums
from edge_sdk.methods.fedbcd.method import FEDBCD
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.consensus import consensus
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from tests.methods.fedbcd.fedbcd_runs import DRAWN, GAMMAS, SLOW, SYNC, X0, off, run
from tests.methods.problems import DEVICES, LOSSY, SIZES, THETA0, TREE, envs_of, told


def test_running_sums_equal_direct_sums_bit_for_bit():
    settings = replace(DRAWN, participation=2.0)
    net, transcript = run(settings, 25, faults=LOSSY, deadline=9.0, hospital_deadline=4.0)
    for h, devices in TREE.items():
        env = net.nodes[h].env
        for s in (c.state.inner for c in transcript.closed[h]):
            direct = gather.total(fedbcd_sums.add_all(None, s.latest), THETA0) if s.latest else None
            assert s.sums is None or (gather.total(s.sums, THETA0).total == direct.total).all()
            total = fedbcd_hospital.add_up_devices(env, s)
            x = {d: s.latest[d].total if d in s.latest else GAMMAS[d] * X0 for d in devices}
            assert off(total.total, sum(x.values())) < 1e-14
            assert np.isclose(total.weight, sum(GAMMAS[d] for d in devices), rtol=1e-15)


def test_who_does_not_take_part_does_not_move():
    settings = replace(DRAWN, participation=1.0, selection="drawn", cloud="first-b")
    settings = replace(settings, participation=0.3)
    _net, transcript = run(settings, 20, faults=SLOW)
    for d in DEVICES:
        assert len(transcript.states.get(d, [])) == len(transcript.ran.get(d, []))
    for h in TREE:  # between two questions of the aggregator z_n is one object
        for before, after in zip(transcript.states[h], transcript.states[h][1:], strict=False):
            assert before.round != after.round or before.inner.model is after.inner.model


@pytest.mark.parametrize("settings, up, down", [
    (replace(DRAWN, participation=0.4), 3 * 10, 3 * 10),
    (replace(DRAWN, cloud="first-b"), None, 3 + 2 * 9),
], ids=["sync", "first-b"])  # fmt: skip
def test_vectors_on_the_clouds_links(settings, up, down):
    """Section 2.4: sync 2 N per round, first-B 2 B; devices 2 |Q|."""
    _, transcript = run(settings, 10, faults=NetworkFaults(repeat=0))
    count = lambda kind: sum(isinstance(m, kind) for _, _, m in transcript.crossed)  # noqa: E731
    assert count(consensus.Mixed) == down and (up is None or count(consensus.Ready) == up)
    assert count(consensus.Isolated) == 0
    if up:
        assert (
            count(fedbcd_messages.FedbcdModel)
            == count(Sum)
            == 10 * sum(settings.taking_part(n) for n in SIZES.values())
        )
        assert all(
            m.model is None and m.sums is not None for _, _, m in transcript.crossed if type(m) is consensus.Ready
        )
    else:
        assert all(m.sums is None for _, _, m in transcript.crossed if type(m) is consensus.Ready)


def test_the_fastest_count():
    settings = replace(SYNC, selection="fastest", participation=1.0 / 3)
    _, transcript = run(settings, 10, faults=NetworkFaults(work={"d0": 5.0, "d1": 5.0}, repeat=0))
    assert all(len(c.children) == 1 for h in TREE for c in transcript.closed[h])
    assert any(c.children == ["d2"] for c in transcript.closed["h0"])


def test_scores_ride():
    _, transcript = run(replace(DRAWN, cloud="first-b"), 8)
    for m in told(transcript, Progress):
        assert m.devices == m.sums["devices"] > 0
        assert {"loss", "global_accuracy", "personal_accuracy", "disagreement", "hospitals"} <= set(m.sums)
    assert m.sums["hospitals"] == 2 and m.sums["disagreement"] > 0


def test_a_device_with_another_weight_is_refused():
    env = envs_of(FEDBCD, SYNC, 1)["h0"]
    s, _ = fedbcd_hospital.hospital_start(env)
    fedbcd_hospital.hospital_receive(env, s, "d0", Sum(X0, 1.0))
    with pytest.raises(PeerError, match=r"weight 1\.5, expected 1 with 1\.0"):
        fedbcd_hospital.hospital_receive(env, s, "d0", Sum(X0, 1.5))
    aggregator = envs_of(FEDBCD, replace(SYNC, cloud="rigorous"), 1)["aggregator"]
    c, _ = fedbcd_aggregator.aggregator_start(aggregator)
    with pytest.raises(PeerError, match="no model"):
        fedbcd_aggregator.aggregator_receive(aggregator, c, "h0", consensus.Ready(None, Sum(X0, 1.0), 1))
    with pytest.raises(PeerError, match="more devices"):
        fedbcd_aggregator.aggregator_receive(aggregator, c, "h2", consensus.Ready(X0, None, 2))
