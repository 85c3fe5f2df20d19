"""What a round of the empty loop of benchmarks/wire.py costs, step by step, at the parent and at one of its children.

    python benchmarks/stages.py [--rounds 300] [--children 10] [--floats 10000]

Microseconds of processor time of the loop's thread, each step without the steps within it. To look at the clock costs
half a microsecond each time, so the sum is more than benchmarks/wire.py prints.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing as mp
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import wire
from edge_sdk.contract.method import Role, unchanged
from edge_sdk.contract.run import Run
from edge_sdk.live.loop.runtime import LaneWork, Runtime, Transport, TreePlace
from edge_sdk.replay.nodes.broker import Mosquitto
from edge_sdk.wire.options import Wire

WARM_UP = 50  # rounds
STEPS = {
    "read the socket, cut packets": ["wire.mqtt:Connection.read"],
    "take a payload to where it belongs": [
        "live.membership.dispatcher:Dispatcher.take_payload",
        "delivery.session:Session.take_message",
        "delivery.session:Session.take_acks",
    ],
    "read and write frames": [
        "live.membership.dispatcher:unpack_frame",
        "live.presence.publisher:pack_frame",
    ],
    "read and write messages and records": ["wire.codec.codec:Codec.decode", "wire.codec.codec:Codec.encode"],
    "rounds and who owes an answer": ["contract.node:arrive", "contract.node:tick"],
    "calls, and what comes of them": [
        "delivery.session:perform",
        "delivery.session:Session.next_task",
        "delivery.session:Session.save_outcome",
    ],
    "rows and files": [
        "delivery.messages.inbox:Inbox.note_message",
        "delivery.messages.outgoing:Outgoing.send_message",
        "delivery.session:Session.save_record",
        "delivery.session:Session.delete_done",
    ],
    "commits of SQLite": ["delivery.storage.database:Transaction.commit"],
    "the transaction around these": ["delivery.session:Session.commit", "delivery.session:Session.after_commit"],
    "publish": ["live.presence.publisher:Publisher.publish_due", "wire.mqtt:Connection.publish"],
    "wait, timers, the loop itself": [
        "live.loop.runtime:Runtime.take_turn",
        "wire.waiter:Waiter.wait",
        "live.loop.runtime:Runtime.get_timer",
        "live.membership.waiting_log:WaitingLog.look",
    ],
}
"""Step -> the functions that it is made of, without what they call of other steps."""
ROLE = "the role itself"


class Meter:
    """Processor time of each step, in nanoseconds."""

    def __init__(self) -> None:
        self.used, self.open = Counter[str](), list[list[Any]]()

    def through(self, step: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time is counted for a step."""

        def counted(*args: Any, **more: Any) -> Any:
            now = time.thread_time_ns()
            if self.open:
                self.used[self.open[-1][0]] += now - self.open[-1][1]
            self.open.append([step, now])
            try:
                return work(*args, **more)
            finally:
                now = time.thread_time_ns()
                last, since = self.open.pop()
                self.used[last] += now - since
                if self.open:
                    self.open[-1][1] = now

        return counted

    def watch(self) -> None:
        """Count the functions of STEPS from now on, wherever they are called."""
        for step, places in STEPS.items():
            for place in places:
                module, _, names = place.partition(":")
                home: Any = importlib.import_module(f"edge_sdk.{module}")
                *outer, name = names.split(".")
                for each in outer:
                    home = getattr(home, each)
                setattr(home, name, self.through(step, getattr(home, name)))


def play(rounds: int, children: int, floats: int) -> tuple[Counter[str], Counter[str]]:
    """What was used at the parent and at one child, in nanoseconds of all rounds."""
    meter, base = Meter(), Path(tempfile.mkdtemp())
    meter.watch()
    wire.CHILD = Role(wire.CHILD.start, meter.through(ROLE, wire.child_receive), unchanged, wire.Tick)
    close = meter.through(ROLE, wire.parent_close)
    wire.PARENT = Role(wire.parent_start, meter.through(ROLE, wire.parent_receive), close, wire.Total)
    how = {"worker": False, "durability": "normal"}

    def child(name: str, url: str) -> None:
        def end(*_: Any) -> None:
            (base / f"{name}.json").write_text(json.dumps(meter.used))
            os._exit(0)

        signal.signal(signal.SIGTERM, end)
        wire.ours_child(name, base, url, floats, how)

    told = list[int]()

    def tell(number: int, message: Any) -> None:
        told.append(number)
        if len(told) == WARM_UP:
            meter.used.clear()

    names, role = [f"child-{i}" for i in range(children)], wire.assembly(wire.PARENT, floats)
    run = Run(id="stages", method="none", rounds=wire.LAST)
    work = LaneWork(directory=base / "parent", assemble=lambda run: role, told=tell, run=run)
    fleet = list[mp.process.BaseProcess]()
    try:
        with Mosquitto() as broker:
            fleet += [mp.Process(target=child, args=(name, broker.url), daemon=True) for name in names]
            for process in fleet:
                process.start()
            transport = Transport(broker=broker.url, wire=Wire(durability=how["durability"]))
            place = TreePlace(children=names)
            node = Runtime("parent", work, place=place, transport=transport, worker=how["worker"])
            node.run(until=lambda: wire.are_alive(fleet) and len(told) >= WARM_UP + rounds)
            for process in fleet:
                process.terminate()
                process.join(30)
        below = Counter[str](json.loads((base / f"{names[0]}.json").read_text()))
    finally:
        for process in fleet:  # such as an error has left: their own end needs the folder
            process.kill()
            process.join()
        shutil.rmtree(base)
    return meter.used, Counter({step: used * rounds // (WARM_UP + rounds) for step, used in below.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--children", type=int, default=10)
    parser.add_argument("--floats", type=int, default=10_000)
    args = parser.parse_args()
    mp.set_start_method("fork")
    above, below = play(args.rounds, args.children, args.floats)
    print("| step | us per round at the parent | for each message | us at a child |\n|---|---|---|---|")
    scale = 1e3 * args.rounds
    for step in (*STEPS, ROLE):
        row = above[step] / scale, above[step] / scale / args.children, below[step] / scale
        print(f"| {step} | {row[0]:.0f} | {row[1]:.0f} | {row[2]:.0f} |")
    print(f"| all | {above.total() / scale:.0f} | {above.total() / scale / args.children:.0f} | "
          f"{below.total() / scale:.0f} |")  # fmt: skip


if __name__ == "__main__":
    main()
