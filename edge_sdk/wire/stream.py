"""A socket that is read and written in large pieces, whatever the sizes that its user asks for.

An MQTT client reads a packet as 1 byte, 1 to 4 bytes and the rest, and answers each with 4 bytes of its own. At a
thousand packets a second these system calls would cost more than all else that a node does.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time

READ = 256 * 1024  # bytes asked of the system at once; memory is used of it as far as there was so much to be read
PAST = 4 * READ  # bytes asked of it at once for a user that wants more: room is made for them before any has come
SMALL = 1024  # bytes; less than that waits for more, to be sent together
BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # of the three TLS raises the last two
ENOUGH = 48  # bytes that are sent at once although they are few: a burst of acknowledgements


class Stream:
    """Looks like the connected socket that it is given, and owns it from then on.

    Small pieces that are sent wait for `flush`, or go with the next large one. The order of the calls is kept.

    Args:
        greedy: take all that is given to `send`, and keep what the system does not take yet.

    Attributes:
        dry: the system has no more bytes to be read, as far as is known; set to False to look again.
        short: what was read is the beginning of something whose rest has not come.
        broken: why nothing can be read any more; None: it can.
        moved: when bytes last went in or out, by time.monotonic(); `heard`: when they last came in.
        needs_write: TLS cannot read before it has written something of its own (an answer to a new key, say).
        needs_read: TLS cannot write before it has read something of its own.
        bytes_in, bytes_out: bytes that have gone in and out; with TLS, before encryption.
    """

    def __init__(self, sock: socket.socket, greedy: bool = False):
        self.sock, self.plain, self.greedy = sock, not isinstance(sock, ssl.SSLSocket), greedy
        self.buffer = bytearray(READ)
        self.view, self.start, self.end = memoryview(self.buffer), 0, 0
        self.out = bytearray()
        self.dry, self.short = False, False
        self.moved = self.heard = time.monotonic()
        self.needs_write = self.needs_read = False
        self.broken: OSError | None = None
        self.bytes_in = self.bytes_out = 0

    @property
    def held(self) -> int:
        """Bytes that were read from the system and not by the user."""
        return self.end - self.start

    @property
    def behind(self) -> bool:
        """More is given to be sent than the system takes."""
        return len(self.out) >= SMALL

    def fileno(self) -> int:
        return self.sock.fileno()

    def setblocking(self, flag: bool) -> None:
        self.sock.setblocking(flag)

    def settimeout(self, seconds: float | None) -> None:
        self.sock.settimeout(seconds)

    @property
    def blocking(self) -> bool:
        """Reading waits for bytes, as it does at first, while paho shakes hands."""
        return self.sock.gettimeout() != 0

    # -- in

    def look_again(self) -> None:
        """There may be something to be read again, and so to be written, where that waited for it."""
        self.dry = self.needs_read = self.needs_write = False

    def recv(self, size: int) -> bytes:
        """Read at most `size` bytes; none: the peer has closed.

        Raises:
            BlockingIOError: nothing is there. OSError: the connection is broken.
        """
        self.short = False
        if not self.held:
            if self.broken is not None:
                raise self.broken
            if self.dry and not self.blocking:
                raise BlockingIOError
            if size >= READ:
                return self.read_past(size)
            self.end = self.read_ahead()
            self.start = 0
        start = self.start
        self.start = min(self.end, start + size)
        return bytes(self.view[start : self.start])

    def peek(self, size: int) -> memoryview:
        """At most so many of the next bytes, as far as they have been read. They may change after the next call."""
        return self.view[self.start : min(self.start + size, self.end)]

    def take(self, size: int) -> None:
        """Pass over bytes that were looked at."""
        self.start += size

    def gather(self, size: int) -> bool:
        """Let the next `size` bytes lie in the buffer, one behind the other; False: they have not all come."""
        if self.end - self.start >= size:
            self.short = False
            return True
        self.make_room(size)
        while self.held < size and self.broken is None:
            try:
                if self.dry:
                    raise BlockingIOError
                got = self.sock.recv_into(self.view[self.end :])
            except BLOCKED as e:
                self.note_blocked(e)
                self.short = True
                return False
            except OSError as e:
                self.broken = e
            else:
                self.end += self.note_read(got, len(self.view) - self.end)
                self.broken = None if got else ConnectionAbortedError("closed by the other end")
        self.short, self.dry = False, self.dry and self.broken is None  # a user that looks again is to hear of it
        return self.held >= size

    def make_room(self, size: int) -> None:
        """Let the buffer have room for `size` bytes from `start` on."""
        held = self.held
        if len(self.buffer) != (wanted := max(size, READ)) and (wanted > len(self.buffer) or not held):
            buffer = bytearray(wanted)
            buffer[:held] = self.view[self.start : self.end]
            self.buffer, self.view = buffer, memoryview(buffer)
        elif held and self.start + size > len(self.buffer):
            self.view[:held] = self.view[self.start : self.end]
        elif held:
            return
        self.start, self.end = 0, held

    def read_ahead(self) -> int:
        """Read into the buffer; returns how many bytes came."""
        try:
            got = self.sock.recv_into(self.view)
        except BLOCKED as e:
            raise self.note_blocked(e) from None
        return self.note_read(got, len(self.view))

    def read_past(self, size: int) -> bytes:
        """Read past the buffer: the user asks for more than it holds."""
        size = min(size, PAST)
        try:
            data = self.sock.recv(size)
        except BLOCKED as e:
            raise self.note_blocked(e) from None
        self.note_read(len(data), size)
        return data

    def note_blocked(self, why: OSError) -> BlockingIOError:
        """Nothing can be read now, perhaps as TLS has to write first; returns what the user is told."""
        self.dry = True
        self.needs_write = self.needs_write or isinstance(why, ssl.SSLWantWriteError)
        return BlockingIOError()

    def note_read(self, got: int, asked: int) -> int:
        self.dry = self.plain and got < asked  # TLS gives a record at a time
        self.moved = self.heard = time.monotonic()
        self.bytes_in += got
        return got

    # -- out

    def send(self, data: bytes | bytearray) -> int:
        """Send bytes; returns how many were taken.

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
        return self.send_together(data) if self.out else self.write_now(data)

    def write_now(self, data: bytes | bytearray) -> int:
        """Write past what waits; returns how many bytes were taken. Raises as `send`."""
        try:
            return self.note_sent(self.sock.send(data))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as e:
            self.needs_read = isinstance(e, ssl.SSLWantReadError)
            raise BlockingIOError from None

    def send_together(self, data: bytes | bytearray) -> int:
        """Send what waits and `data` in one system call; returns how many bytes of `data` were taken."""
        taken = self.note_sent(self.sock.sendmsg((self.out, data))) - len(self.out)
        del self.out[: taken + len(self.out)]
        if taken <= 0:
            raise BlockingIOError
        return taken

    def flush(self) -> None:
        """Send what waits, as far as the system takes it.

        Raises:
            OSError: the connection is broken.
        """
        with contextlib.suppress(BlockingIOError):
            while self.out and not self.needs_read:
                del self.out[: self.write_now(self.out)]

    def hear_end(self) -> None:
        """Read once what the other end has said before it closed, after a write has failed: over TLS 1.3 that is why it
        does not take a certificate. What else comes is of a connection that is over."""
        try:
            self.sock.recv(READ)
        except BLOCKED:
            pass
        except OSError as e:
            self.broken = self.broken or e

    def note_sent(self, count: int) -> int:
        if count:
            self.moved = time.monotonic()
            self.bytes_out += count
        return count

    def close(self) -> None:
        """Close the socket, after a last attempt to send what waits."""
        with contextlib.suppress(OSError):
            self.flush()
        self.sock.close()
