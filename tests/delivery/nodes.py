"""Nodes of tests: a runtime by the names of its settings, wherever among its objects they belong."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from edge_sdk.live.loop.runtime import LaneSettings, LaneWork, Reporting, Runtime, Transport, TreePlace
from edge_sdk.wire.link import Backoff
from edge_sdk.wire.options import Wire

T = TypeVar("T")
QUICK = {"backoff": Backoff(0.02, 0.2), "rto": 0.3, "wait_seconds": 1.0}


def make_runtime(name: str, **settings: Any) -> Runtime:
    """A runtime. What is no setting of one of its objects, such as `worker`, is its own."""

    def take(kind: type[T], **more: Any) -> T:
        names = {field.name for field in fields(kind)} & {*settings}  # type: ignore[arg-type]
        return kind(**{key: settings.pop(key) for key in names}, **more)

    transport = take(Transport, wire=take(Wire))
    work, place, lanes, reporting = take(LaneWork), take(TreePlace), take(LaneSettings), take(Reporting)
    return Runtime(name, work, place=place, transport=transport, lanes=lanes, reporting=reporting, **settings)
