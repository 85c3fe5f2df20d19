"""The other side of pfllib.py: runs PFLlib's own clients and servers. In an environment that has what PFLlib imports.

    python benchmarks/pfllib_peer.py CHECKOUT WORK

WORK has job.json (network, sizes, settings of each method) and arrays.npz (each device's samples, the first model);
result.npz is written beside them: for every method the global model after the last round, and the models that the
devices begin the next round with, each as one vector in the order of the module's parameters.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch

from edge_sdk.models.zoo.wearable import Wrist

torch.set_num_threads(1)

SERVERS = {
    "fedavg": ("serveravg", "FedAvg"),
    "fedprox": ("serverprox", "FedProx"),
    "ditto": ("serverditto", "Ditto"),
    "scaffold": ("serverscaffold", "SCAFFOLD"),
    "feddyn": ("serverdyn", "FedDyn"),
    "fedper": ("serverper", "FedPer"),
    "fedrep": ("serverrep", "FedRep"),
    "fedbabu": ("serverbabu", "FedBABU"),
    "apfl": ("serverapfl", "APFL"),
    "fedala": ("serverala", "FedALA"),
}
"""Our name of a method -> module and class of PFLlib's server."""

DEFAULTS: dict[str, Any] = {
    "algorithm": "race",
    "dataset": "race",
    "device": "cpu",
    "save_folder_name": "items",
    "learning_rate_decay": False,
    "learning_rate_decay_gamma": 1.0,
    "few_shot": 0,
    "join_ratio": 1.0,
    "random_join_ratio": False,
    "time_select": False,
    "goal": "race",
    "time_threthold": 1e9,
    "top_cnt": 100,
    "auto_break": False,
    "eval_gap": 1,
    "client_drop_rate": 0.0,
    "train_slow_rate": 0.0,
    "send_slow_rate": 0.0,
    "dlg_eval": False,
    "dlg_gap": 1,
    "batch_num_per_client": 1,
    "num_new_clients": 0,
    "fine_tuning_epoch_new": 0,
}
"""Arguments of PFLlib's main.py that are the same for all: everybody takes part, nobody is slow, nothing decays."""


def give_samples(arrays: Any) -> None:
    """Lets PFLlib read each device's samples from `arrays`, where it would read files that are pickled."""
    reading = importlib.import_module("utils.data_utils")
    reading.read_data = lambda dataset, idx, is_train=True: {"x": arrays[f"x{idx}"], "y": arrays[f"y{idx}"]}


def model(job: dict[str, Any], theta: Any) -> torch.nn.Module:
    """The network with this first model, in the two parts that PFLlib's personalised methods need."""
    split = importlib.import_module("flcore.trainmodel.models").BaseHeadSplit
    whole = Wrist(tuple(job["input"]), job["classes"])
    made: torch.nn.Module = split(torch.nn.Sequential(whole.body, whole.head[:2]), whole.head[2])
    torch.nn.utils.vector_to_parameters(torch.from_numpy(theta), made.parameters())
    return made


def vector(module: torch.nn.Module) -> Any:
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()


def play(server: Any, rounds: int) -> None:
    """The loop of PFLlib's `train`, without its evaluations."""
    for _ in range(rounds):
        server.selected_clients = server.select_clients()
        server.send_models()
        for client in server.selected_clients:
            if hasattr(client, "ptrain"):
                client.ptrain()
            client.train()
        server.receive_models()
        if hasattr(server, "update_server_state"):
            server.update_server_state()
        server.aggregate_parameters()


def main() -> None:
    checkout, work = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    sys.path.insert(0, str(checkout / "system"))
    job, arrays = json.loads((work / "job.json").read_text()), np.load(work / "arrays.npz")
    give_samples(arrays)
    os.chdir(work)
    found: dict[str, Any] = {}
    for name, arguments in job["methods"].items():
        module, kind = SERVERS[name]
        settings = {**DEFAULTS, **job["common"], **arguments, "model": model(job, arrays["theta0"])}
        server = getattr(importlib.import_module(f"flcore.servers.{module}"), kind)(Namespace(**settings), 0)
        began = time.perf_counter()
        play(server, job["rounds"])
        found[f"{name}/seconds"] = time.perf_counter() - began
        found[f"{name}/global"] = vector(server.global_model)
        if name != "fedala":  # there, to send is to learn
            server.send_models()
        found[f"{name}/devices"] = np.stack([vector(getattr(c, "model_per", c.model)) for c in server.clients])
    np.savez(work / "result.npz", **found)


if __name__ == "__main__":
    main()
