"""What a node saves can be read back: whatever its writer takes, its reader gives again, or the writer says no."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aggregator.metrics import read_line, write_line
from edge_sdk.contract.run import Run
from edge_sdk.delivery.storage.outbox_table import OutboxRow
from edge_sdk.delivery.storage.store import Job, Store
from edge_sdk.errors import UsageError
from edge_sdk.live.presence.directory import as_decoded, decode_run, encode_run
from edge_sdk.methods import METHODS
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.evaluation.evaluation import Scores, evaluated
from edge_sdk.nodes.configuration.assembly import record_codec
from edge_sdk.wire.fields import LARGEST
from tests.methods.problems import LAYOUT, envs_of, play
from tests.methods.test_contract import settings_of

PROPERTY = settings(max_examples=12, deadline=None, database=None, derandomize=True)
names = st.text("abcXYZ019_-.", min_size=1, max_size=64)
numbers = st.integers(0, LARGEST)
bodies = st.binary(max_size=300)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


def reopened(change: Callable[[Store], None]) -> Store:
    """A store after this change and a restart, whose folder is gone as soon as it is closed."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "run.db")
        with store.transaction():
            change(store)
        store.drop()
        found = Store(Path(folder) / "run.db")
        found.check_pages()
        return found


@PROPERTY
@given(record=bodies, counters=st.dictionaries(names, numbers), told=st.lists(bodies, max_size=4))
def test_record_counters_and_events(record: bytes, counters: dict[str, int], told: list[bytes]) -> None:
    def change(store: Store) -> None:
        store.save_record(record)
        store.save_counters(counters)
        for body in told:
            store.save_told(body)

    store = reopened(change)
    assert store.load_record() == record and store.load_counters() == counters
    assert [body for _, body in store.load_told()] == told
    store.close()


@PROPERTY
@given(st.lists(st.tuples(names, numbers, st.booleans(), bodies), max_size=4))
def test_messages_that_wait_for_the_role(jobs: list[tuple[str, int, bool, bytes]]) -> None:
    store = reopened(lambda store: [store.save_job(Job(*job)) for job in jobs] and None)
    assert [(j.sender, j.number, j.asks, bytes(j.body)) for j in store.load_jobs()] == jobs
    store.close()


@PROPERTY
@given(numbers, numbers, st.booleans(), st.lists(names, min_size=1, max_size=4, unique=True), bodies, st.floats(0))
def test_messages_on_their_way(seq: int, number: int, asks: bool, to: list[str], body: bytes, expires: float) -> None:
    row = OutboxRow(seq, number, asks, tuple(to), frozenset(to), 100, expires=expires, size=len(body))
    store = reopened(lambda store: store.outbox.save_row(row, body))
    assert list(store.outbox.load_rows()) == [row] and bytes(store.outbox.load_body(seq)) == body
    store.close()


@PROPERTY
@given(st.dictionaries(names, st.tuples(numbers, numbers, st.sets(numbers, max_size=5)), max_size=4))
def test_peers_and_what_came_of_them(peers: dict[str, tuple[int, int, set[int]]]) -> None:
    def change(store: Store) -> None:
        for name, (epoch, floor, seen) in peers.items():
            store.save_peer(name, epoch, floor)
            for seq in seen:
                store.save_received(name, seq)

    store = reopened(change)
    assert store.load_peers() == peers
    store.close()


@PROPERTY
@given(st.dictionaries(st.text(max_size=9), values, max_size=3))
def test_a_runs_description(table: dict[str, Any]) -> None:
    """Or it is refused when it is written. A table with numbers for names once ended a root as a damaged store."""
    run = Run(id="r", method="fedavg", settings=table)
    try:
        written = encode_run(run)
    except UsageError as error:
        assert "run 'r' cannot be written down" in str(error)
        return
    assert repr(as_decoded(decode_run(written))) == repr(as_decoded(run))


def test_a_run_that_is_too_large_is_refused_by_the_writer() -> None:
    with pytest.raises(UsageError, match=r"cannot be written down: run: .* bytes, at most"):
        encode_run(Run(id="r", method="fedavg", settings={"text": "x" * 2**20}))


@PROPERTY
@given(st.dictionaries(st.text(max_size=9).filter(lambda name: name not in ("number", "crc")), values, max_size=4))
def test_lines_of_metrics(fields: dict[str, Any]) -> None:
    try:
        line = write_line({"number": 1, **fields})
    except TypeError:
        return  # bytes, say, are nothing that JSON can write
    found = read_line(line)
    assert found is not None and write_line(found) == line


SHORT = ("fedavg", "fedslr", "augfl", "fedbcd")


@pytest.mark.parametrize("name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.long) for n in METHODS])
def test_a_record_of_a_run_that_has_diverged(name: str) -> None:
    """Its numbers may be anything: no check of a message may stand between a node and its own state."""
    method = evaluated(METHODS[name])
    net, _ = play(method, settings_of(method), 2, envs=envs_of(method, settings_of(method), 2, np.float32))
    for node in net.nodes.values():
        codec = record_codec(node.role, method.messages, LAYOUT)
        record = diverged(node.record)
        assert codec.encode(codec.decode(codec.encode(record))) == codec.encode(record)


def diverged(value: Any) -> Any:
    """The same with numbers that are none in all its arrays and floats."""
    if isinstance(value, np.ndarray):
        return np.full_like(value, math.inf) if value.dtype.kind == "f" else value
    if isinstance(value, tuple):
        return tuple(map(diverged, value))
    if isinstance(value, dict):
        return {key: diverged(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: diverged(getattr(value, name)) for name in [f.name for f in fields(value)]})
    return value


def test_scores_that_are_no_numbers_are_told_after_a_restart() -> None:
    codec = record_codec(METHODS["fedavg"].device, (Scores, Sum), LAYOUT)
    for value in (math.nan, math.inf, -1.0, 1e300):
        told = Scores(1, {"loss": value, "devices": 1.0, "samples": -3.0})
        assert repr(codec.decode(codec.encode(told))) == repr(told)
