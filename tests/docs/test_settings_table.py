"""The generated page of settings has every key with what it is, each value of a paper, and each recommended one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from docs.site.settings import method_table, settings_page
from edge_sdk.contract.search import flattened
from edge_sdk.methods import METHODS
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.daemon.settings_files import AggregatorFile, HospitalFile, RunTable
from edge_sdk.wire.options import Wire


def default_of(method: str, key: str) -> Any:
    at: Any = METHODS[method].settings()
    for part in key.split("."):
        at = getattr(at, part)
    return at


@pytest.mark.parametrize("name", METHODS)
def test_values_other_than_the_default_are_in_the_table(name: str) -> None:
    method = METHODS[name]
    paper, recommended = flattened(method.paper), flattened(method.recommended)
    lines = "\n".join(method_table(method)).splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split(" | ")][:4] for line in lines if line.startswith("| `")]
    shown = {key: tuple(values) for key, *values in rows if any(values[1:])}
    expected = {
        key: (str(default_of(name, key)), str(paper.get(key, "")), str(recommended.get(key, "")))
        for key in {**paper, **recommended}
    }
    assert shown == expected


@pytest.mark.parametrize("kind", [DeviceFile, HospitalFile, AggregatorFile, RunTable, Wire])
def test_every_setting_of_a_node_says_what_it_is(kind: Any) -> None:
    rows = [line.strip("| ").split(" | ") for line in settings_page().splitlines() if line.startswith("| ")]
    said = {row[0].strip(" *`") for row in rows if len(row) == 4 and row[3].strip()}
    assert {field.name for field in fields(kind)} <= said
