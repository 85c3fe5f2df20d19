"""A training step with what no parameter reaches computed once for each window, without, and torch eager.

    python benchmarks/front.py [--blocks N]

Of the wrist network, which has no front, and of the network on features with three channels and with six. One process,
one thread, processor time; all steps take turns in blocks, and medians over blocks are printed, with what a device
keeps of a window and what its front takes once. The last column is against the wrist network's step without torch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from statistics import median

import numpy as np
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo import ZOO

NETWORKS = {
    "wrist 3x64": ("wrist", (3, 64)),
    "features 3x64": ("features", (3, 64)),
    "features 6x64": ("features", (6, 64)),
}
BATCHES = (20, 64)
WINDOWS, SECONDS, TARGET = 512, 0.1, 0.1
Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=15)
    blocks = parser.parse_args().blocks
    torch.set_num_threads(1)
    torch.manual_seed(0)
    nets = {name: ZOO[kind].build(input=shape).eval() for name, (kind, shape) in NETWORKS.items()}
    models = {name: make_model(net, NETWORKS[name][1]) for name, net in nets.items()}
    print(f"{'network, batch':18} {'front':>7} {'without':>8} {'torch':>7} ms {'kept':>6} B {'once':>6} ms   / wrist")
    for batch in BATCHES:
        steps: dict[tuple[str, str], Step] = {}
        for name, model in models.items():
            steps |= {(name, k): s for k, s in make_steps(model, nets[name], batch).items()}
        print_rows(batch, take_turns(steps, blocks), models)


def make_model(net: nn.Module, shape: tuple[int, ...]) -> Model:
    return Model(parse(compile_module(net, Spec("network", shape, 14)).data), kernels="portable")


def make_steps(model: Model, net: nn.Module, batch: int) -> dict[str, Step]:
    """Steps of SGD on the same windows: behind the front, from the data, and torch's."""
    random = np.random.default_rng(batch)
    x = random.standard_normal((WINDOWS, *model.input_shape)).astype(np.float32)
    y = random.integers(0, model.classes, WINDOWS)
    order = [random.permutation(WINDOWS)[:batch] for _ in range(64)]
    whole, bound = model.bind(x, keep=False), model.bind(x)
    found = {"without": device_step(model.grad_fn(whole, y), model, order), "torch": torch_step(net, x, y, order)}
    if bound.keeps:
        found["front"] = device_step(model.grad_fn(bound, y), model, order)
        found["once"] = lambda: model.front(x)
    return found


def device_step(gradient: Callable[..., tuple[float, np.ndarray]], model: Model, order: list[np.ndarray]) -> Step:
    theta, turn = model.theta0.copy(), iter(range(1 << 62))

    def step() -> None:
        theta[:] -= np.float32(1e-4) * gradient(theta, order[next(turn) % len(order)])[1]

    return step


def torch_step(net: nn.Module, x: np.ndarray, y: np.ndarray, order: list[np.ndarray]) -> Step:
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-4)
    windows, labels, turn = torch.from_numpy(x), torch.from_numpy(y), iter(range(1 << 62))
    rows = [torch.from_numpy(some) for some in order]

    def step() -> None:
        chosen = rows[next(turn) % len(rows)]
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(windows[chosen]), labels[chosen]).backward()
        optimiser.step()

    return step


def take_turns(steps: Mapping[tuple[str, str], Step], blocks: int) -> dict[tuple[str, str], float]:
    """Milliseconds of each step, the median over blocks."""
    found: dict[tuple[str, str], list[float]] = {k: [] for k in steps}
    for _ in range(blocks):
        for key, step in steps.items():
            step()
            count, start = 0, time.process_time()
            while (passed := time.process_time() - start) < SECONDS:
                step()
                count += 1
            found[key].append(passed / count * 1e3)
    return {key: median(times) for key, times in found.items()}


def print_rows(batch: int, ms: Mapping[tuple[str, str], float], models: Mapping[str, Model]) -> None:
    wrist = ms["wrist 3x64", "without"]
    for name, model in models.items():
        kept, whole = ms.get((name, "front")), ms[name, "without"]
        cells = f"{kept:7.3f}" if kept else f"{'-':>7}"
        once = f"{ms[name, 'once'] / WINDOWS:6.4f}" if kept else f"{'-':>6}"
        ratio = (kept or whole) / wrist
        met = ("met" if ratio <= TARGET else "MISSED") if kept else ""
        print(
            f"{name + f', {batch}':18} {cells} {whole:8.3f} {ms[name, 'torch']:7.3f}    {model.front_bytes:6,}   {once}"
            f"      {ratio:5.3f} {f'(target {TARGET}: {met})' if met else ''}",
            flush=True,
        )


if __name__ == "__main__":
    main()
