"""One large body each way over a bad link: seconds, bytes on the link, chunks that were sent for nothing.

python benchmarks/transfer.py [--megabytes 20] [--rate 1000000] [--latency 0.03] [--cut 3000000] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.wire import CHILD, PARENT, assembly
from edge_sdk.contract.run import Run
from edge_sdk.hardware.bad_link import Proxy
from edge_sdk.live.loop.runtime import LaneWork, Runtime, Transport, TreePlace
from edge_sdk.replay.nodes.broker import Mosquitto
from edge_sdk.wire.link import Backoff


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--rate", type=float, default=1e6, help="bytes per second")
    parser.add_argument("--latency", type=float, default=0.03, help="seconds one way")
    parser.add_argument("--cut", type=int, default=3_000_000, help="bytes between two cuts, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    floats = int(args.megabytes * 250_000)
    done, backoff = threading.Event(), Backoff(0.1, 2.0)
    with Mosquitto() as broker, tempfile.TemporaryDirectory() as base:
        weather = {"rate": args.rate, "latency": args.latency, "cut": args.cut, "seed": args.seed}
        with Proxy("127.0.0.1", broker.port, **weather) as link:
            parts = {"parent": assembly(PARENT, floats), "child": assembly(CHILD, floats)}
            parent = Runtime(
                "parent",
                LaneWork(
                    directory=Path(base) / "parent",
                    assemble=lambda run: parts["parent"],
                    told=lambda number, message: done.set(),
                    run=Run(id="transfer", method="none"),
                ),
                place=TreePlace(children=["child"]),
                transport=Transport(broker=broker.url, backoff=backoff),
            )
            child = Runtime(
                "child",
                LaneWork(directory=Path(base) / "child", assemble=lambda run: parts["child"]),
                place=TreePlace(parent="parent"),
                transport=Transport(broker=f"mqtt://127.0.0.1:{link.port}", backoff=backoff),
            )
            threads = [threading.Thread(target=node.run) for node in (parent, child)]
            began = time.monotonic()
            for thread in threads:
                thread.start()
            done.wait()
            seconds = time.monotonic() - began
            passed = link.passed
            result = {
                **vars(args),
                "seconds": round(seconds, 1),
                "ideal_seconds": round(2 * args.megabytes * 1e6 / args.rate, 1) if args.rate else 0.0,
                "cuts": passed.cuts,
                "up_bytes_per_byte": round(passed.up / (4 * floats), 4),
                "verified_chunks_sent_again": sum(
                    node.counters[f"duplicate_chunk.{peer}"] for node, peer in ((parent, "child"), (child, "parent"))
                ),
            }
            for node in (parent, child):
                node.stop()
            for thread in threads:
                thread.join()
    print(json.dumps(result) if args.json else "\n".join(f"{name:28} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
