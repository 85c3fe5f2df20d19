"""A service that has keys for secret sums gives them to the runs that it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from aggregator.service.runs import Wanted, add_run, find_run
from aggregator.service.supervisor import write_settings
from edge_sdk.nodes.masks import AggregatorKeys
from edge_sdk.nodes.service_files import AggregatorFile
from edge_sdk.nodes.settings import read_toml
from tests.aggregator.service.conftest import CLASSES


def test_a_run_of_the_service_has_its_keys(service: Any, tmp_path: Path) -> None:
    keys = AggregatorKeys(key=tmp_path / "cloud.key", devices=tmp_path / "devices.pub")
    for path in (keys.key, keys.devices):
        path.write_text("")
    wanted = Wanted(method="fedavg", uploads={"bits": 8, "secret": True})
    row = find_run(service.database, add_run(service.database, wanted, CLASSES, "test"))
    row["hospitals"] = {"north": 3}
    bundle = service.registry.path_of(str(service.registry.find()["sha256"]))
    file = read_toml(write_settings(replace(service.file, masks=keys), row, bundle), AggregatorFile)
    assert file.masks == keys and file.run.uploads["secret"] is True
