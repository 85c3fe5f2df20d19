"""Compiles networks that nobody here wrote: torchvision, timm, braindecode, transformers and MONAI, random weights.

    python benchmarks/foreign.py [NAME ...] [--json FILE] [--limit SECONDS] [--untimed] [--image 32]

Each runs in a process of its own. What is told of it: parameters, seconds to compile and to load, kB of the bundle, the
worst float64 error against autograd, and without --untimed ms of a training step at batch 8 on one thread beside
torch's, and the peak memory of a device process; or, in one sentence, why it does not compile. Nothing is downloaded.
The libraries are none of auscult's own: `make bench-compile` puts them into an environment of their own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
import types
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

BATCH, STEPS = 8, 9
IMAGE, EEG = (3, 64, 64), (22, 1000)
SIGNALS = {"n_chans": 22, "n_outputs": 4, "n_times": 1000, "sfreq": 250}
SLEEP = {"n_chans": 2, "n_outputs": 5, "n_times": 3000, "sfreq": 100}


@dataclass(frozen=True)
class Foreign:
    """One network of the battery.

    Attributes:
        make: module.function that builds it. given: its arguments.
        input: shape of one sample; of several inputs, argument -> shape.
        spec: settings of the compilation beside dropout = "off".
    """

    make: str
    input: tuple[int, ...] | dict[str, tuple[int, ...]] = IMAGE
    given: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)


def vision(name: str, **given: Any) -> Foreign:
    return Foreign(f"torchvision.models.{name}", IMAGE, {"num_classes": 10, **given})


def timm(name: str, size: int = 64, **given: Any) -> Foreign:
    return Foreign("timm.create_model", (3, size, size), {"model_name": name, "num_classes": 10, **given})


def eeg(name: str, **given: Any) -> Foreign:
    return Foreign(f"braindecode.models.{name}", EEG, SIGNALS | given)


def sleep(name: str, **given: Any) -> Foreign:
    return Foreign(f"braindecode.models.{name}", (2, 3000), SLEEP | given)


NETWORKS: dict[str, Foreign] = {
    "resnet18": vision("resnet18"),
    "resnet18 --norm batch": Foreign("torchvision.models.resnet18", IMAGE, {"num_classes": 10}, {"norm": "batch"}),
    "mobilenet_v2": vision("mobilenet_v2"),
    "mobilenet_v2 --norm batch": Foreign(
        "torchvision.models.mobilenet_v2", IMAGE, {"num_classes": 10}, {"norm": "batch"}
    ),
    "mobilenet_v2 --dropout keep": Foreign(
        "torchvision.models.mobilenet_v2", IMAGE, {"num_classes": 10}, {"dropout": "keep"}
    ),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "shufflenet_v2": vision("shufflenet_v2_x0_5"),
    "shufflenet_v2 --norm batch": Foreign(
        "torchvision.models.shufflenet_v2_x0_5", IMAGE, {"num_classes": 10}, {"norm": "batch"}
    ),
    "mnasnet": vision("mnasnet0_5"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "squeezenet": vision("squeezenet1_1"),
    "googlenet": vision("googlenet", aux_logits=False, init_weights=False),
    "regnet_x_400mf": vision("regnet_x_400mf"),
    "convnext_atto": timm("convnext_atto"),
    "densenet121": vision("densenet121"),
    "vit_tiny": timm("vit_tiny_patch16_224", img_size=64),
    "deit_tiny": timm("deit_tiny_distilled_patch16_224", img_size=64),
    "swin_tiny": timm("swin_tiny_patch4_window7_224", img_size=56, size=56, window_size=7, depths=(1, 1, 1, 1)),
    "mixer": timm("mixer_s32_224", img_size=64),
    "resmlp": timm("resmlp_12_224", img_size=64),
    "mobilenetv4": timm("mobilenetv4_conv_small"),
    "ghostnet": timm("ghostnet_050"),
    "repvgg_a0": timm("repvgg_a0"),
    "edgenext": timm("edgenext_xx_small"),
    "poolformer_s12": timm("poolformer_s12"),
    "levit_128s": timm("levit_128s", 224),
    "EEGNet": eeg("EEGNet"),
    "EEGNet --dropout keep": Foreign("braindecode.models.EEGNet", EEG, SIGNALS, {"dropout": "keep"}),
    "ShallowFBCSPNet": eeg("ShallowFBCSPNet"),
    "Deep4Net": eeg("Deep4Net"),
    "EEGConformer": eeg("EEGConformer"),
    "ATCNet": eeg("ATCNet"),
    "EEGInceptionERP": eeg("EEGInceptionERP"),
    "EEGITNet": eeg("EEGITNet"),
    "EEGTCNet": eeg("EEGTCNet"),
    "EEGNeX": eeg("EEGNeX"),
    "TIDNet": eeg("TIDNet"),
    "CTNet": eeg("CTNet"),
    "BIOT": eeg("BIOT"),
    "USleep": Foreign("braindecode.models.USleep", (2, 3000), SLEEP),
    "Chambon2018": sleep("SleepStagerChambon2018"),
    "Blanco2020": sleep("SleepStagerBlanco2020"),
    "DeepSleepNet": sleep("DeepSleepNet"),
    "AttnSleep": Foreign("braindecode.models.AttnSleep", (1, 3000), SLEEP | {"n_chans": 1}),
    "bert_tiny": Foreign("foreign.bert", (16,), {}, {"below": 100}),
    "bert_tiny, three inputs": Foreign(
        "foreign.bert",
        {"input_ids": (16,), "attention_mask": (16,), "token_type_ids": (16,)},
        {},
        {"below": {"input_ids": 100, "attention_mask": 2, "token_type_ids": 2}},
    ),
    "unet1d": Foreign(
        "monai.networks.nets.BasicUNet",
        (1, 64, 64),
        {"spatial_dims": 2, "out_channels": 2, "features": (8, 8, 16, 16, 32, 8)},
        {"loss": "mean_squared_error"},
    ),
    "segresnet": Foreign(
        "monai.networks.nets.SegResNet", (1, 32, 32), {"spatial_dims": 2}, {"loss": "mean_squared_error"}
    ),
}


def bert() -> Any:
    """A small BERT that classifies 16 word pieces of a vocabulary of 100."""
    made = importlib.import_module("transformers")
    config = made.BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=3,
    )
    return made.BertForSequenceClassification(config)


STAND_INS = ("torchvision._meta_registrations", "torchaudio", "torchaudio.functional", "torchaudio.transforms")


def prepare_libraries() -> None:
    """Let torchvision and braindecode load where compiled operators do not fit the torch that is installed.

    No network here uses them, and where all come from one place they fit anyhow.
    """
    for library in ("torchvision", "torchaudio"):
        tried = subprocess.run([sys.executable, "-c", f"import {library}"], capture_output=True)
        for name in STAND_INS if tried.returncode else ():
            parent, _, part = name.rpartition(".")
            if name.split(".")[0] == library:
                sys.modules[name] = StandIn(name)
                sys.modules[name].__spec__ = importlib.util.spec_from_loader(name, None)
            if parent in sys.modules:
                setattr(sys.modules[parent], part, sys.modules[name])


class StandIn(types.ModuleType):
    """A module that cannot be loaded: whatever is asked of it is an empty class."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def build(name: str) -> Any:
    """The network, with random weights."""
    import torch

    entry = NETWORKS[name]
    path, _, function = entry.make.rpartition(".")
    home = sys.modules[__name__] if path == "foreign" else importlib.import_module(path)
    torch.manual_seed(7)
    return getattr(home, function)(**entry.given).eval()


def measure(name: str, timed: bool) -> dict[str, Any]:
    """Compile one network here, and what was measured."""
    import torch

    prepare_libraries()
    torch.set_num_threads(1)
    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.spec import Spec

    entry, net = NETWORKS[name], build(name)
    started = time.perf_counter()
    made = compile_module(net, Spec("net", entry.input, **{"dropout": "off", **entry.spec}))
    found = {"parameters": made.parameters, "compile_s": time.perf_counter() - started, "kB": len(made.data) / 1000}
    found["float64"] = made.errors["float64"]
    if not timed:
        return found
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.bundle"
        made.save(path)
        command = [sys.executable, __file__, "--device", str(path)]
        device = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {**found, **device, "torch_ms": time_torch(net, entry)}


def time_torch(net: Any, entry: Foreign) -> float:
    """Milliseconds of torch's forward and backward pass, in the mode in which the bundle was compiled."""
    import torch

    from edge_sdk.models.ir.spec import Spec

    drawn = {
        i.argument: torch.randint(0, i.below, (BATCH, *i.shape)) if i.below else torch.randn(BATCH, *i.shape)
        for i in Spec("net", entry.input, below=entry.spec.get("below")).list_inputs()
    }
    times = []
    for _ in range(STEPS):
        started = time.perf_counter()
        z = net(drawn[""]) if "" in drawn else net(**drawn)
        z = next(iter(z.values())) if isinstance(z, dict) else z
        torch.autograd.grad(z.square().mean(), list(net.parameters()), allow_unused=True)
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)


def run_device(path: str) -> dict[str, float]:
    """What a device process measures with a bundle: seconds to load, ms per step, peak MB."""
    import numpy as np

    from edge_sdk.model.model import Model

    started = time.perf_counter()
    model = Model(path)
    loaded = time.perf_counter() - started
    golden = model.bundle.golden()
    given = {k[3:]: np.resize(v, (BATCH, *v.shape[1:])) for k, v in golden.items() if k.startswith("in.")}
    x = {i["name"]: given[i["name"]] for i in model.bundle.manifest["inputs"]}
    gradient, times = model.grad_fn(x, given["y"]), []
    for _ in range(STEPS):
        began = time.perf_counter()
        gradient(model.theta0)
        times.append(time.perf_counter() - began)
    # not getrusage: that starts from what the parent process had
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"load_s": loaded, "ms": 1e3 * statistics.median(times), "MB": int(peak.split()[1]) / 1024}


def try_network(name: str, limit: float, options: list[str]) -> dict[str, Any]:
    """What `measure` finds in a process of its own, or an error in one line."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", name, *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {limit:.0f} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_row(name: str, r: dict[str, Any]) -> str:
    """One line of the table."""
    if "error" in r:
        return f"{name:<30} {r['error'][:220]}"
    made = f"{name:<30}{r['parameters']:>12,} {r['compile_s']:>7.1f} {r['kB']:>8.0f} {r['float64']:>8.0e}"
    if "ms" not in r:
        return made
    timed = f"{r['load_s']:>6.2f} {r['ms']:>8.1f} {r['torch_ms']:>8.1f} {r['ms'] / r['torch_ms']:>6.2f}"
    return f"{made} {timed} {r['MB']:>6.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of the battery (default: all)")
    parser.add_argument("--json", type=Path, help="file that each result is added to, one a line")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one network (default: 600)")
    parser.add_argument("--image", type=int, default=IMAGE[1], help="side of images for torchvision (default: 64)")
    parser.add_argument("--untimed", action="store_true", help="compile and compare only")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--device", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for name, entry in NETWORKS.items():
        if entry.input == IMAGE and entry.make.startswith("torchvision"):
            NETWORKS[name] = replace(entry, input=(3, args.image, args.image))
    if args.one or args.device:
        print(json.dumps(measure(args.one, not args.untimed) if args.one else run_device(args.device)))
        return 0
    unknown = [name for name in args.names if name not in NETWORKS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(NETWORKS)}")
    print(f"{'network':<30}{'parameters':>12} {'compile':>7} {'kB':>8} {'float64':>8}", end=" ")
    print(f"{'load':>6} {'ms':>8} {'torch':>8} {'ratio':>6} {'MB':>6}", flush=True)
    compiled, options = 0, [f"--image={args.image}", *(["--untimed"] if args.untimed else [])]
    for name in args.names or NETWORKS:
        r = try_network(name, args.limit, options)
        compiled += "error" not in r
        print(write_row(name, r), flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps({"name": name, **r}) + "\n")
    print(f"{compiled} of {len(args.names or NETWORKS)} compile")
    return 0


if __name__ == "__main__":
    sys.exit(main())
