"""Records of clients on disk: what a checkpoint knows stays as it was until the next one is on the disk."""

from __future__ import annotations

import errno
import os
import random
from itertools import pairwise

import pytest

from edge_sdk.errors import AuscultError
from edge_sdk.simulation.clients.states import UNIT, ClientStates

SEGMENT = 32 * UNIT


def test_any_order_of_writes_checkpoints_and_kills(tmp_path):
    """Against a dictionary: after a kill every record is as the last checkpoint had it, and no two share a place."""
    draw = random.Random(4)
    states, now, saved, places = ClientStates(tmp_path, segment=SEGMENT), {}, {}, {}
    for _ in range(600):
        name, what = f"c{draw.randrange(12)}", draw.random()
        if what < 0.70:
            now[name] = draw.randbytes(draw.choice([0, 1, UNIT - 1, UNIT, UNIT + 1, 3 * UNIT]))
            states.write(name, now[name])
        elif what < 0.78:
            states.forget(name)
            now.pop(name, None)
        elif what < 0.9:
            states.flush()
            saved, places = dict(now), dict(states.places)
            states.settle()
        else:  # killed: another process opens what is there
            states.close()
            states, now = ClientStates(tmp_path, places, segment=SEGMENT), dict(saved)
        assert {name: states.read(name) for name in states.places} == now
        taken = sorted((p.segment, p.offset, p.offset + p.room) for p in states.places.values() if p.room)
        assert all(a[0] < b[0] or a[2] <= b[1] for a, b in pairwise(taken))
    assert len(list(tmp_path.iterdir())) < 12, "places of before are used again"
    states.close()


def test_a_full_disk_is_an_error_and_no_signal(tmp_path, monkeypatch):
    """Memory that the disk has no room for must not be written: a process ends by SIGBUS there."""
    write = os.pwrite

    def full(handle, data, offset):
        """Takes a part, and then no more."""
        if len(data) <= UNIT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data[:UNIT], offset)

    states = ClientStates(tmp_path, segment=SEGMENT)
    states.write("c1", b"before")
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        states.write("c1", bytes(3 * UNIT))
    assert states.read("c1") == b"before"
    states.close()


def test_a_file_that_could_not_be_made_is_made_at_the_next_write(tmp_path, monkeypatch):
    """Its handle stayed behind: each record of later files went to the file before."""
    make, states = os.ftruncate, ClientStates(tmp_path, segment=SEGMENT)

    def full(handle, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(OSError, match="No space left"):
        states.write("c0", b"none")
    monkeypatch.setattr(os, "ftruncate", make)
    records = {f"c{i}": bytes([i]) * SEGMENT for i in range(1, 4)}
    for name, record in records.items():
        states.write(name, record)
    assert {name: states.read(name) for name in records} == records
    states.close()


def test_a_record_larger_than_a_file_is_refused(tmp_path):
    states = ClientStates(tmp_path, segment=UNIT)
    with pytest.raises(AuscultError, match="the state of client c7 has 513 bytes, at most 512"):
        states.write("c7", bytes(UNIT + 1))
