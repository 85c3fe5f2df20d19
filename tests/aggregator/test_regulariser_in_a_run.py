"""AugFL with a regulariser: any restart gives the same model, and nothing of it is in any message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aggregator.private_model import table as private
from edge_sdk.contract.loopback import Loopback
from edge_sdk.contract.round import Policy
from edge_sdk.methods.augfl.method import AUGFL
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.model.model import Model
from edge_sdk.wire.codec.codec import Codec
from tests.aggregator.private_models import (
    CLASSES,
    INPUTS,
    X,
    write_files,
)


@pytest.mark.parametrize("name", ["crd, bank, trained", "kd"])
def test_a_run_with_it_survives_any_restart(bundle, teacher, tmp_path, name):
    """What it has learnt is in the aggregator's state: every state through bytes, and a new regulariser at each call,
    as after a restart, give the same model bit for bit. And it is in no message."""
    options = {"heads": "trained", "dim": 3, "tau": 0.5, "negatives": "bank", "count": 15} if "crd" in name else {}
    settings = write_files(tmp_path, teacher, regulariser=name.partition(",")[0], options=options, every="batch")
    once = private.regulariser_of(settings, bundle, 3, "cpu")
    plain, trace = played(bundle, lambda: once)
    again, _ = played(bundle, lambda: private.regulariser_of(settings, bundle, 3, "cpu"), restarts=True)
    assert np.array_equal(plain.model.values, again.model.values) and np.array_equal(plain.memory, again.memory)
    assert (len(plain.memory) > 0) == ("crd" in name)
    codec = Codec(evaluated(AUGFL).messages, layout=bundle.layout)
    sent = b"".join(codec.encode(m) for _, _, m in trace.crossed)
    with torch.no_grad():
        said = [p.numpy() for p in private.load_module(settings, "cpu").parameters()]
    secrets = [plain.memory, X, *said]
    assert bundle.theta0[:16].tobytes() in sent
    assert not any(s.ravel()[i : i + 4].tobytes() in sent for s in secrets for i in range(0, s.size - 3, 4))


def played(bundle, regulariser, restarts=False):
    """The aggregator's last state, and what happened: three devices, evaluations between."""
    model, tree, rng = Model(bundle, check=False), {"h": ("a", "b", "c")}, np.random.default_rng(1)
    common = dict(rounds=5, layout=bundle.layout, theta0=bundle.theta0, settings=AUGFL.settings(alpha=0.1))
    first = regulariser()
    top = {"regulariser": lambda *at: regulariser()(*at), "memory": first.first()}
    envs = {"aggregator": AUGFL.env(**common, sizes={"h": 3}, **top)}
    envs["h"] = AUGFL.env(**common, sizes=dict.fromkeys("abc", 1))
    for d in "abc":
        x, y = rng.normal(size=(6, INPUTS)).astype(np.float32), rng.integers(0, CLASSES, 6)
        envs[d] = AUGFL.env(**common, grad_fn=model.grad_fn(x, y), samples=6, score=model.score(x, y))
    method = evaluated(AUGFL, every=2)
    if restarts:
        codec = Codec([method.aggregator.state, *method.messages], layout=bundle.layout, finite=False)
        method = replace(method, aggregator=restarted(method.aggregator, codec))
    net = Loopback(method, tree, envs, {"aggregator": Policy(quorum=1)})
    trace = net.run()
    return net.nodes["aggregator"].record.state.inner, trace


def restarted(role, codec):
    def through(f):
        def call(*args):
            state, sends = f(*args)
            return codec.decode(codec.encode(state), role.state), sends

        return call

    return replace(role, start=through(role.start), receive=through(role.receive), close=through(role.close))
