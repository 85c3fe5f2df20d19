"""A socket that is read and written in large pieces, whatever the sizes in which its user asks for them.

An MQTT client reads a packet as 1 byte, 1 to 4 bytes and the rest, and answers each with 4 bytes of its own. At a
thousand packets a second the system calls cost more than all else that a node does.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time

READ = 64 * 1024  # bytes asked of the system at once
SMALL = 1024  # bytes; what is smaller waits for company
ENOUGH = 48  # bytes that are not kept waiting: a burst of acknowledgements


class Stream:
    """Looks like the connected socket that it is given, which becomes its own.

    Small pieces that are sent wait for `flush`, or go with the next large one. The order is that of the calls.

    Args:
        greedy: takes all that it is given to send, and keeps what the system does not take yet.

    Attributes:
        dry: the system has no more bytes to be read, as far as is known; set to False to look again.
        moved: when bytes last went in or out, by time.monotonic().
        bytes_in, bytes_out: how many have; with TLS, before encryption.
    """

    def __init__(self, sock: socket.socket, greedy: bool = False):
        self.sock, self.plain, self.greedy = sock, not isinstance(sock, ssl.SSLSocket), greedy
        self.buffer = bytearray(READ)
        self.view, self.start, self.end = memoryview(self.buffer), 0, 0
        self.out = bytearray()
        self.dry, self.moved = False, time.monotonic()
        self.bytes_in = self.bytes_out = 0

    @property
    def held(self) -> int:
        """Bytes that were read from the system and not by the user."""
        return self.end - self.start

    @property
    def behind(self) -> bool:
        """The system does not take what it is given, as fast as that comes."""
        return len(self.out) >= SMALL

    def fileno(self) -> int:
        return self.sock.fileno()

    def setblocking(self, flag: bool) -> None:
        self.sock.setblocking(flag)

    def settimeout(self, seconds: float | None) -> None:
        self.sock.settimeout(seconds)

    @property
    def blocking(self) -> bool:
        """As at first, while paho shakes hands."""
        return self.sock.gettimeout() != 0

    # -- in

    def recv(self, size: int) -> bytes:
        """At most `size` bytes; none: the peer has closed.

        Raises:
            BlockingIOError: nothing is there. OSError: the connection is broken.
        """
        if not self.held:
            if self.dry and not self.blocking:
                raise BlockingIOError
            if size >= READ:
                return self.direct(size)
            self.end = self.fill()
            self.start = 0
        start = self.start
        self.start = min(self.end, start + size)
        return bytes(self.view[start : self.start])

    def fill(self) -> int:
        """Bytes read into the buffer."""
        try:
            got = self.sock.recv_into(self.view)
        except (BlockingIOError, ssl.SSLWantReadError):
            self.dry = True
            raise
        return self.came(got, READ)

    def direct(self, size: int) -> bytes:
        """Past the buffer."""
        try:
            data = self.sock.recv(size)
        except (BlockingIOError, ssl.SSLWantReadError):
            self.dry = True
            raise
        self.came(len(data), size)
        return data

    def came(self, got: int, asked: int) -> int:
        self.dry = self.plain and got < asked  # TLS gives a record at a time
        self.moved = time.monotonic()
        self.bytes_in += got
        return got

    # -- out

    def send(self, data: bytes | bytearray) -> int:
        """How many bytes of `data` were taken.

        Raises:
            BlockingIOError: none, now. OSError: the connection is broken.
        """
        if len(data) < SMALL or self.greedy:
            self.out += data
            if len(self.out) >= ENOUGH:
                self.flush()
            return len(data)
        if self.out and not self.plain:
            self.flush()
            if self.out:
                raise BlockingIOError
        return self.together(data) if self.out else self.sent(self.sock.send(data))

    def together(self, data: bytes | bytearray) -> int:
        """What waits and `data`, in one system call."""
        taken = self.sent(self.sock.sendmsg((self.out, data))) - len(self.out)
        del self.out[: taken + len(self.out)]
        if taken <= 0:
            raise BlockingIOError
        return taken

    def flush(self) -> None:
        """Send what waits, as far as the system takes it.

        Raises:
            OSError: the connection is broken.
        """
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while self.out:
                del self.out[: self.sent(self.sock.send(self.out))]

    def sent(self, count: int) -> int:
        if count:
            self.moved = time.monotonic()
            self.bytes_out += count
        return count

    def close(self) -> None:
        """With a last attempt to send what waits."""
        with contextlib.suppress(OSError):
            self.flush()
        self.sock.close()
