"""The race of simulate.py in pfl-research. Runs in an environment of its own, which has pfl[pytorch], under torchrun:

python -m torch.distributed.run --standalone --nproc-per-node 2 benchmarks/simulate_pfl.py [--clients 1000] ...
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time

import simulate_data
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import nn

WARM = 2


class RaceNet(nn.Module):
    def __init__(self, work) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        mlp = nn.Linear(561, 64), nn.ReLU(), nn.Linear(64, 6)
        self.layers = work.network() if hasattr(work, "network") else nn.Sequential(*mlp)
        with torch.no_grad():
            for parameter, value in zip(self.parameters(), work.initial(), strict=True):
                parameter.copy_(torch.from_numpy(value))

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.layers(x)

    def loss(self, x, y, eval=False):  # type: ignore[no-untyped-def]
        return nn.functional.cross_entropy(self(x), y)

    def metrics(self, x, y, eval=False):  # type: ignore[no-untyped-def]
        return {}


class Clock(TrainingProcessCallback):
    """When each round was over."""

    times: list[float] = []  # noqa: RUF012

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # type: ignore[no-untyped-def]
        self.times.append(time.perf_counter())
        return False, type(aggregate_metrics)() if aggregate_metrics is not None else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--model", choices=simulate_data.WORKS, default="mlp")
    args = parser.parse_args()
    work = importlib.import_module(simulate_data.WORKS[args.model])
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(part) for part in work.pool())
    held = {c: torch.from_numpy(work.rows_of(c)) for c in range(args.clients)}

    def samples(client):  # type: ignore[no-untyped-def]
        return PyTorchTensorDataset((x[held[client]], y[held[client]]))

    users = FederatedDataset(samples, get_user_sampler("random", list(held)))
    module = RaceNet(work)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(args.rounds, 10**9, args.cohort, None),
        SimulatedBackend(users, users),
        model,
        NNTrainHyperParams(
            local_batch_size=work.BATCH, local_num_epochs=1, local_learning_rate=work.STEP, local_max_grad_norm=None
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Clock()],
        send_metrics_to_platform=False,
    )
    rounds = len(Clock.times) - WARM
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps({"rate": args.cohort * rounds / (Clock.times[-1] - Clock.times[WARM - 1])}), flush=True)
    if torch.distributed.is_initialized():  # a process that ends without it is aborted now and then
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
