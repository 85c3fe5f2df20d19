"""A cache of their own for these tests, and the runs that several of them look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import edge_sdk as auscult
from edge_sdk.research.runs import processes
from tests import warm


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Results of before must not be found. Compiled models may: they are what takes time."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edge_sdk.research.fleets.cache.cache_of", lambda kind: folder / kind)
        for module in ("runs.simulate", "fleets.fleet"):
            patch.setattr(f"edge_sdk.research.{module}.cache_of", lambda kind: folder / kind, raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def warm_runs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "begin", warm.begin_warm)
        yield


def person(k: int, windows: int = 18) -> tuple[np.ndarray, np.ndarray]:
    """Windows (N, 3, 64) of four movements of one person, and which each is: the networks are those of the README."""
    random = np.random.default_rng(k)
    y = np.repeat(np.arange(4), windows)
    wave = np.sin(np.arange(64) * (y[:, None] + 1) / 5 + k)
    return random.normal(0, 0.6, (len(y), 3, 64)) + wave[:, None, :], y


@pytest.fixture(scope="session")
def people() -> auscult.Fleet:
    return auscult.Fleet.from_arrays({name: person(k) for k, name in enumerate(("ann", "bob", "eve"))})


@pytest.fixture(scope="session")
def recommended(people: auscult.Fleet) -> auscult.Results:
    """A run of windows that says as little as possible."""
    return auscult.simulate(people, rounds=2, neighbours=0, settle={"label_every": 1})


TABLE = dict(devices=2)
QUICK = dict(rounds=3, hospitals=2, neighbours=0, plain=True)


@pytest.fixture(scope="session")
def patients() -> auscult.Fleet:
    return auscult.Fleet.dataset("breast-cancer", **TABLE)


@pytest.fixture(scope="session")
def ditto(patients: auscult.Fleet) -> auscult.Results:
    return auscult.simulate(patients, "ditto", seeds=2, **QUICK)


@pytest.fixture(scope="session")
def fedavg(patients: auscult.Fleet) -> auscult.Results:
    return auscult.simulate(patients, "fedavg", seeds=2, **QUICK)
