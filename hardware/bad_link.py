"""A bad link: a TCP proxy whose faults follow a seed, for tests and for trials. It needs no privileges.

with Proxy("127.0.0.1", 1883, rate=20_000, latency=0.1, cut=3_000_000, seed=1) as proxy:
    ... connect to proxy.port ...

python -m edge_sdk.hardware.bad_link 1883 --rate 20000 --latency 0.1
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

PIECE = 16384  # bytes
RESENT = 0.2  # seconds until TCP sends again what was lost: Linux's shortest


@dataclass
class LinkFaults:
    """Faults of the link. They may be changed while it runs.

    Attributes:
        rate: bytes per second in each direction; 0: no limit.
        latency: seconds that bytes take one way.
        jitter: seconds that they may take longer, at most.
        cut: bytes of a connection, both ways together, after which it is reset; 0: never. Varies by a third.
        hole: bytes after which nothing gets through any more, without a reset: a half-open link; 0: never.
        corrupt: share of the pieces in which one byte is changed.
        loss: share of the pieces that are lost once, so that they and all behind them come RESENT later.
    """

    rate: float = 0
    latency: float = 0
    jitter: float = 0
    cut: int = 0
    hole: int = 0
    corrupt: float = 0
    loss: float = 0


@dataclass
class Passed:
    """Bytes that have gone through, and faults that they have met."""

    up: int = 0
    down: int = 0
    connections: int = 0
    cuts: int = 0
    holes: int = 0
    corrupted: int = 0
    lost: int = 0


@dataclass
class ProxiedConnection:
    """One connection through the proxy."""

    cut: float
    hole: float
    bytes: int = 0
    dead: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """Listens on a free port of this machine and passes bytes on to a broker, on a thread of its own."""

    def __init__(self, host: str, port: int, *, seed: int = 0, listen: int = 0, **faults: Any):
        self.host, self.target, self.listen = host, port, listen
        self.faults, self.passed, self.dice = LinkFaults(**faults), Passed(), random.Random(seed)
        self.port = 0
        self.started = threading.Event()

    def __enter__(self) -> Proxy:
        self.thread = threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True)
        self.thread.start()
        self.started.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join()

    async def serve(self) -> None:
        self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self.accept, "127.0.0.1", self.listen)
        self.port = server.sockets[0].getsockname()[1]
        self.started.set()
        await self.stop.wait()
        server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self.connect(reader, writer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.passed.connections += 1
        try:
            there = await asyncio.open_connection(self.host, self.target)
        except OSError:
            writer.transport.abort()
            return
        for each in (writer, there[1]):
            each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.transport.set_write_buffer_limits(65536)
        vary = self.dice.uniform(2 / 3, 4 / 3)
        connection = ProxiedConnection(self.faults.cut * vary, self.faults.hole * vary)
        pipes = [self.pipe(connection, reader, there[1], "up"), self.pipe(connection, there[0], writer, "down")]
        running = [asyncio.ensure_future(pipe) for pipe in pipes]
        try:
            await connection.dead.wait()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            writer.transport.abort()
            there[1].transport.abort()

    async def pipe(
        self, connection: ProxiedConnection, source: asyncio.StreamReader, to: asyncio.StreamWriter, way: str
    ) -> None:
        """Carry one direction of a connection: bytes wait in a queue as long as the link makes them."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        sender = asyncio.ensure_future(self.deliver(connection, queue, to, way))
        free = self.loop.time()
        try:
            while data := await source.read(PIECE):
                free = max(free, self.loop.time() - 0.05)
                if self.faults.rate:
                    free += len(data) / self.faults.rate
                    await asyncio.sleep(max(0.0, free - self.loop.time()))
                delay = self.faults.latency + self.dice.random() * self.faults.jitter
                if self.faults.loss and self.dice.random() < self.faults.loss:
                    delay += RESENT
                    self.passed.lost += 1
                await queue.put((self.loop.time() + delay, self.garble(data)))
                if self.is_over(connection, len(data)):
                    break
            else:
                await queue.put((self.loop.time() + self.faults.latency, b""))
                await connection.dead.wait()
        except (ConnectionError, OSError):
            pass
        finally:
            connection.dead.set()
            sender.cancel()

    async def deliver(
        self,
        connection: ProxiedConnection,
        queue: asyncio.Queue[tuple[float, bytes]],
        to: asyncio.StreamWriter,
        way: str,
    ) -> None:
        with suppress(ConnectionError, OSError):
            while True:
                at, data = await queue.get()
                await asyncio.sleep(max(0.0, at - self.loop.time()))
                if not data:
                    break
                if not (connection.hole and connection.bytes > connection.hole):
                    to.write(data)
                    await to.drain()
                    setattr(self.passed, way, getattr(self.passed, way) + len(data))
        connection.dead.set()

    def garble(self, data: bytes) -> bytes:
        if not self.faults.corrupt or self.dice.random() >= self.faults.corrupt:
            return data
        self.passed.corrupted += 1
        changed = bytearray(data)
        changed[self.dice.randrange(len(changed))] ^= 1 + self.dice.randrange(255)
        return bytes(changed)

    def is_over(self, connection: ProxiedConnection, size: int) -> bool:
        before = connection.bytes
        connection.bytes += size
        if connection.hole and before <= connection.hole < connection.bytes:
            self.passed.holes += 1
        if connection.cut and connection.bytes > connection.cut:
            self.passed.cuts += 1
            return True
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("port", type=int, help="of the broker")
    parser.add_argument("--host", default="127.0.0.1", help="of the broker")
    parser.add_argument("--listen", type=int, default=0, help="port; 0: a free one")
    parser.add_argument("--seed", type=int, default=0)
    for name in ("rate", "latency", "jitter", "cut", "hole", "corrupt", "loss"):
        parser.add_argument(f"--{name}", type=int if name in ("cut", "hole") else float, default=0)
    args = vars(parser.parse_args())
    with Proxy(args.pop("host"), args.pop("port"), **args) as proxy:
        print(f"listening on 127.0.0.1:{proxy.port}", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
        print(proxy.passed)


if __name__ == "__main__":
    main()
