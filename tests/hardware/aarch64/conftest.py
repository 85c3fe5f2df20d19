"""The emulated machine, installed once for all tests here."""

from __future__ import annotations

import pytest

from tests.hardware.aarch64.machine import Aarch64, find_directory, find_obstacle, install


@pytest.fixture(scope="package")
def aarch64(tmp_path_factory: pytest.TempPathFactory) -> Aarch64:
    if obstacle := find_obstacle():
        pytest.skip(obstacle)
    return install(find_directory(), tmp_path_factory.mktemp("aarch64"))
