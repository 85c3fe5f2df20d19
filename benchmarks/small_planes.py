"""A training step of convolutions on small planes: with Winograd's products, as convolutions, and torch eager.

    python benchmarks/small_planes.py [CHANNELSxSIDExBATCH ...]

Three layers of 3 x 3 taps, each with a group norm and a ReLU behind it, and a linear head; forward and backward, one
thread, processor time, the least of several blocks in which all take turns. Before that, a product of each kind that a
linear layer trains with, (ROWS, IN) by (OUT, IN), in GFLOP/s of onnxruntime, of native products where they are
installed, and of torch, with matrices that are in the caches. Graphs are not checked here: the gate does that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from onnx import TensorProto, helper
from torch import nn

from edge_sdk.model.sessions.native import find_library
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.models.bundle import compile as compiler
from edge_sdk.models.derive import targets
from edge_sdk.models.gate.references.blocks import find_block
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.passes.convolutions import winograd

CASES = ("512x4x32", "256x8x32", "512x4x8", "512x4x1")
PRODUCTS = ((136, 192, 768), (32, 768, 3072), (8, 576, 512), (960, 576, 512))
BLOCKS, SECONDS = 5, 0.05
KINDS = ("y", "first", "gx", "gw")
"""A layer's result, the same with the weights first, and the adjoints of its input and weights."""


def main() -> None:
    torch.set_num_threads(1)
    whose = " | ".join([*libraries(), "torch"])
    print(f"rows, in, out    forward, weights first, input's and weight's adjoint: {whose}, GFLOP/s")
    for sizes in PRODUCTS:
        print(*sizes, "  ", compare_products(*sizes), flush=True)
    print(f"{'channels x side x batch':24} {'products':>9} {'portable':>9} {'blocked':>9} {'torch ms':>9}")
    for case in sys.argv[1:] or CASES:
        took = compare_layers(*map(int, case.split("x")))
        cells = (f"{took[k]:9.2f}" if k in took else f"{'-':>9}" for k in ("products", "portable", "blocked", "torch"))
        print(f"{case:24}", *cells, flush=True)


def take_turns(steps: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds of each step."""
    found: dict[str, list[float]] = {k: [] for k in steps}
    for _ in range(BLOCKS):
        for name, step in steps.items():
            step()
            count, start = 0, time.process_time()
            while (passed := time.process_time() - start) < SECONDS:
                step()
                count += 1
            found[name].append(passed / count * 1e3)
    return {k: min(v) for k, v in found.items()}


def compare_products(rows: int, inputs: int, outputs: int) -> str:
    """GFLOP/s of the four kinds, of each whose products are timed."""
    random = np.random.default_rng(0)
    shapes = {"x": (rows, inputs), "w": (outputs, inputs), "g": (rows, outputs)}
    at = {k: random.standard_normal(v).astype(np.float32) for k, v in shapes.items()}
    there = {k: torch.from_numpy(v) for k, v in at.items()}
    steps: dict[str, Callable[[], object]] = {}
    for kind, (a, b, ta, tb) in {
        "y": ("x", "w", 0, 1),
        "first": ("w", "x", 0, 1),
        "gx": ("g", "w", 0, 0),
        "gw": ("g", "x", 1, 0),
    }.items():
        node = helper.make_node("Gemm", [a, b], ["made"], transA=ta, transB=tb)
        info = [helper.make_tensor_value_info(k, TensorProto.FLOAT, shapes[k]) for k in (a, b)]
        made = helper.make_tensor_value_info("made", TensorProto.FLOAT, None)
        model = helper.make_model(
            helper.make_graph([node], kind, info, [made]), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
        )
        feeds = {a: at[a], b: at[b]}
        for name, library in libraries().items():
            session = OnnxSession(kind, model.SerializeToString(), 1, library=library)
            steps[f"{name} {kind}"] = lambda session=session, feeds=feeds: session.run(feeds)
        left, right = (there[a].T if ta else there[a]), (there[b].T if tb else there[b])
        steps[f"torch {kind}"] = lambda left=left, right=right: left @ right
    took, work = take_turns(steps), 2 * rows * inputs * outputs / 1e6
    rates = {k: f"{work / ms:.0f}" for k, ms in took.items()}
    return " | ".join(" ".join(rates[f"{name} {k}"] for k in KINDS) for name in [*libraries(), "torch"])


def libraries() -> dict[str, str]:
    """Whose products are timed in onnxruntime -> the library that has them; "": its own."""
    native = find_library()
    return {"onnxruntime": ""} | ({"native": native} if native else {})


def compare_layers(channels: int, side: int, batch: int) -> dict[str, float]:
    torch.manual_seed(0)
    body: list[nn.Module] = []
    for _ in range(3):
        body += [nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.GroupNorm(8, channels), nn.ReLU()]
    net = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 4)).eval()
    graphs = {"products": write(net, channels, side, True)[0]}
    graphs |= dict(zip(("portable", "blocked"), write(net, channels, side, False), strict=False))
    x, y = torch.randn(batch, channels, side, side), torch.arange(batch) % 4
    theta = torch.cat([p.detach().reshape(-1) for p in net.parameters()]).numpy()
    feeds = {"theta": theta, "x": x.numpy(), "y": y.numpy(), "weights": np.full(batch, 1 / batch, np.float32)}
    sessions = {k: OnnxSession(k, data, 1) for k, data in graphs.items()}
    steps: dict[str, Callable[[], object]] = {k: lambda s=s: s.run(feeds) for k, s in sessions.items()}

    def step() -> None:
        net.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()

    return take_turns({**steps, "torch": step})


def write(net: nn.Module, channels: int, side: int, products: bool) -> list[bytes]:
    """The portable training graph, and the blocked one where there is such a layout.

    Args:
        products: with Winograd's products wherever they are possible; or without.
    """
    kept = winograd.compare_costs
    winograd.compare_costs = lambda *sizes: 0.0 if products else 1e9
    try:
        spec = Spec("net", (channels, side, side), 4)
        state, examples = compiler.lay_out_state(net, spec), [compiler.make_example(i) for i in spec.list_inputs()]
        source = compiler.write_source(net, spec, state, examples, "off")[1]
        block = find_block()
        both = [source, source.use_blocks(block) if block else None]
        graphs = [targets.write_loss_grad(each, "cross_entropy").model() for each in both if each is not None]
        return [graph.SerializeToString() for graph in graphs]
    finally:
        winograd.compare_costs = kept


if __name__ == "__main__":
    main()
