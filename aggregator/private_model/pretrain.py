"""`auscult pretrain`: a model for an aggregator to pull devices towards, trained on samples that no device is given.

In the directory it writes
    model.pt        the checkpoint: tensors, and which class they are for
    data.npz        x and y, standardised as devices see theirs: what both models are compared on
    private.toml    the [private] table of an aggregator's settings, or the file of `auscult replay --private`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aggregator.kernels import processor
from aggregator.private_model.checkpoint import build_module
from edge_sdk.arguments import Parser
from edge_sdk.data.traces.folder import load_traces
from edge_sdk.data.traces.split import split
from edge_sdk.data.traces.windows import cut_windows
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.settings import parse_assignment
from edge_sdk.replay import datasets
from edge_sdk.replay.datasets.table import hold_out, reserve_rows, standardise
from edge_sdk.replay.planning.bundles import INPUTS
from edge_sdk.replay.planning.toml_files import write_toml


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """What to train, as the command line says it.

    Attributes:
        data: NAME[:PATH] of a data set, or a folder of traces.
        out: a directory.
        rows: how many of the first training samples of a data set are the aggregator's.
        persons: how many of the last traces of a folder are.
        architecture: a model of the zoo, or FILE.py:NAME of one's own. arguments: to build it with.
        input: shape of a sample, where the model wants another than the devices' models usually do.
        weight, regulariser: lambda and what it weighs, for private.toml.
    """

    data: str
    out: Path
    rows: int = 10_000
    persons: int = 2
    architecture: str = "lenet"
    arguments: dict[str, Any] = field(default_factory=dict)
    input: tuple[int, ...] = ()
    epochs: int = 20
    rate: float = 1e-3
    batch: int = 64
    seed: int = 0
    device: str = "auto"
    weight: float = 5.0
    regulariser: str = "crd"

    def __post_init__(self) -> None:
        for key in ("rows", "persons", "epochs", "rate", "batch"):
            if not getattr(self, key) > 0:
                raise UsageError(f"--{key} {getattr(self, key)}: above 0")


def pretrain(job: Pretraining, say: Any) -> dict[str, Any]:
    """Train, and write the three files.

    Returns:
        What `--json` prints.

    Raises:
        UsageError: something named cannot be used.
    """
    mine, test, shape, classes = take_samples(job, say)
    arguments = {**({} if ":" in job.architecture else {"input": list(shape), "classes": classes}), **job.arguments}
    torch.manual_seed(job.seed)
    module = build_module(job.architecture, arguments).to(processor(job.device))
    check_module(module, mine[0][:2], classes, job.architecture)
    fit(module, *mine, job, say)
    accuracy = measure_accuracy(module, *test)
    job.out.mkdir(parents=True, exist_ok=True)
    state = {name: value.cpu() for name, value in module.state_dict().items()}
    found = {"state": state, "architecture": job.architecture, "arguments": arguments, "accuracy": accuracy}
    torch.save(found, job.out / "model.pt")
    np.savez(job.out / "data.npz", x=mine[0].numpy(), y=mine[1].numpy())
    table = {"weight": job.weight, "regulariser": job.regulariser, "model": "model.pt", "data": "data.npz"}
    reserved = job.persons if Path(job.data).is_dir() else job.rows
    write_toml(job.out / "private.toml", {**table, "reserved": reserved})
    parameters = sum(p.numel() for p in module.parameters())
    return {"accuracy": accuracy, "samples": len(mine[0]), "parameters": parameters, "directory": str(job.out)}


Pairs = tuple[Tensor, Tensor]


def take_samples(job: Pretraining, say: Any) -> tuple[Pairs, Pairs, tuple[int, ...], int]:
    """The aggregator's samples, those that it is judged on, their shape, and the number of classes."""
    if Path(job.data).is_dir():
        return take_recorded(job, say)
    table = datasets.load(job.data)
    train, test = hold_out(table, seed=job.seed)
    table = standardise(table, train, datasets.DATASETS[table.name].together)
    mine = reserve_rows(table, job.rows)
    shape = job.input or INPUTS.get(table.name, table.x.shape[1:])
    if np.prod(shape) != np.prod(table.x.shape[1:]):
        raise UsageError(f"--input {shape}: samples of {table.name} have the shape {table.x.shape[1:]}")
    x, y = torch.from_numpy(table.x.reshape(len(table), *shape)), torch.from_numpy(table.y)
    rest = np.setdiff1d(test, mine)
    return (x[mine], y[mine]), (x[rest], y[rest]), tuple(int(d) for d in shape), len(table.classes)


def take_recorded(job: Pretraining, say: Any) -> tuple[Pairs, Pairs, tuple[int, ...], int]:
    """What `take_samples` returns, of a folder of traces: the last persons are the aggregator's, judged on their last
    recordings."""
    read = load_traces(job.data)
    for note in read.notes:
        say(note)
    traces = read.traces
    if job.persons >= len(traces):
        raise UsageError(f"--persons {job.persons}: there are {len(traces)} traces, and some are for devices")
    parts = [split(cut_windows(trace)) for trace in traces[-job.persons :]]
    mine, test = (
        (np.concatenate([part[i].x for part in parts]), np.concatenate([part[i].y for part in parts])) for i in (0, 1)
    )
    tensors = [(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))) for x, y in (mine, test)]
    return tensors[0], tensors[1], tuple(mine[0].shape[1:]), len(traces[0].classes)


def check_module(module: nn.Module, x: Tensor, classes: int, name: str) -> None:
    try:
        with torch.no_grad():
            made = tuple(module.eval()(x.to(next(module.parameters()).device)).shape)
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"{name} does not take samples of shape {tuple(x.shape[1:])}: {error}") from error
    if made != (len(x), classes):
        raise UsageError(f"{name} returns {made} for {len(x)} samples, expected {(len(x), classes)}")


def fit(module: nn.Module, x: Tensor, y: Tensor, job: Pretraining, say: Any) -> None:
    """Adam on the cross entropy, in shuffled batches."""
    optimiser, random = torch.optim.Adam(module.parameters(), lr=job.rate), np.random.default_rng(job.seed)
    module.train()
    for epoch in range(job.epochs):
        total = 0.0
        for rows in torch.split(torch.from_numpy(random.permutation(len(x))), job.batch):
            where = next(module.parameters()).device
            loss = F.cross_entropy(module(x[rows].to(where)), y[rows].to(where))
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            total += loss.item() * len(rows)
        say(f"epoch {epoch + 1:3d}  loss {total / len(x):.4f}")
    module.eval()


@torch.no_grad()
def measure_accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of samples that it gets right."""
    where = next(module.parameters()).device
    found = [module(part.to(where)).argmax(1).cpu() for part in torch.split(x, 500)]
    return float((torch.cat(found) == y).double().mean())


# Command line ---------------------------------------------------------------------------------------------------
def parser() -> argparse.ArgumentParser:
    words = "train an aggregator's private model on samples that no device is given"
    p = Parser(prog="auscult pretrain", description=words)
    p.add_argument("data", help="a data set, NAME[:PATH], or a folder of traces")
    p.add_argument("-o", "--out", type=Path, required=True, help="directory for model.pt, data.npz, private.toml")
    p.add_argument("--rows", type=int, default=10_000, help="its first so many training samples (10000)")
    p.add_argument("--persons", type=int, default=2, help="of a folder of traces, its last so many (2)")
    p.add_argument("--architecture", default="lenet", help="of the zoo, or FILE.py:NAME (lenet)")
    p.add_argument("--argument", action="append", default=[], metavar="KEY=VALUE", help="to build it with")
    p.add_argument("--input", help="shape of a sample for the model, e.g. 784 (default: as in a replay)")
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--rate", type=float, default=1e-3, help="of Adam (0.001)")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="auto", help="auto, cpu or cuda")
    p.add_argument("--weight", type=float, default=5.0, help="lambda, for private.toml (5)")
    p.add_argument("--regulariser", default="crd", help="l2, crd, kd or FILE.py:NAME, for private.toml (crd)")
    p.add_argument("--json", action="store_true", help="print the result as one JSON object")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    options = vars(parser().parse_args(arguments))
    as_json = options.pop("json")
    options["arguments"] = dict(parse_assignment(text) for text in options.pop("argument"))
    options["input"] = parse_shape(options["input"])
    found = pretrain(Pretraining(**options), (lambda text: None) if as_json else print)
    said = f"{found['parameters']} parameters, {100 * found['accuracy']:.1f}% right; files in {found['directory']}"
    print(json.dumps(found) if as_json else said)
    return 0


def parse_shape(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(d) for d in text.split(",")) if text else ()
    except ValueError as error:
        raise UsageError(f"--input {text}: sizes with commas between, e.g. 1,28,28") from error
