"""Here native products are on, where they are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.algebra import optim
from edge_sdk.model.sessions import kernels, native
from edge_sdk.model.sessions.native_optimiser import open_steps
from tests.native.libraries import SETS, installed, of_set


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUSCULT_NATIVE", "1")
    for name in ("MEASURED", "FAST_PRODUCTS"):
        monkeypatch.setattr(native, name, frozenset(SETS))  # tests run on any processor
    monkeypatch.setattr(kernels, "ENOUGH", 0)  # and with small models


@pytest.fixture(
    scope="session", params=[pytest.param(name, marks=[pytest.mark.long] if name == "sse2" else []) for name in SETS]
)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library with each instruction set of this machine."""
    return of_set(request.param, tmp_path_factory.mktemp("sets"))


@pytest.fixture
def best() -> str:
    """The library as it is installed."""
    path: Path = installed()
    return str(path)


@pytest.fixture(autouse=True)
def numpy_afterwards() -> Iterator[None]:
    """Optimisers of other tests step by numpy, not by a library of these."""
    open_steps.cache_clear()
    yield
    optim.use_steps(None)
    open_steps.cache_clear()
