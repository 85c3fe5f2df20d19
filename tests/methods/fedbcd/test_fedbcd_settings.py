"""Where the paper's eta_z diverges, the warnings that say so, and settings that are refused."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedbcd import equations as fedbcd_equations
from edge_sdk.methods.fedbcd.equations import cloud_eta
from edge_sdk.methods.fedbcd.method import FEDBCD, policies
from edge_sdk.methods.fedbcd.settings import OfflineSettings, Settings
from edge_sdk.methods.fedbcd.theory import warnings
from tests.methods.fedbcd.fedbcd_runs import OFFLINE
from tests.methods.problems import SIZES, play

NAMES = ["a", "b", "c", "d", "e"]


def off(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


SIZES_10 = {f"h{n}": 10 for n in range(10)}
PAPER = dict(eta_x=0.005, zeta=0.9, unit="step", batch=0)


def toy(settings, rounds=60, seed=0):
    """10 hospitals with 10 devices, g_i = (x - b_i)^2 / 2 in the box; |z| at the end. First-B with B = all."""
    rng, offline = np.random.default_rng(seed), isinstance(settings, OfflineSettings)
    b = rng.uniform(-3, 3, (10, 10))
    x, z = np.zeros((2, 10, 10)), np.zeros(10)
    for _ in range(rounds):
        active = np.argsort(rng.random((10, 10)), 1)[:, : settings.taking_part(10)]
        mask = np.zeros((10, 10), bool)
        np.put_along_axis(mask, active, True, 1)
        K, before = int(rng.integers(1, 6)), x.copy()
        ours = fedbcd_equations.edge_update(
            lambda v, _: (0.0, v - b), settings, *x, [None] * K, None if offline else z[:, None], settings.gamma
        )
        now = fedbcd_equations.pull(settings, *ours[:2], z[:, None], settings.gamma, K) if offline else ours[:2]
        x = np.where(mask, np.stack(now), before)
        counted = mask if offline else np.ones_like(mask)
        G, S = settings.gamma * counted.sum(1), settings.gamma * (x[0] * counted).sum(1)
        eta = cloud_eta(settings, SIZES_10, int(counted.sum()))
        if settings.cloud == "sync":
            z = np.full(10, (1 - eta * G.sum()) * z[0] + eta * S.sum())
        else:
            w = z.mean()
            z = (1 - eta * G) * w + eta * S
        if np.abs(z).max() > 1e6:
            return float(np.abs(z).max())
    return float(np.abs(z).max())


@pytest.mark.parametrize("kind, cloud, taking_part, diverges", [
    (Settings, "sync", 3, True), (Settings, "first-b", 3, True),
    (OfflineSettings, "sync", 5, True), (OfflineSettings, "sync", 6, True),
    (OfflineSettings, "first-b", 3, False),
])  # fmt: skip
def test_the_papers_step_taken_as_it_is(kind, cloud, taking_part, diverges):
    raw = kind(
        **PAPER, cloud=cloud, ready=10 if cloud != "sync" else 2, participation=float(taking_part), eta_mode="raw"
    )
    found = [line for line in warnings(raw, SIZES_10) if line.startswith("eta_z")]
    assert any("diverges" in line for line in found) == diverges
    assert all(toy(raw, seed=seed) > 1e5 if diverges else toy(raw, seed=seed) <= 2 for seed in range(3))
    relative = replace(raw, eta_mode="relative")
    assert not [line for line in warnings(relative, SIZES_10) if line.startswith("eta_z")]
    assert all(toy(relative, seed=seed) <= 2 for seed in range(3))


def test_the_over_relaxed_case_is_named_but_not_called_divergent():
    raw = OfflineSettings(**PAPER, participation=3.0, eta_mode="raw")
    (line,) = warnings(raw, SIZES_10)
    assert "may leave X" in line and "is 3, the theorem asks for 1" in line and "1.61 acts" in line


@pytest.mark.parametrize("mode, kind, cloud, expected", [
    ("relative", Settings, "sync", 0.5 / 100), ("relative", Settings, "first-b", 0.5 / 10),
    ("relative", OfflineSettings, "sync", 0.5 / (0.2 * 30)), ("relative", OfflineSettings, "rigorous", 0.5 / (0.2 * 3)),
    ("mean", OfflineSettings, "rigorous", 0.5 / 3), ("mean", Settings, "sync", 0.5 / 100),
    ("raw", Settings, "sync", 0.5),
])  # fmt: skip
def test_modes_of_the_step(mode, kind, cloud, expected):
    settings = kind(participation=3.0, cloud=cloud, eta_mode=mode)
    assert np.isclose(cloud_eta(settings, SIZES_10, 30), expected, rtol=1e-14)


@pytest.mark.parametrize("changes, word", [
    (dict(cloud="first-b", ready=1), "ready = 1"), (dict(cloud="first-b", graph="identity"), "identity"),
    (dict(cloud="first-b"), "skips a round"), (dict(lipschitz=1000.0), "eta_x"),
    (dict(lipschitz=100.0, zeta=1.0), "zeta"),
])  # fmt: skip
def test_warnings(changes, word):
    assert any(word in line for line in warnings(Settings(**changes), SIZES_10))


def test_no_warnings_within_the_theorem():
    assert warnings(Settings(lipschitz=20.0), SIZES_10) == []
    assert warnings(Settings(cloud="rigorous", ready=3), SIZES_10) == []
    assert warnings(OfflineSettings(), SIZES_10) == []
    assert "never move" in warnings(OfflineSettings(gamma=1.0), SIZES_10)[0]


@pytest.mark.parametrize("changes, word", [
    (dict(gamma=0.0), "gamma = 0.0"), (dict(gammas={"d0": -1.0}), "gammas.d0"), (dict(eta_x=0.0), "eta_x"),
    (dict(zeta=1.5), "zeta"),
    (dict(cloud="async"), "cloud"), (dict(ready=0), "ready"), (dict(graph="a-b"), "'a-b' is no edge"),
    (dict(participation=2.5), "participation"), (dict(eta_mode="absolute"), "eta_mode"),
    (dict(local_steps=0), "local_steps"),
    (dict(server_penalty="l1", cloud="first-b"), "server_penalty"), (dict(cloud_steps=0), "cloud_steps"),
])  # fmt: skip
def test_settings_are_checked(changes, word):
    with pytest.raises(UsageError, match=word):
        Settings(**changes)


def test_settings_of_fedbcd_i_are_checked():
    for changes, word in ((dict(gamma=1.1), "step of the pull"), (dict(after_pull="drop"), "after_pull")):
        with pytest.raises(UsageError, match=word):
            OfflineSettings(**changes)
    with pytest.raises(UsageError, match="offline_share"):
        OfflineSettings(offline_share=1.5)
    with pytest.raises(UsageError, match="offline_every"):
        OfflineSettings(offline_every=0.0)


def test_policies():
    sync = policies(Settings(), SIZES, 9.0, 4.0)
    assert (sync["aggregator"].need, sync["aggregator"].keep_late, sync["hospital"].deadline) == (None, False, 4.0)
    first = policies(Settings(cloud="first-b", ready=3, selection="fastest", participation=0.3), SIZES_10, 9.0, 4.0)
    assert (first["aggregator"].need, first["aggregator"].keep_late, first["hospital"].need) == (3, True, 3)
    assert policies(Settings(cloud="rigorous", ready=3), SIZES, 9.0, 4.0)["aggregator"].keep_late is False
    assert policies(replace(OFFLINE, offline_every=7.0), SIZES, 9.0, 4.0)["device"].idle == 7.0


def test_evaluations_that_would_interrupt_hospitals_are_refused():
    assert policies(Settings(), SIZES, 9.0, 4.0, evaluate_every=5)
    with pytest.raises(UsageError, match="evaluate_every = 5"):
        policies(Settings(cloud="first-b"), SIZES, 9.0, 4.0, evaluate_every=5)


@pytest.mark.parametrize("changes, word", [
    (dict(ready=4), "ready = 4: there are 3 hospitals"), (dict(graph="h0~h1, h1~h3"), "graph names 'h3'"),
])  # fmt: skip
def test_settings_that_do_not_fit_the_hospitals_are_refused(changes, word):
    with pytest.raises(UsageError, match=word):
        play(FEDBCD, Settings(cloud="first-b", **changes), 1, faults=NetworkFaults())
