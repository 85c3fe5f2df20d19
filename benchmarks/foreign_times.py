"""Times the training step of one bundle beside torch's, batch 8; `foreign.py --times` does it for the whole battery."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foreign_networks import Foreign

BATCH, BLOCKS, BLOCK_SECONDS = 8, 5, 0.15


def compare_with_torch(path: Path, net: Any, entry: Foreign) -> dict[str, Any]:
    """What a device process and torch take for a step, in blocks that alternate; the ratio is that of neighbours."""
    command = [sys.executable, __file__, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as device:
        assert device.stdin and device.stdout
        told, step = json.loads(device.stdout.readline()), make_torch_step(net, entry)
        ours, theirs = [], []
        for _ in range(BLOCKS):
            print(file=device.stdin, flush=True)
            ours.append(float(device.stdout.readline()))
            theirs.append(time_block(step))
        device.stdin.close()
        told |= json.loads(device.stdout.readline())
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return {**told, "ms": statistics.median(ours), "torch_ms": statistics.median(theirs), "ratio": ratio}


def time_block(step: Callable[[], object]) -> float:
    """Milliseconds of a processor for one step, from as many as fill a block."""
    count, started = 0, time.process_time()
    while (passed := time.process_time() - started) < BLOCK_SECONDS or not count:
        step()
        count += 1
    return 1e3 * passed / count


def make_torch_step(net: Any, entry: Foreign) -> Callable[[], object]:
    """Torch's forward and backward pass, in the mode in which the bundle was compiled; run once."""
    import torch

    from edge_sdk.models.frontend.modules.randomness import set_training
    from edge_sdk.models.ir.specification.spec import Spec

    drawn = {
        i.argument: torch.randint(0, i.below, (BATCH, *i.shape)) if i.below else torch.randn(BATCH, *i.shape)
        for i in Spec("net", entry.input, below=entry.spec.get("below")).list_inputs()
    }
    set_training(net, entry.spec.get("norm", "frozen") != "frozen", entry.spec.get("dropout") == "keep")

    kept = [m for m in net.modules() if hasattr(m, "attention_bias_cache")]

    def step() -> object:
        for layer in kept:  # LeViT keeps biases in evaluation, which can be differentiated once only
            layer.attention_bias_cache = {}
        z = net(drawn[""]) if "" in drawn else net(**drawn)
        z = next(iter(z.values())) if isinstance(z, dict) else z
        return torch.autograd.grad(z.square().mean(), list(net.parameters()), allow_unused=True)

    step()
    return step


def serve_device(path: str) -> None:
    """A device process: tells the seconds to load a bundle, a block's ms per step for each line, and its peak MB."""
    import numpy as np

    from edge_sdk.model.model import Model

    started = time.perf_counter()
    model = Model(path)
    print(json.dumps({"load_s": time.perf_counter() - started, "kernels": model.kernels}), flush=True)
    golden = model.bundle.golden()
    given = {k[3:]: np.resize(v, (BATCH, *v.shape[1:])) for k, v in golden.items() if k.startswith("in.")}
    gradient = model.grad_fn({i["name"]: given[i["name"]] for i in model.bundle.manifest["inputs"]}, given["y"])
    gradient(model.theta0)
    for _ in sys.stdin:
        print(time_block(lambda: gradient(model.theta0)), flush=True)
    # not getrusage: that starts from what the parent process had
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"MB": int(peak.split()[1]) / 1024}), flush=True)


if __name__ == "__main__":
    serve_device(sys.argv[1])
