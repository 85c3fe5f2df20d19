"""A federated regression by Flower and torch, for flower_task.py: it runs in an environment of its own, which has both.

    .flower/bin/python benchmarks/flower_task_peer.py FLEET.npz RESULT.npz --rounds 100 --rate 0.1 --steps 5

FLEET.npz has of each device NAME/x (N, 156) and NAME/y (N,), scaled, and the parameters of the first model as w0, w1
and so on. Each round every client takes so many steps of SGD on all its samples and the server means what they send,
weighted by their samples. RESULT.npz has the parameters after the last round.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import multiprocessing as mp
import os
import socket
import threading
import time
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np
import torch
from torch import nn

FEATURES = 156


def make_network() -> nn.Module:
    """Powers of a spectrum -> a heart rate, scaled."""
    layers = (nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    return nn.Sequential(*layers)


def train(arrays: list[Any], x: Any, y: Any, rate: float, steps: int) -> list[Any]:
    """Parameters after so many steps of SGD on all samples."""
    network = make_network()
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), arrays, strict=True):
            parameter.copy_(torch.from_numpy(value))
    optimiser = torch.optim.SGD(network.parameters(), lr=rate)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.mse_loss(network(x)[:, 0], y).backward()
        optimiser.step()
    return [parameter.detach().numpy() for parameter in network.parameters()]


def serve_client(address: str, x: Any, y: Any, rate: float, steps: int) -> None:
    """A client of Flower in a process of its own."""
    flwr = importlib.import_module("flwr")
    torch.set_num_threads(1)
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)

    class Client(flwr.client.NumPyClient):  # type: ignore[misc, name-defined]
        def fit(self, parameters: list[Any], config: Any) -> tuple[list[Any], int, dict[str, Any]]:
            return train(parameters, inputs, targets, rate, steps), len(targets), {}

    flwr.client.start_client(server_address=address, client=Client().to_client())


def start_behind(address: str, clients: list[Any]) -> None:
    """Start clients as soon as the server can be reached: one that comes too early gives up."""
    host, _, port = address.partition(":")
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
            break
        time.sleep(0.1)
    for client in clients:
        client.start()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("fleet")
    parser.add_argument("result")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    asked = parser.parse_args()
    flwr = importlib.import_module("flwr")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    found = np.load(asked.fleet)
    names = sorted(key.partition("/")[0] for key in found.files if key.endswith("/x"))
    first = [found[f"w{i}"] for i in range(sum(key.startswith("w") and "/" not in key for key in found.files))]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    class Kept(flwr.server.strategy.FedAvg):  # type: ignore[misc, name-defined]
        """The mean of the last round."""

        last: Any = None

        def aggregate_fit(self, *told: Any) -> Any:
            self.last, metrics = super().aggregate_fit(*told)
            return self.last, metrics

    data = [(found[f"{name}/x"], found[f"{name}/y"]) for name in names]
    clients = [mp.Process(target=serve_client, args=(address, *each, asked.rate, asked.steps)) for each in data]
    threading.Thread(target=start_behind, args=(address, clients), daemon=True).start()
    strategy = Kept(
        fraction_evaluate=0.0,
        min_fit_clients=len(names),
        min_available_clients=len(names),
        min_evaluate_clients=0,
        initial_parameters=flwr.common.ndarrays_to_parameters(first),
    )
    config = flwr.server.ServerConfig(num_rounds=asked.rounds)
    flwr.server.start_server(server_address=address, config=config, strategy=strategy)
    for client in clients:
        client.kill()
    last = flwr.common.parameters_to_ndarrays(strategy.last)
    np.savez(asked.result, **{f"w{i}": value for i, value in enumerate(last)})


if __name__ == "__main__":
    mp.set_start_method("spawn")
    main()
