"""A run's description comes from a peer: whatever is in it, it is a run or an error of the peer's, and never more."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import msgpack
import pytest

from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.live.presence.directory import LARGEST_RUN, decode_run, encode_run, is_same_training
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

SOUND: dict[str, Any] = {
    "id": "r",
    "method": "fedslr",
    "settings": {"eta_l": 0.1},
    "rounds": 3,
    "seed": 1,
    "bundle": "0" * 64,
    "classes": ["a", "b"],
    "evaluate_every": 0,
    "deadline": inf,
    "public": "",
}
TEXTS = ["", "x", "a/b", "../up", "x\n", "\0", "x" * 100_000, b"x"]
NUMBERS = [-1, 0, 5, 0.5, nan, inf, -inf, 2**63, 2**64 - 1, True]
TABLES = [
    [],
    ["x"],
    [5],
    [["a"]],
    ["a", "a"],
    [""],
    {},
    {"a": 1},
    {5: 1},
    {"eta_l": "x"},
    {"eta_l": {}},
    {"eta_l": nan},
]


def used(data: bytes) -> Run:
    """All that a node does with a description before it plays."""
    run = decode_run(data)
    method_of(run), settings_of(run)
    assert ", ".join(run.classes) is not None and run.bundle[:12] is not None
    assert 0 < run.rounds < 2**63 and 0 <= run.seed < 2**63
    return run


def test_a_run_comes_back() -> None:
    run = Run(**SOUND | {"classes": ("a", "b")})
    assert decode_run(encode_run(run)) == run
    assert decode_run(msgpack.packb(SOUND | {"a field of a later version": 1})) == run


@pytest.mark.parametrize("value", [*TEXTS, *NUMBERS, *TABLES, None], ids=lambda v: ascii(v)[:20])
@pytest.mark.parametrize("field", SOUND)
def test_every_field_is_checked(field: str, value: Any) -> None:
    try:
        run = used(msgpack.packb(SOUND | {field: value}, strict_types=False))
    except (PeerError, UsageError) as e:
        assert len(str(e)) < 500 or "settings" in str(e)
    else:
        assert run.id == SOUND["id"] or field == "id"


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93", b"\x05", msgpack.packb([1]), msgpack.packb({"id": "r"})])
def test_what_is_no_table_is_refused(data: bytes) -> None:
    with pytest.raises(PeerError):
        decode_run(data)


@pytest.mark.parametrize(
    "claim", [b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff" * 1000, b"\x91" * 5000, b"\xdf\x0f\xff\xff\xff"]
)
def test_promises_that_are_not_kept_cost_no_memory(claim: bytes) -> None:
    data = b"\x81\xa8settings" + claim + bytes(70_000)
    tracemalloc.start()
    try:
        with pytest.raises(PeerError):
            decode_run(data)
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


def test_a_description_has_a_size() -> None:
    big = msgpack.packb(SOUND | {"settings": {"x": "y" * LARGEST_RUN}})
    with pytest.raises(PeerError, match=f"at most {LARGEST_RUN}"):
        decode_run(big)


def test_a_run_that_breaks_what_assembles_it_is_refused(tmp_path: Path, quick: LocalBroker) -> None:
    """Settings that a check had not thought of must not end the device that is offered them."""
    net = Net(tmp_path, quick.url)
    aggregator, device = net.aggregator("a", rounds=3), net.device("a", "agg")

    def assemble(run: Run) -> Assembly:
        raise TypeError("'int' object is not iterable")

    device.membership.assemble = assemble
    with playing(aggregator, device):
        eventually(lambda: aggregator.presence.refusals)
        assert "cannot be assembled here (TypeError" in aggregator.presence.refusals["a"]
        assert device.refusal


def test_a_run_with_lists_among_its_settings_goes_on_after_a_restart():
    """A settings file has lists where the saved description has tuples."""
    asked = Run(id="r", method="fedavg", settle={"steps": [0, 25], "more": {"deep": [[1], [2]]}}, settings={"k": [1.5]})
    saved = decode_run(encode_run(asked))
    assert is_same_training(saved, asked) and is_same_training(asked, saved)
    assert not is_same_training(saved, replace(asked, settle={"steps": [0, 26], "more": {"deep": [[1], [2]]}}))
    assert not is_same_training(saved, replace(asked, settings={"k": 1.5}))


@pytest.mark.parametrize("field", ["settings", "id", "classes", "devices", "deadline", "signed", "later"])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a"], ids=["lists", "tables"])
@pytest.mark.parametrize("depth", [40, 500, 1015])
def test_a_description_is_not_deep(field: str, opening: bytes, depth: int) -> None:
    """Functions that walk through it call themselves: what is deeper than Python goes stopped the node's loop."""
    plain = {name: value for name, value in {"id": "r", "method": "m"}.items() if name != field}
    data = bytes((0x81 + len(plain),)) + b"".join(map(msgpack.packb, (w for pair in plain.items() for w in pair)))
    data += msgpack.packb(field) + opening * depth + b"\xc0"
    with pytest.raises(PeerError, match="more than 32 deep"):
        decode_run(data)


def test_what_is_too_deep_is_not_written_either() -> None:
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"a": deep}
    with pytest.raises(UsageError, match="more than 32 deep"):
        encode_run(Run(id="r", method="m", settings=deep))
