"""Training code of an application, as Flower's clients have it, in place of the bundle's gradients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.contract.method import UP
from edge_sdk.contract.run import Run
from edge_sdk.data.samples import Samples
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedavg import FEDAVG, DeviceState, FedavgModel
from edge_sdk.model.model import Model
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import LocalTraining

WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"
NAMES = ("a", "b", "c")
X = np.random.default_rng(0).normal(size=(12, 3, 64)).astype(np.float32)
Y = np.arange(12) % 3


class Client:
    """One step of plain gradient descent on all samples, by its own code."""

    def __init__(self) -> None:
        self.model, self.asked = Model(WRIST), list[dict[str, Any]]()
        self.gradient, self.judge = self.model.grad_fn(X, Y), self.model.score(X, Y)

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, Mapping[str, Any]]:
        assert [p.shape for p in parameters] == [s.shape for s in self.model.layout.slots]
        self.asked.append(config)
        theta = np.concatenate([p.ravel() for p in parameters])
        loss, slope = self.gradient(theta)
        theta = theta - np.float32(config["eta_l"]) * slope
        return (
            [theta[s.offset : s.offset + s.size].reshape(s.shape) for s in self.model.layout.slots],
            12,
            {"loss": loss},
        )

    def evaluate(self, parameters: list[Any], config: dict[str, Any]) -> tuple[float, int, Mapping[str, Any]]:
        sums = self.judge(np.concatenate([p.ravel() for p in parameters]))
        return sums["loss"] / 12, 12, {"accuracy": sums["correct"] / 12}


def make_device(directory: Path, trainer: Client | None) -> Device:
    training = LocalTraining(trainer=trainer)
    return Device("d1", hospital="h", broker="mqtt://127.0.0.1:1", bundle=WRIST, directory=directory, training=training)


def make_run(**more: Any) -> Run:
    settings = {"batch": 0, "local_epochs": 1, "eta_l": 0.1, "weight_decay": 0.0}
    run = {"method": "fedavg", "settings": settings, "bundle": Model(WRIST).sha256, "classes": NAMES}
    return Run(id="r", **{**run, **more})


def test_code_that_does_the_same_gives_the_same_upload(tmp_path: Path) -> None:
    client, run = Client(), make_run()
    own, plain = make_device(tmp_path / "own", client), make_device(tmp_path / "plain", None)
    plain.train_on(Samples(X, tuple(NAMES[y] for y in Y)), held_out=Samples(X, tuple(NAMES[y] for y in Y)))
    uploads = []
    for device in (own, plain):
        env = device.part.assemble(run).env
        question = FedavgModel(lowrank.dense(env.layout, env.theta0), 4, 1)
        _, (send,) = FEDAVG.device.receive(env, DeviceState(), UP, question)
        uploads.append(send.message)
    one, other = uploads
    np.testing.assert_allclose(one.total, other.total, rtol=1e-5, atol=1e-5)
    assert one.weight == other.weight == 12 and one.scores == pytest.approx(other.scores, rel=1e-5)
    asked = {"round": 4, "local_epochs": 1, "batch": 0, "weight_decay": 0.0}
    assert client.asked == [{**asked, "eta_l": env.settings.eta(4)}]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"method": "fedslr", "settings": {}}, "method fedslr asks for gradients; such code goes with fedavg"),
        ({"method": "ditto", "settings": {}}, "method ditto asks for gradients"),
        ({"settings": {"proximal": 0.1}}, "knows nothing of proximal; leave that at 0"),
        ({"settings": {"fine_tune_epochs": 2}}, "knows nothing of fine_tune_epochs"),
        ({"settings": {"local_penalty": "l1", "lam": 0.1}}, "knows nothing of local_penalty"),
        ({"augment": {"noise": 1.0}}, "augmentation asks for gradients"),
    ],
)
def test_what_needs_gradients_is_refused_with_a_sentence(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        make_device(tmp_path, Client()).part.assemble(make_run(**more))


@pytest.mark.parametrize("wrong", ["shape", "count", "samples", "nan"])
def test_what_comes_back_is_checked(tmp_path: Path, wrong: str) -> None:
    class Wrong(Client):
        def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], Any, Mapping[str, Any]]:
            if wrong == "shape":
                parameters[2] = parameters[2][None]
            if wrong == "nan":
                parameters[0][0] = np.nan
            return parameters[: -1 if wrong == "count" else None], -1 if wrong == "samples" else 12, {}

    env = make_device(tmp_path, Wrong()).part.assemble(make_run()).env
    with pytest.raises(UsageError, match=r"device d1: fit\(\) returned"):
        env.fit(env.theta0, {})
