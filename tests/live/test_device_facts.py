"""What a device tells of its machine: only what its owner lets it, bounded, and passed on to the console by name."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from edge_sdk.contract.children.device_facts import (
    BATTERY,
    BOARD,
    LONGEST,
    VERSION,
    DeviceFacts,
    check_told,
    clean,
    in_tenths,
)
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.live.loop.fleet_report import describe_child
from edge_sdk.live.membership.permission import Willingness
from edge_sdk.live.presence.presence import Presence
from edge_sdk.nodes.device import machine_facts
from edge_sdk.wire.frames import Birth, pack_frame, unpack_frame
from tests.live.test_willing import header_of

BIRTH = Birth("a", 9, 10, "run", True, count=1)
FACTS = DeviceFacts("0.1.0", "Raspberry Pi 4", 80)


def test_a_birth_brings_them_and_one_without_is_as_before() -> None:
    for facts in (None, FACTS, DeviceFacts(), DeviceFacts("x", "", None)):
        for labelled in (0, 40):
            birth = replace(BIRTH, facts=facts, labelled=labelled)
            assert unpack_frame(pack_frame(birth)) == birth
    lengths = [len(msgpack.unpackb(header_of(pack_frame(replace(BIRTH, facts=f))))) for f in (None, FACTS)]
    assert lengths[1] == lengths[0] + 2


@pytest.mark.parametrize(
    "facts", ["x", [], ["v", "b"], ["v" * (LONGEST + 1), "", None], ["a\nb", "", None], [1, "", None], ["", "", 101]]
)
def test_facts_that_cannot_be_are_the_peers_fault(facts: Any) -> None:
    fields = msgpack.unpackb(header_of(pack_frame(replace(BIRTH, facts=FACTS))))
    header = msgpack.packb([*fields[:-1], facts])
    with pytest.raises(PeerError, match="frame 'b'"):
        unpack_frame(len(header).to_bytes(2, "little") + header + bytes(-(2 + len(header)) % 8))


def test_only_what_its_owner_lets_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    supply = tmp_path / "sys/class/power_supply/BAT0"
    supply.mkdir(parents=True)
    for name, text in (("type", "Battery"), ("capacity", "87"), ("status", "Discharging"), ("present", "1")):
        (supply / name).write_text(text)
    monkeypatch.setattr(machine_facts, "ROOT", tmp_path)
    monkeypatch.setattr(machine_facts, "read_board", lambda: "Board\0 of\n a " + 99 * "x")
    assert machine_facts.facts_reader([BATTERY])() == DeviceFacts(battery=80)
    assert machine_facts.facts_reader([VERSION])().version and not machine_facts.facts_reader([VERSION])().board
    board = machine_facts.facts_reader([BOARD])()
    assert board.board.startswith("Board of a xxx") and len(board.board) == LONGEST and board.battery is None
    with pytest.raises(UsageError, match="tells = 'weight': expected some of version, board, battery"):
        check_told([VERSION, "weight"])
    assert [in_tenths(share) for share in (None, 0.0, 0.0999, 0.3, 0.999, 1.0)] == [None, 0, 0, 30, 90, 100]
    assert clean("a\x00b  c") == "a b c"


def test_a_birth_says_so_when_they_have_changed() -> None:
    told: list[str] = []
    facts = [FACTS, FACTS, replace(FACTS, battery=70)]
    membership: Any = SimpleNamespace(unwilling=None, labelled=0, facts=None)
    announcer: Any = SimpleNamespace(announce=lambda: told.append("birth"))
    willingness = Willingness(facts=lambda: facts.pop(0), every=10.0)
    for now in (0.0, 5.0, 10.0, 20.0):
        willingness.look(membership, announcer, now)
    assert told == ["birth", "birth"] and membership.facts.battery == 70


def test_the_hospital_passes_them_on_with_the_name() -> None:
    presence = Presence(["a", "b"])
    presence.note_birth(replace(BIRTH, facts=DeviceFacts("0.1.0", "", 0)), "run")
    presence.note_birth(replace(BIRTH, src="b"), "run")
    lane = SimpleNamespace(membership=SimpleNamespace(presence=presence, run=None))
    lanes = SimpleNamespace(shared=None, lane_of=lambda name: lane)
    node: Any = SimpleNamespace(of_lanes=lanes, counters={}, dispatcher=SimpleNamespace(heard_at={"a": time.time()}))
    row = describe_child(node, "a", ("here", ""))
    assert (row["version"], row["battery"]) == ("0.1.0", 0) and "board" not in row
    assert not {"version", "board", "battery"} & {*describe_child(node, "b", ("here", ""))}
    json.dumps(row)
