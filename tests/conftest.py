"""Real brokers, and how the collector works beside thousands of tests.

A test that takes `broker` runs on each that there is; `quick` is the fastest one.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as properties

from edge_sdk.live.loop.log_guard import LogGuard
from edge_sdk.replay.nodes.broker import EmbeddedBroker, LocalBroker, Mosquitto, find_mosquitto
from edge_sdk.replay.planning import bundles
from edge_sdk.tools.credentials import authority
from tests import warm
from tests.exports import quicken_exports

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes start, and need not compile all modules anew
sys.dont_write_bytecode = False  # nor this one: to rewrite the assertions of all tests takes half of its start
os.environ.setdefault("OMP_NUM_THREADS", "1")  # networks of tests are small, and other tests run beside them
os.environ.setdefault("AUSCULT_NATIVE", "0")  # portable products are the truth; tests of native ones turn these on

pytest_plugins = ("tests.costs", "tests.order", "tests.unchanged")

gc.disable()  # until all tests are collected: it finds next to nothing in what is imported, in a quarter of the time

# A machine that stalls for a fifth of a second breaks no property, and a test that fails does so again.
properties.register_profile("seeded", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
properties.load_profile("seeded")

COMPILE_APART = bundles.compile_apart
KINDS = {"mosquitto": Mosquitto, "amqtt": EmbeddedBroker}


def missing(kind: str) -> str:
    if kind == "mosquitto" and find_mosquitto() is None:
        return "mosquitto is not installed"
    if kind == "amqtt" and importlib.util.find_spec("amqtt") is None:
        return "amqtt is not installed"
    return ""


def pytest_collection_finish() -> None:
    """Keep the collector from looking at thousands of tests and all of torch again and again: a sixth of the run."""
    quicken_exports()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    gc.enable()


def pytest_sessionfinish() -> None:
    warm.close_all()


@pytest.fixture
def warm_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of replays in this process need not load torch each; tests/warm.py."""
    warm.use_warm_nodes(monkeypatch)


@pytest.fixture
def warm_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for runs that are simulated from Python."""
    monkeypatch.setattr("edge_sdk.research.runs.processes.begin", warm.begin_warm)


@pytest.fixture
def warm_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the trials of a search."""
    popen = SimpleNamespace(Popen=warm.WarmTrials, PIPE=subprocess.PIPE)
    monkeypatch.setattr("edge_sdk.replay.tuning.process.subprocess", popen)


@pytest.fixture
def compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands compile in this process, and no other loads torch for that."""
    monkeypatch.setattr(bundles, "compile_apart", bundles.compile_here)


@pytest.fixture
def compiled_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own compiles, as it does where there are no tests."""
    monkeypatch.setattr(bundles, "compile_apart", COMPILE_APART)


@pytest.fixture(scope="session", autouse=True)
def compiled_where_torch_is() -> Iterator[None]:
    """Networks that nobody has compiled yet are compiled in this process, if it has loaded torch anyway."""

    def compile_quickly(words: Sequence[str]) -> tuple[int, str]:
        alone = threading.current_thread() is threading.main_thread()  # two at once get into each other's way
        return (bundles.compile_here if "torch" in sys.modules and alone else COMPILE_APART)(words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "compile_apart", compile_quickly)
        yield


@pytest.fixture(autouse=True)
def fresh_logs() -> None:
    """What tests before have had logged does not count as said too often."""
    for log in list(logging.Logger.manager.loggerDict.values()):
        for found in getattr(log, "filters", ()):
            if isinstance(found, LogGuard):
                found.forget()


@pytest.fixture(scope="session", autouse=True)
def quick_passphrases() -> Iterator[None]:
    """Keys of authorities whose passphrases are worth little, and are guessed as quickly; in this process only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authority, "SLOW", ("-scrypt", "-scrypt_N", "2", "-scrypt_r", "1", "-scrypt_p", "1"))
        yield


@pytest.fixture
def closed_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Databases that a test has opened and left, as the end of a process leaves them, are closed after it. Python tells
    of others from 3.13 on."""
    opened, connect = list[sqlite3.Connection](), sqlite3.connect

    def noted(*given: Any, **more: Any) -> sqlite3.Connection:
        opened.append(found := connect(*given, **more))
        return found

    monkeypatch.setattr(sqlite3, "connect", noted)
    yield
    for database in opened:
        database.close()


@pytest.fixture(scope="session", params=sorted(KINDS))
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    if why := missing(request.param):
        pytest.skip(why)
    with KINDS[request.param]() as running:
        yield running


@pytest.fixture(scope="session")
def quick() -> Iterator[LocalBroker]:
    with Mosquitto() if not missing("mosquitto") else EmbeddedBroker() as running:
        yield running


@pytest.fixture(params=sorted(KINDS))
def mortal(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A broker for one test, which may kill and start it; it keeps its port."""
    if why := missing(request.param):
        pytest.skip(why)
    broker = KINDS[request.param]()
    broker.start()
    broker.wanted = broker.port
    try:
        yield broker
    finally:
        broker.__exit__(None, None, None)
