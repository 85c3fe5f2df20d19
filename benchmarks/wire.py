"""Rounds per second of a loop that does nothing: a parent asks N children for a vector each, beside raw paho.

    python benchmarks/wire.py [--sizes 10x10k ...] [--seconds 3] [--blocks 3] [--broker embedded] [--flower PYTHON]
        [--without WORD ...]

Every child is a process of its own. All loops use the same broker, in turns, so that what else the machine does meets
them alike; figures are medians over the blocks. The raw loop publishes and counts; ours saves state, inbox and outbox
on both sides before anything leaves, and can be killed at any moment. "full" survives a power cut as well. With
--flower, the Python of an environment that has flwr, Flower's gRPC loop takes its turns too (it saves nothing).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import queue
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.wire_without import PARTS, compare
from edge_sdk.algebra.arrays import Theta
from edge_sdk.contract.method import DOWN, OUT, UP, NodeEnv, Role, Send, unchanged
from edge_sdk.contract.node import Record
from edge_sdk.contract.round import Policy
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.live.loop.runtime import LaneWork, Runtime, Transport, TreePlace
from edge_sdk.replay.nodes.broker import EmbeddedBroker, Mosquitto
from edge_sdk.wire.addresses import broker_at
from edge_sdk.wire.codec.codec import Codec
from edge_sdk.wire.options import Wire

WARM_UP = 20  # rounds that are not counted
LAST = 10**9


@dataclass(frozen=True)
class Vector:
    w: Theta


@dataclass(frozen=True)
class Total:
    count: int
    w: Theta


NOTHING = Total(0, np.zeros(0, np.float32))


@dataclass(frozen=True)
class Tick:
    number: int


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    floats: int = 0


def child_receive(env: Env, state: Tick, sender: str, m: Vector) -> Any:
    return Tick(state.number + 1), [Send(UP, Vector(m.w + np.float32(0.01)))]


def parent_start(env: Env) -> Any:
    return NOTHING, [Send(DOWN, Vector(np.zeros(env.floats, np.float32)))]


def parent_receive(env: Env, state: Total, sender: str, m: Vector) -> Any:
    return Total(state.count + 1, state.w + m.w if state.count else m.w), []


def parent_close(env: Env, state: Total) -> Any:
    mean = state.w / np.float32(state.count)
    return NOTHING, [Send(OUT, Tick(0)), Send(DOWN, Vector(mean))]


CHILD = Role(lambda env: (Tick(0), []), child_receive, unchanged, Tick)
PARENT = Role(parent_start, parent_receive, parent_close, Total)


def assembly(role: Role, floats: int) -> Assembly:
    records = Codec((Record, role.state, Vector, Tick))
    return Assembly(role, Env(floats=floats), Policy(), Codec((Vector,)), records)


def ours_child(name: str, base: Path, url: str, floats: int, how: dict[str, Any]) -> None:
    role = assembly(CHILD, floats)
    work = LaneWork(directory=base / name, assemble=lambda run: role)
    transport = Transport(broker=url, wire=Wire(durability=how["durability"]))
    Runtime(name, work, place=TreePlace(parent="parent"), transport=transport, worker=how["worker"]).run()


def ours(url: str, children: int, floats: int, seconds: float, how: dict[str, Any]) -> dict[str, Any]:
    """Rounds per second of the product, and what it counted."""
    base, cpu = Path(tempfile.mkdtemp()), processor()
    names = [f"child-{i}" for i in range(children)]
    fleet = [mp.Process(target=ours_child, args=(n, base, url, floats, how), daemon=True) for n in names]
    for process in fleet:
        process.start()
    times: list[float] = []
    role = assembly(PARENT, floats)
    node = Runtime(
        "parent",
        LaneWork(
            directory=base / "parent",
            assemble=lambda run: role,
            told=lambda number, message: times.append(time.perf_counter()),
            run=Run(id="bench", method="none", rounds=LAST),
        ),
        place=TreePlace(children=names),
        transport=Transport(broker=url, wire=Wire(durability=how["durability"])),
        worker=how["worker"],
    )
    try:
        node.run(until=lambda: are_alive(fleet) and len(times) > WARM_UP and times[-1] - times[WARM_UP] >= seconds)
    finally:
        for process in fleet:
            process.kill()
            process.join()
        shutil.rmtree(base)
    payload = 4 * floats * (1 + children) * len(times)
    assert node.below is not None
    return rate(times, cpu, children) | {
        "commits_per_round": round(node.counters["commits"] / len(times), 2),
        "bytes_per_payload_byte": round(node.below.bytes_moved / payload, 4),
    }


def are_alive(fleet: Sequence[mp.process.BaseProcess]) -> bool:
    """True; raises SystemExit where a process has ended, whose answers would be waited for without end."""
    for process in fleet:
        if process.exitcode is not None:
            raise SystemExit(f"a child has ended by itself, with exit code {process.exitcode}")
    return True


def rate(times: Sequence[float], cpu: Cpu, children: int) -> dict[str, Any]:
    """Speed, and processor time per round: of the parent, and of one child."""
    steps = np.diff(times[WARM_UP:])
    own, theirs = (b - a for a, b in zip(cpu, processor(), strict=True))
    return {
        "rounds_per_second": round(float(1 / steps.mean()), 1),
        "median_ms": round(1e3 * float(np.median(steps)), 2),
        "parent_cpu_ms": round(1e3 * own / len(times), 2),
        "child_cpu_ms": round(1e3 * theirs / len(times) / children, 2),
    }


Cpu = tuple[float, float]


def processor() -> Cpu:
    """Seconds of processor time of this process, and of its children that have ended."""
    used = os.times()
    return used.user + used.system, used.children_user + used.children_system


def raw_client(name: str, url: str, topic: str) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name)
    where = broker_at(url)
    client.connect(where.host, where.port)
    sock = client.socket()
    assert isinstance(sock, socket.socket)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.on_connect = lambda *_: client.subscribe(topic, qos=1)
    return client


def raw_child(name: str, url: str, ready: Any) -> None:
    client = raw_client(name, url, "raw/down")

    def answer(_: Any, __: Any, message: paho.MQTTMessage) -> None:
        w = np.frombuffer(message.payload, np.float32, offset=4) + np.float32(0.01)
        client.publish(f"raw/up/{name}", message.payload[:4] + w.tobytes(), qos=1)

    client.on_message = answer
    client.on_subscribe = lambda *_: ready.release()
    client.loop_forever()


def raw(url: str, children: int, floats: int, seconds: float) -> dict[str, Any]:
    """Rounds per second of two callbacks and nothing else."""
    ready, cpu = mp.Semaphore(0), processor()
    fleet = [mp.Process(target=raw_child, args=(f"raw-{i}", url, ready), daemon=True) for i in range(children)]
    for process in fleet:
        process.start()
    for _ in fleet:
        ready.acquire()
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    client = raw_client("raw-parent", url, "raw/up/+")
    client.on_message = lambda _, __, message: inbox.put(message.payload)
    client.on_subscribe = lambda *_: ready.release()
    client.loop_start()
    ready.acquire()
    times, w = [time.perf_counter()], np.zeros(floats, np.float32)
    while len(times) <= WARM_UP or times[-1] - times[WARM_UP] < seconds:
        client.publish("raw/down", struct.pack("<I", len(times)) + w.tobytes(), qos=1)
        total = np.zeros_like(w)
        for _ in fleet:
            total += np.frombuffer(inbox.get(), np.float32, offset=4)
        w = total / np.float32(children)
        times.append(time.perf_counter())
    client.loop_stop()
    client.disconnect()
    for process in fleet:
        process.kill()
        process.join()
    return rate(times, cpu, children)


SIZES = ("2x10k", "10x10k", "50x10k", "10x1M")
FLOWER_ROUNDS = {"2x10k": 300, "10x10k": 120, "50x10k": 40, "10x1M": 26}
LOOPS = ("raw paho", "ours, normal", "ours, full")
Row = Mapping[str, Any]


def size_of(text: str) -> tuple[int, int]:
    """(children, floats) of "10x10k"."""
    children, _, floats = text.partition("x")
    scale = {"k": 1_000, "M": 1_000_000}.get(floats[-1:], 1)
    return int(children), int(floats.rstrip("kM")) * scale


def flower(python: str, size: str) -> Row:
    children, floats = size_of(size)
    command = [python, str(Path(__file__).with_name("flower.py")), "--json", "--children", str(children)]
    command += ["--floats", str(floats), "--rounds", str(FLOWER_ROUNDS.get(size, 100))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def block(url: str, size: str, args: argparse.Namespace) -> dict[str, Row]:
    """Each loop once."""
    children, floats = size_of(size)
    found: dict[str, Row] = {"raw paho": raw(url, children, floats, args.seconds)}
    for durability in ("normal", "full"):
        how = {"worker": args.worker, "durability": durability}
        found[f"ours, {durability}"] = ours(url, children, floats, args.seconds, how)
    return found | ({"flower": flower(args.flower, size)} if args.flower else {})


def middle(rows: Sequence[Row]) -> dict[str, Any]:
    """The median of each figure."""
    numbers = [k for k, v in rows[0].items() if isinstance(v, int | float)]
    return {k: statistics.median(row[k] for row in rows) for k in numbers}


def compared(url: str, size: str, args: argparse.Namespace) -> dict[str, Any]:
    """Medians over the blocks, and ratios: the median of the ratios within a block, which saw the same weather."""
    blocks = [block(url, size, args) for _ in range(args.blocks)]
    result: dict[str, Any] = {loop: middle([b[loop] for b in blocks]) for loop in blocks[0]}
    for loop in result:
        for peer in ("raw paho", "flower"):
            if peer in result and loop != peer:
                shares = [b[loop]["rounds_per_second"] / b[peer]["rounds_per_second"] for b in blocks]
                result[loop][f"of {peer}"] = round(statistics.median(shares), 3)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="CHILDRENxFLOATS", help=" ".join(SIZES))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each loop in each block")
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--broker", choices=("mosquitto", "embedded"), default="mosquitto")
    parser.add_argument("--worker", action="store_true", help="calls on a worker thread, as devices make them")
    parser.add_argument("--flower", metavar="PYTHON", help="of an environment that has flwr")
    parser.add_argument("--without", nargs="+", choices=tuple(PARTS), metavar="WORD", help=", ".join(PARTS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    mp.set_start_method("fork")
    if args.without:
        return measure_parts(args)
    if not args.json:
        print(f"{'':8} {'loop':13} rounds/s  median ms   of raw  of Flower  wire/payload  cpu ms: parent, a child")
    with Mosquitto() if args.broker == "mosquitto" else EmbeddedBroker() as broker:
        for size in args.sizes:
            result = compared(broker.url, size, args)
            if args.json:
                print(json.dumps({"size": size, "broker": args.broker, "worker": args.worker, **result}), flush=True)
            else:
                print_rows(size, result)


def measure_parts(args: argparse.Namespace) -> None:
    """Print what parts of the loop cost, for the first of the sizes."""
    children, floats = size_of(args.sizes[0])
    how = {"worker": args.worker, "durability": "normal"}
    with Mosquitto() as broker:
        print(compare(lambda: ours(broker.url, children, floats, args.seconds, how), args.without, args.blocks))


def print_rows(size: str, result: Mapping[str, Row]) -> None:
    for i, (loop, row) in enumerate(result.items()):
        shares = (f"{row[k]:.2f}" if k in row else "" for k in ("of raw paho", "of flower"))
        bytes_, cpu = (
            row.get("bytes_per_payload_byte", ""),
            [row.get(f"{who}_cpu_ms", "") for who in ("parent", "child")],
        )
        figures = f"{row['rounds_per_second']:8.1f} {row['median_ms']:10.2f} {{:>8}} {{:>10}}".format(*shares)
        print(f"{size if i == 0 else '':8} {loop:13} {figures} {bytes_!s:>13}  {cpu[0]} {cpu[1]}", flush=True)


if __name__ == "__main__":
    main()
