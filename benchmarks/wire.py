"""Rounds per second of a loop that does nothing: a parent asks N children for a vector each, beside raw paho.

    python benchmarks/wire.py [--children 10] [--floats 10000] [--seconds 5] [--broker embedded] [--worker] [--full]

Every child is a process of its own. Both loops use the same broker, one after the other. The raw loop publishes and
counts; ours saves state, inbox and outbox on both sides before anything leaves, and can be killed at any moment.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import queue
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from edge_sdk.arrays import Theta
from edge_sdk.broker import EmbeddedBroker, Mosquitto
from edge_sdk.codec import Codec
from edge_sdk.method import DOWN, OUT, UP, Place, Role, Send, unchanged
from edge_sdk.mqtt import broker_at
from edge_sdk.node import Record
from edge_sdk.round import Policy
from edge_sdk.run import Run
from edge_sdk.runtime import Assembly, Runtime

WARM_UP = 20  # rounds that are not counted
LAST = 10**9


@dataclass(frozen=True)
class Vector:
    w: Theta


@dataclass(frozen=True)
class Total:
    count: int
    w: Theta


@dataclass(frozen=True)
class Tick:
    number: int


@dataclass(frozen=True, kw_only=True)
class Env(Place):
    floats: int = 0


def child_receive(env: Env, state: Tick, sender: str, m: Vector) -> Any:
    return Tick(state.number + 1), [Send(UP, Vector(m.w + np.float32(0.01)))]


def parent_start(env: Env) -> Any:
    zero = np.zeros(env.floats, np.float32)
    return Total(0, zero), [Send(DOWN, Vector(zero))]


def parent_receive(env: Env, state: Total, sender: str, m: Vector) -> Any:
    return Total(state.count + 1, state.w + m.w), []


def parent_close(env: Env, state: Total) -> Any:
    mean = state.w / np.float32(state.count)
    return Total(0, np.zeros_like(mean)), [Send(OUT, Tick(0)), Send(DOWN, Vector(mean))]


CHILD = Role(lambda env: (Tick(0), []), child_receive, unchanged, Tick)
PARENT = Role(parent_start, parent_receive, parent_close, Total)


def assembly(role: Role, floats: int) -> Assembly:
    records = Codec((Record, role.state, Vector, Tick))
    return Assembly(role, Env(floats=floats), Policy(), Codec((Vector,)), records)


def ours_child(name: str, base: Path, url: str, floats: int, how: dict[str, Any]) -> None:
    role = assembly(CHILD, floats)
    Runtime(name, parent="parent", directory=base / name, broker=url, assemble=lambda run: role, **how).run()


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
        children=names,
        directory=base / "parent",
        broker=url,
        run=Run(id="bench", method="none", rounds=LAST),
        assemble=lambda run: role,
        told=lambda number, message: times.append(time.perf_counter()),
        **how,
    )
    try:
        node.run(until=lambda: len(times) > WARM_UP and times[-1] - times[WARM_UP] >= seconds)
    finally:
        for process in fleet:
            process.kill()
            process.join()
        shutil.rmtree(base)
    sent = node.counters["bytes_out.all"] + sum(node.counters[f"bytes_out.{n}"] for n in names)
    return rate(times, cpu, children) | {"commits_per_round": node.counters["commits"] / len(times), "bytes_out": sent}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--children", type=int, default=10)
    parser.add_argument("--floats", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--broker", choices=("mosquitto", "embedded"), default="mosquitto")
    parser.add_argument("--worker", action="store_true", help="calls on a worker thread, as devices make them")
    parser.add_argument("--full", action="store_true", help="survive a power cut, not only the death of a process")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    how = {"worker": args.worker, "durability": "full" if args.full else "normal"}
    with Mosquitto() if args.broker == "mosquitto" else EmbeddedBroker() as broker:
        floor = raw(broker.url, args.children, args.floats, args.seconds)
        found = ours(broker.url, args.children, args.floats, args.seconds, how)
    share = found["rounds_per_second"] / floor["rounds_per_second"]
    result = {**vars(args), "raw": floor, "ours": found, "share_of_raw": round(share, 3)}
    if args.json:
        print(json.dumps(result))
        return
    print(f"{args.children} children x {args.floats} floats, {args.broker}, {how}")
    for name, row in (("raw paho", floor), ("ours", found)):
        cpu = f"processor ms per round: parent {row['parent_cpu_ms']}, child {row['child_cpu_ms']}"
        print(f"{name:8} {row['rounds_per_second']:8.1f} rounds/s, median {row['median_ms']} ms; {cpu}")
    print(f"share of raw {share:.2f}")


if __name__ == "__main__":
    mp.set_start_method("fork")
    main()
