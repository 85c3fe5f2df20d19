"""Times the training step of networks against torch eager: portable, blocked and native graphs, and means.

    python benchmarks/speed.py [NAME ...] [--zoo | --foreign] [--json FILE] [--image 64] [--blocks 7] [--products WHOSE]

The networks are those of the zoo (batch 32, as "zoo NAME"), those of benchmarks/foreign_networks.py (batch 8, with
random weights, in the environment of `make bench-compile`), and DeepConvLSTM. Only time is compared: graphs are written
as for a bundle, but not checked; `auscult bundle compile` and benchmarks/foreign.py compare values.

A step is the gradient and one step of gradient descent. Each kind runs in a process of its own on one thread, and all
take turns in short blocks. Time is processor time, which other work on the machine disturbs less than the clock on the
wall; a ratio is the median of the ratios of neighbouring blocks. Torch is as installed, and in the mode in which the
graph is compiled: batch normalisation with its running statistics, except for "--norm batch".

Native: the native form of the blocked graph, or of the portable one where there is none, with the products that a
device takes, where auscult-native is installed in this environment. A network without a native form has the library's
products alone, if it is large enough that a device takes them by itself.

What is to be met is a ratio of at most 1.0 for the fastest of these, 1.3 for portable graphs, and a geometric mean of
0.65 for the fastest.

With --json, rows that are there are not measured again. At the end: which networks miss which target.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from step import Worker

from edge_sdk.model.forms import native_part
from edge_sdk.model.sessions.kernels import takes_products
from edge_sdk.model.sessions.native import find_library

ZOO_BATCH, FOREIGN_BATCH = 32, 8
MOST = {"portable": 1.3, "blocked": 1.0, "native": 1.0}
MEAN = 0.65

DEVICE = """
import numpy as np
from pathlib import Path
import json
from edge_sdk.algebra.optim import SGD
from edge_sdk.algebra.vectors import Layout, Slot
from edge_sdk.model.forms import native_part
from edge_sdk.model.sessions.kernels import KernelChoice, takes_products
from edge_sdk.model.sessions.native import find_library
from edge_sdk.model.sessions.form_session import open_session
from edge_sdk.model.theta_tensors import read_tensors
folder, kind, most = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
given = dict(np.load(folder / "feeds.npz"))
library = find_library() if kind == "native" else ""
form = kind
if kind == "native":
    kind = "blocked" if (folder / "blocked.onnx").exists() else "portable"
    form = native_part(kind).removesuffix(".onnx") if (folder / native_part(kind)).exists() else kind
graph, listed = (folder / f"{form}.onnx").read_bytes(), folder / f"{kind}.json"
if listed.exists():
    entry, slots = json.loads(listed.read_text())
    tensors = read_tensors(kind, entry, Layout(tuple(Slot(name, tuple(shape), at) for name, shape, at in slots)))
else:
    tensors = None
products = {"auto": takes_products(len(given["theta"])), "library": True, "onnxruntime": False}[sys.argv[4]]
choice = KernelChoice(library, products=products)
session = open_session(kind, graph, 1, choice, tensors, False)
def step_for(batch):
    theta, whole, optimiser = given["theta"], ("theta", "buffers"), SGD(1e-4)
    starts = range(0, batch, most)
    parts = [{k: given[k] if k in whole else given[k][s : s + most] for k in session.inputs} for s in starts]
    def step():
        grad = session.run(parts[0])[1]
        for part in parts[1:]:
            grad = grad + session.run(part)[1]
        optimiser.step(theta, grad)
    return step
serve(step_for)
"""

TORCH = """
sys.path.insert(0, "benchmarks")
import numpy as np, torch
torch.set_num_threads(1)
import speed
found = speed.find_network(sys.argv[2], int(sys.argv[3]))
net = speed.set_mode(found)
optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1e-4)
given = {k: torch.from_numpy(v) for k, v in np.load(sys.argv[1] + "/feeds.npz").items()}
inputs = {i.argument: given[i.name] for i in found.spec.list_inputs()}
y, loss = given["y"], {"cross_entropy": torch.nn.functional.cross_entropy}.get(found.spec.loss, torch.nn.functional.mse_loss)
kept = [m for m in net.modules() if hasattr(m, "attention_bias_cache")]
def step_for(batch):
    def step():
        for layer in kept:  # LeViT keeps biases in evaluation, which can be differentiated once only
            layer.attention_bias_cache = {}
        optimizer.zero_grad()
        z = net(inputs[""]) if "" in inputs else net(**inputs)
        loss(next(iter(z.values())) if isinstance(z, dict) else z, y).backward()
        optimizer.step()
    return step
serve(step_for)
"""  # noqa: E501


class Network:
    """A torch module, its settings for the compiler, and the batch that it is measured at."""

    def __init__(self, net: Any, spec: Any, batch: int) -> None:
        self.net, self.spec, self.batch = net.eval(), spec, batch


def list_names(zoo: bool, foreign: bool) -> list[str]:
    """All names, or those of one kind."""
    from foreign_networks import NETWORKS

    from edge_sdk.models.zoo import ZOO

    own = [f"zoo {name}" for name in ZOO]
    return (own if zoo or not foreign else []) + (["DeepConvLSTM", *NETWORKS] if foreign or not zoo else [])


def find_network(name: str, image: int = 64, batch: int = FOREIGN_BATCH) -> Network:
    """The network of a name, with random weights."""
    import torch

    from edge_sdk.models.ir.specification.spec import Spec
    from edge_sdk.models.zoo import ZOO

    torch.manual_seed(7)
    if name.startswith("zoo "):
        entry = ZOO[name[4:]]
        spec = Spec("net", entry.input, entry.classes, norm=entry.norm, max_batch=entry.max_batch)
        return Network(entry.build(), spec, ZOO_BATCH)
    if name == "DeepConvLSTM":
        return Network(build_deep_conv_lstm(), Spec("net", (9, 128), 6), batch)
    import foreign

    foreign.prepare_libraries()
    entry = foreign.resize(foreign.NETWORKS[name], image)
    return Network(foreign.build(entry), Spec("net", entry.input, **{"dropout": "off", **entry.spec}), batch)


def build_deep_conv_lstm() -> Any:
    """DeepConvLSTM (Ordonez and Roggen 2016): four convolutions along the time of each channel, two LSTMs of 128."""
    import torch
    from torch import nn

    class DeepConvLSTM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convolutions = (nn.Conv2d(64 if i else 1, 64, (5, 1)) for i in range(4))
            self.body = nn.Sequential(*(layer for conv in convolutions for layer in (conv, nn.ReLU())))
            self.lstm, self.head = nn.LSTM(64 * 9, 128, 2, batch_first=True), nn.Linear(128, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.body(x.transpose(1, 2).unsqueeze(1))
            return self.head(self.lstm(h.permute(0, 2, 1, 3).flatten(2))[0][:, -1])

    return DeepConvLSTM()


def set_mode(found: Network) -> Any:
    """The module in the mode in which it is compiled: batch normalisations train only with statistics of the batch."""
    from torch import nn

    for layer in found.net.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.train(found.spec.norm != "frozen")
    return found.net


def write_graphs(found: Network, folder: Path) -> tuple[list[str], int]:
    """Write the training graphs and what they are given; the kinds of graphs, and the samples of a step."""
    from edge_sdk.models.bundle import compile as compiler
    from edge_sdk.models.derive import targets
    from edge_sdk.models.frontend.modules.statistics import settle_statistics
    from edge_sdk.models.gate.references.blocks import find_block
    from edge_sdk.models.passes.scheduling import steps

    net = settle_statistics(found.net, found.spec.norm)
    state = compiler.lay_out_state(net, found.spec)
    examples = [compiler.make_example(i) for i in found.spec.list_inputs()]
    _, source = compiler.write_source(net, found.spec, state, examples, "off")
    spec = compiler.set_max_batch(compiler.set_classes(found.spec, source.output_shape), source)
    source.samples = spec.max_batch or steps.MOST
    kinds = {"portable": source, "blocked": source.use_blocks(block) if (block := find_block()) else None}
    for kind, each in kinds.items():
        if each is not None:
            write_graph(folder / kind, targets.write_loss_grad(each, spec.loss), state.slots)
    fixed = compiler.read_vectors(net, state.slots, state.buffers)
    outputs = tuple(d for d in source.output_shape[1:])
    feeds = draw_batch(spec, found.batch, outputs) | {k: v.astype(np.float32) for k, v in fixed.items()}
    np.savez(folder / "feeds.npz", **feeds)
    return [k for k, each in kinds.items() if each is not None], min(spec.max_batch, found.batch)


def write_graph(path: Path, target: Any, slots: Sequence[Any]) -> None:
    """Write a graph in the forms in which devices run it; of one with the tensors of theta, also where these lie."""
    from edge_sdk.models.bundle.pack import describe_tensors
    from edge_sdk.models.derive.native import native_form
    from edge_sdk.models.derive.tensors import is_worth_it, separate_tensors

    graph = separate_tensors(target, slots) if is_worth_it(slots) else None
    taken = graph.target if graph else target
    path.with_suffix(".onnx").write_bytes(taken.model().SerializeToString())
    if (native := native_form(taken)) is not None:
        path.with_name(native_part(path.name)).write_bytes(native.model().SerializeToString())
    if graph:
        told = describe_tensors(graph), [(slot.name, slot.shape, slot.offset) for slot in slots]
        path.with_suffix(".json").write_text(json.dumps(told))


def draw_batch(spec: Any, batch: int, outputs: Sequence[int]) -> dict[str, np.ndarray]:
    """Inputs, labels and weights of one batch."""
    rng, made = np.random.default_rng(0), {}
    for i in spec.list_inputs():
        shape = (batch, *i.shape)
        made[i.name] = rng.integers(0, i.below, shape) if i.below else rng.standard_normal(shape).astype(np.float32)
    labelled = spec.loss == "cross_entropy"
    made["y"] = rng.integers(0, outputs[0], (batch, *outputs[1:])) if labelled else np.zeros((batch, *outputs))
    made["y"] = made["y"] if labelled else made["y"].astype(np.float32)
    return made | {"weights": np.full(batch, 1 / batch, np.float32)}


def measure(name: str, image: int, blocks: int, products: str) -> dict[str, Any]:
    """Milliseconds per step of each kind, and ratios to torch; `products`: as of `parse_options`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", __file__, "--write", folder, "--image", str(image), name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["no word"])[-1]}
        kinds, most, batch = json.loads(done.stdout.splitlines()[-1])
        parameters = len(np.load(Path(folder) / "feeds.npz")["theta"])
        worth_it = (Path(folder) / native_part(kinds[-1])).exists() or takes_products(parameters)
        kinds += ["native"] * (bool(find_library()) and worth_it)
        workers = {k: Worker(DEVICE, folder, k, str(most), products) for k in kinds}
        workers["torch"] = Worker(TORCH, folder, name, str(image))
        times: dict[str, list[float]] = {k: [] for k in workers}
        try:
            for _ in range(blocks):
                for kind, worker in workers.items():
                    times[kind].append(worker.ask(batch))
        except ValueError:  # an empty line: why the process ended is in what it printed
            return {"error": f"the process of {kind} ended"}
        finally:
            for worker in workers.values():
                worker.close()
    ratios = {k: median(a / b for a, b in zip(times[k], times["torch"], strict=True)) for k in kinds}
    return {"batch": batch, "step": most, "ms": {k: median(v) for k, v in times.items()}, "ratio": ratios}


def write_row(name: str, r: Mapping[str, Any]) -> str:
    """One line of the table."""
    if "error" in r:
        return f"{name:<28} {r['error'][:160]}"
    ms = " ".join(f"{r['ms'][k]:>9.2f}" if k in r["ms"] else f"{'-':>9}" for k in (*MOST, "torch"))
    ratio = " ".join(f"{r['ratio'][k]:>9.2f}" if k in r["ratio"] else f"{'-':>9}" for k in MOST)
    return f"{name:<28} {r['batch']:>5} {r['step']:>4} {ms} {ratio}"


def sum_up(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The geometric means, and the networks that miss a target; without blocked graphs the portable ones count."""
    good, lines = {k: r for k, r in rows.items() if "error" not in r}, []
    best = {k: list(r["ratio"].values())[-1] for k, r in good.items()}
    for what, names in (
        ("zoo", [k for k in good if k.startswith("zoo ")]),
        ("foreign", [k for k in good if not k.startswith("zoo ")]),
        ("all", list(good)),
    ):
        if names:
            means = [exp(sum(log(v[k]) for k in names) / len(names)) for v in (
                {k: r["ratio"]["portable"] for k, r in good.items()}, best)]  # fmt: skip
            met = "met" if means[1] <= MEAN else "missed"
            lines.append(f"{what}: geometric mean of {len(names)}: portable {means[0]:.2f}, the last {means[1]:.2f} "
                         f"(target {MEAN}: {met})")  # fmt: skip
    over = {
        "portable": {k: r["ratio"]["portable"] for k, r in good.items() if r["ratio"]["portable"] > MOST["portable"]},
        "blocked": {
            k: r["ratio"]["blocked"] for k, r in good.items() if r["ratio"].get("blocked", 0) > MOST["blocked"]
        },
        "native": {k: r["ratio"]["native"] for k, r in good.items() if r["ratio"].get("native", 0) > MOST["native"]},
    }
    for kind, missed in over.items():
        named = ", ".join(f"{k} {v:.2f}" for k, v in sorted(missed.items(), key=lambda kv: -kv[1]))
        lines.append(f"{kind}, above {MOST[kind]}: {named or 'none'}")
    return "\n".join(lines)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="networks (default: all)")
    parser.add_argument("--zoo", action="store_true", help="only those of the zoo")
    parser.add_argument("--foreign", action="store_true", help="only those that nobody here wrote")
    parser.add_argument("--json", type=Path, help="file of results, one a line: read for what is done, and added to")
    parser.add_argument("--image", type=int, default=64, help="side of images for torchvision (default: 64)")
    parser.add_argument("--blocks", type=int, default=7, help="blocks of each kind (default: 7)")
    parser.add_argument(
        "--products", choices=("auto", "library", "onnxruntime"), default="auto",
        help="whose products native graphs have (default: auto, as devices choose)",
    )  # fmt: skip
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    args = parse_options()
    if args.write:
        found = find_network(args.names[0], args.image)
        kinds, most = write_graphs(found, args.write)
        print(json.dumps([kinds, most, found.batch]))
        return 0
    lines = args.json.read_text().splitlines() if args.json and args.json.exists() else []
    done = {r["name"]: r for r in map(json.loads, lines)}
    heads = " ".join(f"{kind:>9}" for kind in (*MOST, "torch ms", *MOST))
    print(f"{'network':<28} {'batch':>5} {'step':>4} {heads}", flush=True)
    rows = {}
    for name in args.names or list_names(args.zoo, args.foreign):
        rows[name] = done.get(name) or measure(name, args.image, args.blocks, args.products)
        if args.json and name not in done:
            with args.json.open("a") as file:
                file.write(json.dumps({"name": name, **rows[name]}) + "\n")
        print(write_row(name, rows[name]), flush=True)
    print(sum_up(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
