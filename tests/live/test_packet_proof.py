"""A packet is proven by what comes after it: some brokers acknowledge what they then end the connection for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge_sdk.hardware.bad_link import ProxiedConnection, Proxy
from edge_sdk.replay.nodes.broker import Mosquitto
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.known_broker import LEAST_PACKET
from edge_sdk.wire.link import Backoff
from edge_sdk.wire.link_limits import LINGER, PacketProof
from tests.conftest import missing
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

needs_mosquitto = pytest.mark.skipif(bool(missing("mosquitto")), reason=missing("mosquitto") or "")
KB = 1024


class Politely(Proxy):
    """In front of a broker: acknowledges each packet, and ends the connection after one that is too large."""

    def __init__(self, url: str, packet: int):
        where = broker_at(url)
        super().__init__(where.host, where.port)
        self.packet, self.ends = packet, dict[asyncio.StreamReader, asyncio.StreamWriter]()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ends[reader] = writer
        await super().connect(reader, writer)

    async def pipe(
        self, connection: ProxiedConnection, source: asyncio.StreamReader, to: asyncio.StreamWriter, way: str
    ) -> None:
        try:
            while True:
                head, size = await source.readexactly(1), 0
                while len(head) < 2 or head[-1] & 0x80:
                    head += await source.readexactly(1)
                    size |= (head[-1] & 0x7F) << 7 * (len(head) - 2)
                rest = await source.readexactly(size)
                if way == "up" and head[0] & 0xF0 == 0x30 and size > self.packet:
                    self.passed.cuts += 1
                    if head[0] & 6:
                        at = 2 + int.from_bytes(rest[:2], "big")
                        self.ends[source].write(b"\x40\x02" + rest[at : at + 2])
                    self.ends[source].write_eof()
                    while await source.read(65536):
                        pass
                    break
                to.write(head + rest)
                await to.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        connection.dead.set()


@needs_mosquitto
@pytest.mark.parametrize("packet", [131_072, 20_000])
def test_what_is_acknowledged_and_then_ends_the_connection_is_cut_smaller(tmp_path: Path, packet: int) -> None:
    """An acknowledgement says that a packet has come, not that the broker takes it."""
    with Mosquitto() as broker, Politely(broker.url, packet) as polite:
        net = Net(tmp_path, f"mqtt://127.0.0.1:{polite.port}", version=4, backoff=Backoff(0.001, 0.05))
        aggregator = net.aggregator("h", rounds=3, size=200_000)
        with playing(aggregator, net.hospital("h", "a"), net.device("a", "h", worker=True)):
            eventually(lambda: net.rounds == 3, 40.0)
    assert [(done.round, done.devices, done.total) for _, done in net.told] == [
        (r, 1, 200_000.0 * r) for r in (1, 2, 3)
    ]
    assert aggregator.counters["cut_smaller.h"]
    assert polite.passed.cuts < 40


def test_an_acknowledgement_proves_what_was_published_before_it() -> None:
    proof = PacketProof(LEAST_PACKET)
    for number, size in enumerate((500, 64 * KB, 100, 30)):
        proof.note_sent(number, size, 10.0)
    for number, proven, doubtful in ((0, 0, 64 * KB), (1, 500, 64 * KB), (2, 64 * KB, 100), (3, 64 * KB, 30)):
        proof.note_acknowledged(number, 10.1)
        assert (proof.proven, proof.find_doubtful(10.2)) == (proven, doubtful)
    assert proof.taken == 64 * KB


def test_a_connection_that_lasts_proves_what_was_acknowledged() -> None:
    proof = PacketProof(LEAST_PACKET)
    proof.note_sent(1, 64 * KB, 10.0)
    proof.note_acknowledged(1, 10.1)
    assert (proof.find_doubtful(10.2), proof.proven) == (64 * KB, 0)
    assert (proof.find_doubtful(10.2 + LINGER), proof.proven) == (0, 64 * KB)


def test_a_packet_that_nobody_acknowledges_is_in_doubt_until_one_behind_it_is() -> None:
    proof = PacketProof(64 * KB)
    proof.note_light(32 * KB, 10.0)
    assert (proof.find_doubtful(10.1), proof.find_doubtful(10.1 + LINGER)) == (32 * KB, 0)
    proof.note_sent(1, 100, 10.2)
    proof.note_acknowledged(1, 10.3)
    assert (proof.find_doubtful(10.4), proof.proven) == (100, 32 * KB)
