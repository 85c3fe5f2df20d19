"""Settings files and the objects that nodes are made with: one key, one attribute, one default."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

import pytest

from edge_sdk.nodes.configuration.settings import part_of
from edge_sdk.nodes.daemon.device_file import DeviceFile
from edge_sdk.nodes.daemon.settings_files import AggregatorFile, HospitalFile
from edge_sdk.nodes.device.options import DevicePolicy, LocalTraining
from edge_sdk.nodes.hospital.options import DeviceList, HospitalPolicy

WITHOUT_THE_SAME = {"recording", "trainer", "ranks", "devices"}
"""Attributes without the same key: a service neither records nor has code of its own, ranks are found,
and only a file may leave devices out, if they are enrolled."""


def default_of(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


@pytest.mark.parametrize(
    ("file", "part"),
    [
        (DeviceFile, DevicePolicy),
        (DeviceFile, LocalTraining),
        (HospitalFile, DeviceList),
        (HospitalFile, HospitalPolicy),
    ],
)
def test_each_attribute_is_a_key_with_the_same_default(file: type, part: type) -> None:
    keys = {field.name: default_of(field) for field in fields(file)}
    own = {field.name: default_of(field) for field in fields(part) if field.name not in WITHOUT_THE_SAME}
    assert own == {name: keys[name] for name in own}


def test_an_aggregators_attributes_are_keys_with_the_same_defaults() -> None:
    pytest.importorskip("torch")
    import aggregator

    for part in (aggregator.HospitalList, aggregator.PreparedRun, aggregator.Process):
        test_each_attribute_is_a_key_with_the_same_default(AggregatorFile, part)


def test_a_part_has_what_the_file_says() -> None:
    file = object.__new__(DeviceFile)  # what a file is checked for is no matter here
    for field in fields(DeviceFile):
        object.__setattr__(file, field.name, default_of(field))
    object.__setattr__(file, "threads", 3)
    assert part_of(file, LocalTraining) == LocalTraining(threads=3)
