"""Connections between the processes of one run, each with each other: bytes go straight from one to another.

torch's gloo has a thread in each process that sends and receives. Where each core has a process that computes, that
thread waits for a core of its own: 1.4 ms for a few bytes between two ranks, of a round of 19 (a simulation of an MLP
on two cores). Here the process itself writes and reads, which takes less than a tenth of that.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from edge_sdk.errors import AuscultError

KEY_BYTES = 32
HELLO = struct.Struct(f"<{KEY_BYTES}sI")
"""What a process says first: the key of the run, and its rank."""
HELLO_SECONDS = 30.0
"""A stranger that connects and does not say it is sent away after that."""
FEW = 16384
"""Bytes that are copied behind their size, so that one call sends both."""
STRANGERS = 100
"""Those who may wait at the door before a rank that comes finds no place."""
SIZE = struct.Struct("<q")
"""What comes before each message: how many bytes it has."""
Bytes = bytes | bytearray | memoryview


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
            AuscultError: another is gone, or silent for longer than there is patience.
        """
        found = list(given)
        for rank, link in self.others.items():
            try:
                if self.number < rank:
                    send(link, given[rank])
                found[rank] = receive(link)
                if self.number > rank:
                    send(link, given[rank])
            except TimeoutError as error:
                raise AuscultError(f"rank {rank} is silent for {link.gettimeout():g} s") from error
            except OSError as error:
                raise AuscultError(f"rank {rank} is gone: {error}") from error
        return found

    def close(self) -> None:
        for link in self.others.values():
            link.close()


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
        AuscultError: another cannot be reached, or did not come in time.
    """
    others: dict[int, socket.socket] = {}
    with listen(count) as server:
        if number == 0:
            board.set("key", secrets.token_hex(KEY_BYTES))
        board.set(f"rank {number}", f"{host_for_others()} {server.getsockname()[1]}")
        key = bytes.fromhex(board.get("key").decode())
        for rank in range(number):
            host, port = board.get(f"rank {rank}").decode().split()
            others[rank] = reach(rank, host, int(port))
            others[rank].sendall(HELLO.pack(key, number))
        server.settimeout(patience)
        while len(others) < count - 1:
            try:
                rank, link = answer_door(server, key)
            except TimeoutError:
                raise AuscultError(f"only {len(others) + 1} of {count} ranks came within {patience:g} s") from None
            if rank in others or not number < rank < count:
                link.close()
            else:
                others[rank] = link
    return Links(number, others, patience)


def listen(count: int) -> socket.socket:
    """A server at a free port of all addresses of this machine."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # a machine may know of IPv6 and have none
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=count + STRANGERS)
    return socket.create_server(("", 0), backlog=count + STRANGERS)


def reach(rank: int, host: str, port: int) -> socket.socket:
    try:
        return prepared(socket.create_connection((host, port), timeout=HELLO_SECONDS))
    except OSError as error:
        raise AuscultError(f"rank {rank} cannot be reached at {host}, port {port}: {error}") from error


def answer_door(server: socket.socket, key: bytes) -> tuple[int, socket.socket]:
    """The next process of this run that connects, and its rank. Whoever does not know the key is sent away.

    Raises:
        TimeoutError: nobody comes.
    """
    while True:
        link = prepared(server.accept()[0])
        link.settimeout(HELLO_SECONDS)
        with suppress(OSError):
            said, rank = HELLO.unpack(receive_exactly(link, HELLO.size))
            if secrets.compare_digest(said, key):
                return rank, link
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
    family, kind, _, _, there = socket.getaddrinfo(master, os.environ["MASTER_PORT"], type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(there)  # sends nothing: it only chooses the way
        own = str(probe.getsockname()[0])
    return master if own == there[0] or ipaddress.ip_address(own).is_loopback else own
