"""Robust sums where an upload is no single vector: AugFL's copies and duals, FedAL's outputs on public inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.method import Method
from edge_sdk.errors import UsageError
from edge_sdk.methods.augfl.messages import Upload
from edge_sdk.methods.augfl.method import AUGFL
from edge_sdk.methods.augfl.settings import Settings as AugflSettings
from edge_sdk.methods.fedal import distillation
from edge_sdk.methods.fedal.settings import Settings as FedalSettings
from edge_sdk.methods.robust.method import robust
from edge_sdk.methods.robust.settings import RULES, Robust
from tests.methods.augfl import augfl_problems as augfl

TREE = {"h0": tuple(f"d{i}" for i in range(7))}
RANDOM = np.random.default_rng(8)
CLIENTS = {d: augfl.Client(augfl.quadratic(RANDOM, 0.5), augfl.quadratic(RANDOM, 0.5)) for d in TREE["h0"]}
UPLOADS = ("theta_y", "u", "y")


def pushed(method: Method, bad: str) -> Method:
    """The method, of which one device pushes all parameters of the model one way, in every round."""
    honest = method.device.receive

    def receive(env: Any, s: Any, sender: str, m: Any) -> Any:
        after, sends = honest(env, s, sender, m)
        if env.me != bad:
            return after, sends
        return after, [replace(x, message=moved(x.message)) if isinstance(x.message, Upload) else x for x in sends]

    return replace(method, device=replace(method.device, receive=receive))


def moved(m: Upload) -> Upload:
    return replace(m, **{n: getattr(m, n) + 5 for n in ("y", "u") if getattr(m, n) is not None})


def last_model(method: Method, upload: str) -> Any:
    settings = AugflSettings(alpha=0.1, weighting="uniform", upload=upload)
    return augfl.play(CLIENTS, settings, 30, tree=TREE, method=method)[2][-1]


@pytest.mark.parametrize("upload", UPLOADS)
def test_a_generous_clip_changes_nothing_in_augfl(upload: str) -> None:
    clipped = robust(AUGFL, Robust(rule="clip", factor=1e9))
    assert last_model(clipped, upload).tobytes() == last_model(AUGFL, upload).tobytes()


@pytest.mark.parametrize("upload", UPLOADS)
@pytest.mark.parametrize("rule", [r for r in RULES if r != "none"])
def test_one_bad_device_of_seven_moves_augfl_less(upload: str, rule: str) -> None:
    wanted, method = last_model(AUGFL, upload), robust(AUGFL, Robust(rule=rule, share=0.2))
    without = np.linalg.norm(last_model(pushed(AUGFL, "d3"), upload) - wanted)
    found = np.linalg.norm(last_model(pushed(method, "d3"), upload) - wanted)
    assert found < 0.5 * without, (found, without)


def test_a_minority_of_outputs_cannot_carry_their_median_away() -> None:
    honest = RANDOM.normal(size=(4, 8, 3)).astype(np.float32)
    bad = np.concatenate([honest, np.full((3, 8, 3), 1e4, np.float32)])
    assert (distillation.median_of(bad) <= honest.max(0)).all() and distillation.mean_of(bad).min() > 1e3
    assert np.array_equal(distillation.median_of(honest[:3]), np.median(honest[:3], axis=0))


def test_a_median_of_outputs_goes_with_the_target_of_all() -> None:
    with pytest.raises(UsageError, match="a device cannot take itself out of a median"):
        FedalSettings(consensus="median")
    assert FedalSettings(consensus="median", target="all").consensus == "median"
