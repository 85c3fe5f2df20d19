"""The race of simulate.py in Flower's simulation (Ray). Runs in an environment of its own, which has flwr[simulation]:

python benchmarks/simulate_flower.py [--clients 1000] [--cohort 50] [--rounds 40] [--ranks 2]
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import time

import simulate_data
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

logging.getLogger("flwr").setLevel(logging.CRITICAL)
WARM = 2
POOL: list = []  # in each of Ray's processes, made at its first client
client_app, server_app = ClientApp(), ServerApp()


class Timed(FedAvg):
    """The mean, and when it was made."""

    times: list[float] = []  # noqa: RUF012

    def aggregate_train(self, *args, **named):  # type: ignore[no-untyped-def]
        found = super().aggregate_train(*args, **named)
        self.times.append(time.perf_counter())
        return found


@client_app.train()
def train(message: Message, context: Context) -> Message:
    work = importlib.import_module(simulate_data.WORKS[str(message.content["config"]["model"])])
    if not POOL:
        POOL.extend(work.pool())
    client = int(context.node_config["partition-id"])
    rows, seed = work.rows_of(client), int(message.content["config"]["server-round"])
    found = work.train(message.content["arrays"].to_numpy_ndarrays(), POOL[0][rows], POOL[1][rows], seed)
    metrics = MetricRecord({"num-examples": work.SAMPLES})
    return Message(RecordDict({"arrays": ArrayRecord(found), "metrics": metrics}), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    share = ARGS.cohort / ARGS.clients
    strategy = Timed(fraction_train=share, fraction_evaluate=0.0, min_available_nodes=ARGS.clients)
    first = importlib.import_module(simulate_data.WORKS[ARGS.model]).initial()
    config = ConfigRecord({"model": ARGS.model})
    strategy.start(grid, ArrayRecord(first), num_rounds=ARGS.rounds, train_config=config)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", choices=simulate_data.WORKS, default="mlp")
    ARGS = parser.parse_args()
    backend = {"init_args": {"num_cpus": ARGS.ranks}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, num_supernodes=ARGS.clients, backend_config=backend)
    rounds = len(Timed.times) - WARM
    print(json.dumps({"rate": ARGS.cohort * rounds / (Timed.times[-1] - Timed.times[WARM - 1])}), flush=True)
