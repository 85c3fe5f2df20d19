"""Links between the processes of one run, here between threads: who belongs together, and who is gone."""

from __future__ import annotations

import errno
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from edge_sdk.errors import AuscultError
from edge_sdk.simulation.processes import links
from edge_sdk.simulation.processes.links import Links, connect


class Board:
    """A noticeboard in memory. `writes`: called with each key and value before it can be read."""

    def __init__(self, writes: Callable[[str, str], None] = lambda key, value: None) -> None:
        self.values: dict[str, str] = {}
        self.changed, self.writes = threading.Condition(), writes

    def set(self, key: str, value: str) -> None:
        self.writes(key, value)
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            self.changed.wait_for(lambda: key in self.values)
            return self.values[key].encode()


def in_threads(count: int, act: Callable[[int], Any]) -> list[Any]:
    """What `act` returns for each number, or what it raises."""
    found: queue.Queue[tuple[int, Any]] = queue.Queue()

    def run(number: int) -> None:
        try:
            found.put((number, act(number)))
        except Exception as error:  # a test looks at it
            found.put((number, error))

    for number in range(count):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    return [each for _, each in sorted((found.get() for _ in range(count)), key=lambda pair: pair[0])]


@pytest.fixture(autouse=True)
def _place(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")  # nobody connects to it


@pytest.fixture
def linked():
    """Makes the links of several ranks, and closes them in the end."""
    made: list[Links] = []

    def make(count: int, board: Board, patience: float | None = 60.0) -> list[Links]:
        found = in_threads(count, lambda number: connect(board, number, count, patience))
        made.extend(found)
        return found

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_gives_something_else_to_each(linked, count):
    """Megabytes, too, which no buffer of a socket holds: a pair that both sent first would stand still."""
    each = linked(count, Board())
    for size in (0, 1, 3_000_000):

        def give(number: int, size: int = size) -> list[bytes]:
            return each[number].swap([bytes([number, k]) * (size + k) for k in range(count)])

        for number, found in enumerate(in_threads(count, give)):
            assert found == [bytes([k, number]) * (size + number) for k in range(count)]


def test_who_does_not_know_the_key_is_sent_away(linked):
    strangers = []

    def knock(key: str, value: str) -> None:
        """Before others can look up where rank 0 is, strangers are at its door: with a wrong key, with too little, and
        with the rank of somebody who is to come."""
        if key != "rank 0":
            return
        port = int(value.split()[1])
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", links.HELLO.pack(bytes(links.KEY_BYTES), 1), bytes(100)):
            stranger = socket.create_connection(("127.0.0.1", port))
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            strangers.append(stranger)

    each = linked(2, Board(knock))
    assert in_threads(2, lambda number: each[number].swap([b"a", b"b"])) == [[b"a", b"a"], [b"b", b"b"]]
    for stranger in strangers:
        with pytest.raises((ConnectionError, AssertionError)):  # sent away: an end, or a reset where words were left
            assert stranger.recv(1)
        stranger.close()


def test_who_stands_at_the_door_and_says_nothing_keeps_nobody_waiting(linked):
    """Nor does one who says a part of it."""
    silent = []

    def knock(key: str, value: str) -> None:
        if key == "rank 0":
            for said in (b"", b"half", b""):
                silent.append(socket.create_connection(("127.0.0.1", int(value.split()[1]))))
                silent[-1].sendall(said)

    each = linked(3, Board(knock), None)
    assert in_threads(3, lambda number: each[number].swap([b"a"] * 3)) == [[b"a"] * 3] * 3
    for one in silent:
        assert one.recv(1) == b""  # sent away when all had come
        one.close()


def test_strangers_do_not_make_patience_longer():
    board, over = Board(), threading.Event()

    def keep_knocking(key: str, value: str) -> None:
        def knock() -> None:
            while not over.is_set():
                try:
                    socket.create_connection(("127.0.0.1", int(value.split()[1]))).close()
                except OSError:
                    return

        if key == "rank 0":
            threading.Thread(target=knock, daemon=True).start()

    board.writes = keep_knocking
    try:
        with pytest.raises(AuscultError, match=r"only 1 of 2 ranks came within 0.2 s"):
            connect(board, 0, 2, 0.2)
    finally:
        over.set()


def test_a_connection_that_the_kernel_gives_up_is_gone_and_not_silent():
    class GivenUp:
        def settimeout(self, seconds: float | None) -> None:
            self.seconds = seconds

        def gettimeout(self) -> float | None:
            return self.seconds

        def recv_into(self, buffer: Any) -> int:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")

    for patience in (None, 1800.0):
        with pytest.raises(AuscultError, match=r"rank 0 is gone: .*Connection timed out"):
            Links(1, {0: GivenUp()}, patience).swap([b"", b""])


def test_a_failed_start_leaves_no_connection_open():
    """pytest makes an error of a socket that is left open."""
    board, closed = Board(), socket.create_server(("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as first:
        board.set("key", "00" * links.KEY_BYTES)
        board.set("rank 0", f"127.0.0.1 {first.getsockname()[1]}")
        board.set("rank 1", f"127.0.0.1 {closed.getsockname()[1]}")
        closed.close()
        with pytest.raises(AuscultError, match="rank 1 cannot be reached"):
            connect(board, 2, 3, 60.0)


def test_a_place_without_an_address_is_named(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "no.such.host.invalid")
    with pytest.raises(AuscultError, match=r"MASTER_ADDR = no\.such\.host\.invalid: there is no way to it from here"):
        connect(Board(), 0, 2, 60.0)


def test_who_comes_twice_has_one_link():
    """A rank outside the run, or one that is here, is not taken for one that is still to come."""
    board, count = Board(), 2

    def come(number: int) -> Any:
        if number == 0:
            return connect(board, 0, count, 60.0)
        host, port = board.get("rank 0").decode().split()
        key = bytes.fromhex(board.get("key").decode())
        for rank in (0, 7):
            with socket.create_connection((host, int(port))) as other:
                other.sendall(links.HELLO.pack(key, rank))
        return connect(board, 1, count, 60.0)

    each = in_threads(count, come)
    assert in_threads(count, lambda number: each[number].swap([b"a", b"b"])) == [[b"a", b"a"], [b"b", b"b"]]
    for one in each:
        one.close()


def test_a_rank_that_is_gone_is_named(linked):
    each = linked(2, Board())
    each[1].close()
    with pytest.raises(AuscultError, match=r"rank 1 is gone: "):
        each[0].swap([b"", b"x"])


def test_a_rank_that_ends_in_the_middle_of_a_message_is_named(linked):
    each = linked(2, Board())
    each[1].others[0].sendall(links.SIZE.pack(100) + b"half")
    each[1].others[0].shutdown(socket.SHUT_WR)
    with pytest.raises(AuscultError, match=r"rank 1 is gone: it has ended"):
        each[0].swap([b"", b"x"])


def test_a_silent_rank_is_named(linked):
    each = linked(2, Board(), patience=0.05)
    with pytest.raises(AuscultError, match=r"rank 1 is silent for 0.05 s"):
        each[0].swap([b"", b"x"])


def test_ranks_that_do_not_come_are_not_waited_for_beyond_patience():
    with pytest.raises(AuscultError, match=r"only 1 of 2 ranks came within 0.05 s"):
        connect(Board(), 0, 2, 0.05)


def test_a_rank_that_cannot_be_reached_is_named():
    board = Board()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    board.set("key", "00" * links.KEY_BYTES)
    board.set("rank 0", f"127.0.0.1 {port}")
    with pytest.raises(AuscultError, match=rf"rank 0 cannot be reached at 127.0.0.1, port {port}: "):
        connect(board, 1, 2, 60.0)


def test_the_machine_of_the_run_is_known_by_the_name_of_the_run(monkeypatch):
    """Its own name may stand for an address that no other machine can reach."""
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    assert links.host_for_others() == "localhost"
