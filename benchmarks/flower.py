"""The empty loop of wire.py in Flower's gRPC loop, for comparison. Runs in an environment of its own, which has flwr:

    python -m venv .flower && .flower/bin/pip install flwr
    .flower/bin/python benchmarks/flower.py [--children 10] [--floats 10000] [--rounds 200] [--json]

Flower keeps nothing: a server that is killed loses the run. Ours does the same rounds with everything saved.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing as mp
import os
import socket
import time
import warnings

os.environ["OPENBLAS_NUM_THREADS"] = "1"
warnings.filterwarnings("ignore")

import flwr  # noqa: E402
import numpy as np  # noqa: E402

logging.getLogger("flwr").setLevel(logging.CRITICAL)
WARM_UP = 20


class FlowerChild(flwr.client.NumPyClient):
    def fit(self, parameters, config):  # type: ignore[no-untyped-def]
        return [parameters[0] + np.float32(0.01)], 1, {}


class Timed(flwr.server.strategy.FedAvg):
    """The mean, and when it was made."""

    times: list[float] = []  # noqa: RUF012

    def aggregate_fit(self, *args):  # type: ignore[no-untyped-def]
        self.times.append(time.perf_counter())
        return super().aggregate_fit(*args)


def child(address: str) -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    flwr.client.start_client(server_address=address, client=FlowerChild().to_client())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--children", type=int, default=10)
    parser.add_argument("--floats", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    fleet = [mp.Process(target=child, args=(address,), daemon=True) for _ in range(args.children)]
    for process in fleet:
        process.start()
    first = flwr.common.ndarrays_to_parameters([np.zeros(args.floats, np.float32)])
    n = args.children
    strategy = Timed(
        fraction_evaluate=0.0,
        min_fit_clients=n,
        min_available_clients=n,
        min_evaluate_clients=0,
        initial_parameters=first,
    )
    config = flwr.server.ServerConfig(num_rounds=args.rounds)
    flwr.server.start_server(server_address=address, config=config, strategy=strategy)
    steps = np.diff(strategy.times[WARM_UP:])
    result = {**vars(args), "flwr": flwr.__version__, "rounds_per_second": round(float(1 / steps.mean()), 1)}
    result["median_ms"] = round(1e3 * float(np.median(steps)), 2)
    print(json.dumps(result) if args.json else f"flower {result['rounds_per_second']} rounds/s")
    for process in fleet:
        process.kill()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    main()
