"""Connections between the processes of one run, each with each other: bytes go straight from one to another.

torch's gloo has a thread in each process that sends and receives. Where each core has a process that computes, that
thread waits for a core of its own: 1.4 ms for a few bytes between two ranks, of a round of 19 (a simulation of an MLP
on two cores). Here the process itself writes and reads, which takes a seventh of that.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Protocol

from edge_sdk.errors import AuscultError

KEY_BYTES = 32
HELLO = struct.Struct(f"<{KEY_BYTES}sI")
"""What a process says first: the key of the run, and its rank."""
HELLO_SECONDS = 30.0
"""For which another is tried to be reached."""
FEW = 16384
"""Bytes that are copied behind their size, so that one call sends both."""
STRANGERS = 100
"""Those who may wait at the door before a rank that comes finds no place."""
SIZE = struct.Struct("<q")
"""What comes before each message: how many bytes it has."""
Bytes = bytes | bytearray | memoryview


class RankGone(AuscultError):
    """Another process of the run has ended, or says nothing."""


class Noticeboard(Protocol):
    """Where processes find each other: `torch.distributed.Store`."""

    def set(self, key: str, value: str) -> None:
        """Writes a value."""

    def get(self, key: str) -> bytes:
        """The value; waits until there is one."""


class Links:
    """The connections of one process.

    Args:
        number: its rank.
        others: rank -> connection with it, of all others.
        patience: seconds that it waits for another in one exchange; None: as long as that lives.
    """

    def __init__(self, number: int, others: Mapping[int, socket.socket], patience: float | None) -> None:
        self.number, self.others = number, dict(sorted(others.items()))
        for link in self.others.values():
            link.settimeout(patience)

    def swap(self, given: Sequence[Bytes]) -> list[Bytes]:
        """What each rank gives to this one, for what this one gives to each; all must call it.

        A pair first sends from the lower to the higher rank, then back. All go through their pairs in the same order,
        so nobody waits for somebody who waits for him.

        Args:
            given: for each rank, in their order.

        Raises:
            RankGone: another is gone, or silent for longer than there is patience.
        """
        found = list(given)
        for rank, link in self.others.items():
            try:
                if self.number < rank:
                    send(link, given[rank])
                found[rank] = receive(link)
                if self.number > rank:
                    send(link, given[rank])
            except OSError as error:
                patience = link.gettimeout()
                if isinstance(error, TimeoutError) and error.errno is None and patience is not None:  # not the kernel's
                    raise RankGone(f"rank {rank} is silent for {patience:g} s") from error
                raise RankGone(f"rank {rank} is gone: {error}") from error
        return found

    def close(self) -> None:
        close_all(self.others.values())


def send(link: socket.socket, data: Bytes) -> None:
    head = SIZE.pack(len(data))
    if len(data) > FEW:  # a copy would take longer than another call
        link.sendall(head)
        link.sendall(data)
    else:
        link.sendall(b"".join((head, data)))


def receive(link: socket.socket) -> bytearray:
    return receive_exactly(link, SIZE.unpack(receive_exactly(link, SIZE.size))[0])


def receive_exactly(link: socket.socket, size: int) -> bytearray:
    found = bytearray(size)
    left = memoryview(found)
    while left:
        count = link.recv_into(left)
        if count == 0:
            raise ConnectionResetError("it has ended")
        left = left[count:]
    return found


def connect(board: Noticeboard, number: int, count: int, patience: float | None) -> Links:
    """Connects the processes of a run, each with each other; all must call it.

    Each listens, writes on the board where, and connects to those of lower rank.

    Raises:
        RankGone: another cannot be reached, or did not come in time.
    """
    others: dict[int, socket.socket] = {}
    try:
        with listen(count) as server:
            if number == 0:
                board.set("key", secrets.token_hex(KEY_BYTES))
            board.set(f"rank {number}", f"{host_for_others()} {server.getsockname()[1]}")
            key = bytes.fromhex(board.get("key").decode())
            for rank in range(number):
                host, port = board.get(f"rank {rank}").decode().split()
                others[rank] = reach(rank, host, int(port), HELLO.pack(key, number))
            answer_door(server, key, range(number + 1, count), patience, others)
    except BaseException:
        close_all(others.values())
        raise
    return Links(number, others, patience)


def close_all(links: Iterable[socket.socket]) -> None:
    for link in links:
        link.close()


def listen(count: int) -> socket.socket:
    """A server at a free port of all addresses of this machine."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # a machine may know of IPv6 and have none
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=count + STRANGERS)
    return socket.create_server(("", 0), backlog=count + STRANGERS)


def reach(rank: int, host: str, port: int, hello: bytes) -> socket.socket:
    """A connection with a rank, which has been told who we are."""
    try:
        link = prepared(socket.create_connection((host, port), timeout=HELLO_SECONDS))
        try:
            link.sendall(hello)
        except OSError:
            link.close()
            raise
    except OSError as error:
        raise RankGone(f"rank {rank} cannot be reached at {host}, port {port}: {error}") from error
    return link


def answer_door(
    server: socket.socket, key: bytes, wanted: range, patience: float | None, others: dict[int, socket.socket]
) -> None:
    """Lets the ranks in that are still to come. All who stand at the door are heard at once, so that nobody waits for a
    stranger who says nothing; who does not know the key is sent away.

    Args:
        wanted: the ranks.
        others: rank -> connection; gets theirs.

    Raises:
        RankGone: they did not come in time.
    """
    ends = inf if patience is None else time.monotonic() + patience
    with selectors.DefaultSelector() as door:
        door.register(server, selectors.EVENT_READ)
        try:
            while not all(rank in others for rank in wanted):
                left = ends - time.monotonic()
                if left <= 0:
                    count = wanted.stop
                    raise RankGone(f"only {len(others) + 1} of {count} ranks came within {patience:g} s")
                for found, _ in door.select(None if left == inf else left):
                    if found.fileobj is server:
                        come_in(server, door)
                    else:
                        hear_out(found, key, wanted, others, door)
        finally:
            standing = [found.fileobj for found in door.get_map().values() if found.fileobj is not server]
            close_all(link for link in standing if isinstance(link, socket.socket))


def come_in(server: socket.socket, door: selectors.BaseSelector) -> None:
    with suppress(OSError):  # gone again
        link = prepared(server.accept()[0])
        link.setblocking(False)
        door.register(link, selectors.EVENT_READ, bytearray())


def hear_out(
    found: selectors.SelectorKey,
    key: bytes,
    wanted: range,
    others: dict[int, socket.socket],
    door: selectors.BaseSelector,
) -> None:
    """Reads what somebody at the door has said so far; lets it in, or sends it away, when that is enough to know."""
    link, said = found.fileobj, found.data
    assert isinstance(link, socket.socket), "all but the server are connections"
    try:
        part = link.recv(HELLO.size - len(said))
    except OSError:
        part = b""
    said += part
    if part and len(said) < HELLO.size:
        return
    door.unregister(link)
    told, rank = HELLO.unpack(said) if len(said) == HELLO.size else (b"", -1)
    if secrets.compare_digest(told, key) and rank in wanted and rank not in others:
        others[rank] = link
    else:
        link.close()


def prepared(connected: socket.socket) -> socket.socket:
    """A connection that sends at once what it is given, and notices if the other machine has vanished."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connected


def host_for_others() -> str:
    """A name or address at which other processes of the run reach this machine: the run's own, MASTER_ADDR, on the
    machine that has it; elsewhere the address from which this machine reaches that one."""
    master = os.environ["MASTER_ADDR"]
    try:
        family, kind, _, _, there = socket.getaddrinfo(master, os.environ["MASTER_PORT"], type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)  # sends nothing: it only chooses the way
            own = str(probe.getsockname()[0])
    except OSError as error:
        raise AuscultError(f"MASTER_ADDR = {master}: there is no way to it from here ({error})") from error
    return master if own == there[0] or ipaddress.ip_address(own).is_loopback else own
