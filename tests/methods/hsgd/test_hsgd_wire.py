"""What crosses a wire in HSGD: what the paper names and counts; what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import costs
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.errors import PeerError
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd import messages as hsgd_messages
from edge_sdk.methods.hsgd import method as hsgd
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.settings import Settings
from tests.methods.hsgd.hsgd_runs import BASIC, NET
from tests.methods.hsgd.split_problems import BIG, SEVERAL, THETA0, Net, envs_of, play


def test_only_what_the_paper_names_leaves_a_node():
    _, transcript = play(BIG, BASIC, 2)
    crossed = {(a[0], b[0], type(m).__name__) for a, b, m in transcript.crossed}
    assert crossed == {
        ("a", "h", "HsgdModel"), ("h", "d", "Embed"), ("d", "h", "Embedding"), ("h", "d", "Train"),
        ("d", "h", "Trained"), ("h", "a", "Sum"),
    }  # fmt: skip
    private = {v.tobytes() for ds in BIG.values() for s in ds.values() for v in (s.x1, s.x2, s.x1[0], s.x2[0])}
    for _, _, m in transcript.crossed:
        for value in vars(m).values():
            value = compression.unpack(value) if isinstance(value, compression.PackedMatrix) else value
            assert not (isinstance(value, np.ndarray) and value.tobytes() in private)


def test_each_device_is_sent_its_own_rows_only():
    _, transcript = play(SEVERAL, BASIC, 1)
    for _, b, m in transcript.crossed:
        if isinstance(m, hsgd_messages.Train):
            own = next(devices[b] for devices in SEVERAL.values() if b in devices)
            assert m.zeta_1.values.shape == (len(own), 3)


@pytest.mark.parametrize(
    "message",
    [
        hsgd_messages.Embedding(compression.Dense(np.zeros((2, 3)))),
        hsgd_messages.Embedding(compression.Dense(np.zeros((1, 4)))),
        hsgd_messages.Trained(np.zeros(10)),
        hsgd_messages.OwnSteps(),
    ],
    ids=["rows", "columns", "too early", "of another"],
)
def test_a_device_that_answers_something_else_is_refused(message):
    env = replace(envs_of(BIG, NET, THETA0, BASIC, 1)["h0"], me="h0", here=tuple(BIG["h0"]))
    state, _ = HSGD.hospital.receive(
        env, HSGD.hospital.start(env)[0], UP, hsgd_messages.HsgdModel(THETA0, 0, 0, BASIC.plan)
    )
    with pytest.raises(PeerError):
        HSGD.hospital.receive(env, state, "d0", message)


def test_steps_without_their_exchange_are_refused():
    env = replace(envs_of(BIG, NET, THETA0, BASIC, 1)["d0"], me="d0")
    dense = compression.Dense(np.zeros((1, 24)))
    train = hsgd_messages.Train(dense, compression.Dense(np.zeros((1, 3))), 0, 0, 0, BASIC.plan)
    with pytest.raises(PeerError, match="interval 0; the model is of -1"):
        HSGD.device.receive(env, HSGD.device.start(env)[0], UP, train)
    with pytest.raises(PeerError, match="theta_2 of 9 numbers, expected 10"):
        HSGD.device.receive(env, HSGD.device.start(env)[0], UP, hsgd_messages.Embed(np.zeros(9), 0, 0))


@pytest.mark.parametrize("pairs", [False, True], ids=["HSGD", "JFL"])
def test_the_ledger_is_what_crosses(pairs):
    """Against the messages of a run over three tiers, hop by hop. Edge and hospital are one node there."""
    settings = Settings(P=4, Q=2, alpha=0.5, copies="pair" if pairs else "group")
    _, transcript = play(BIG, settings, 3, faults=NetworkFaults(repeat=0))
    traffic = costs.Traffic(Net.split, [(6, 3), (4, 2), (3, 2)], pairs=pairs)
    listed = list(costs.list_messages(traffic, [(4, 2)] * 3))

    def total(*rows):
        return sum(m.floats for m in listed if (m.sender, m.to, m.what) in rows)

    def crossed(kind):
        return sum(size(v) for _, _, m in transcript.crossed if isinstance(m, kind) for v in vars(m).values())

    assert crossed(hsgd_messages.Embed) == total(("edge", "device", "theta_2"))
    assert crossed(hsgd_messages.Embedding) == total(("device", "edge", "zeta_2"))
    assert crossed(hsgd_messages.Train) == total(("edge", "device", "theta_0, zeta_1"))
    assert crossed(hsgd_messages.Trained) == total(("device", "edge", "theta_2"))
    down = total(("cloud", "hospital", "theta_0, theta_1"), ("cloud", "edge", "theta_2"))
    assert crossed(hsgd_messages.HsgdModel) == down
    if not pairs:
        up = total(*((a, "cloud", f"theta_{i}") for i, a in enumerate(("hospital", "hospital", "edge"))))
        assert crossed(hsgd.Sum) == up


def size(value):
    if isinstance(value, compression.Dense):
        return value.values.size
    return value.size if isinstance(value, np.ndarray) else 0
