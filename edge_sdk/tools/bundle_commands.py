"""`auscult bundle inspect` and `auscult bundle verify`, and the same as functions. Needs neither torch nor onnx."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edge_sdk.model.bundle import BLOCKED_SUFFIX, Bundle, read_bundle
from edge_sdk.model.forms import has_native, native_part
from edge_sdk.model.manifest import read_front, sample_bytes
from edge_sdk.model.model import Model
from edge_sdk.model.tasks.task import OneClass
from edge_sdk.tools.profiling.step_cost import measure


def add_parsers(commands: Any, parents: Sequence[argparse.ArgumentParser] = ()) -> None:
    """Adds `inspect` and `verify` to a command line; each sets `do`, which returns the exit code."""
    for name, do, words in (
        ("inspect", do_inspect, "show what a bundle holds, and how fast it trains here"),
        ("verify", do_verify, "check hashes, layout and graphs, and run the golden vectors on this machine"),
    ):
        p = commands.add_parser(name, help=words, description=words, parents=parents)
        p.add_argument("bundle", type=Path)
        p.set_defaults(do=do)
    commands.choices["inspect"].add_argument("--no-run", action="store_true", help="do not measure")


def do_verify(options: argparse.Namespace) -> int:
    print(verify(options.bundle))
    return 0


def do_inspect(options: argparse.Namespace) -> int:
    bundle = read_bundle(options.bundle)
    print(describe(bundle))
    if not options.no_run:
        print(format_cost(measure(options.bundle)))
    return 0


def verify(path: Path) -> str:
    """Checks everything about a bundle on this machine, and returns one line for people.

    Raises:
        BundleError: naming what is wrong.
    """
    model = Model(path)
    graphs = model.bundle.manifest["graphs"]
    for graph in graphs:
        if not graph.endswith(BLOCKED_SUFFIX):
            model.session(graph)
    size = f"{model.layout.size:,} parameters, {len(graphs)} graphs"
    note = f" ({model.fallback})" if model.fallback else ""
    return f"{path}: {model.name}, {size}; golden vectors pass; {model.choice.describe()}{note}; {model.sha256}"


def describe(bundle: Bundle) -> str:
    """Describes layers, sizes, graphs and the parity report, for people."""
    m = bundle.manifest
    inputs = ", ".join(f"{i['name']} {i['dtype']} {tuple(i['shape'])}" for i in m["inputs"])
    lines = [
        f"{m['name']}: {m['parameters']:,} parameters, {m['buffers']:,} numbers that are not trained",
        f"identity {bundle.sha256}",
        f"input {inputs}; output {tuple(m['output'])}",
        format_size(bundle),
        f"loss {m['loss']}; norm {m['norm']}; at most {m['max_batch']} samples at once",
        "",
        *(format_layer(s.name, s.shape, s.size, s.kind, s.group) for s in bundle.layout.slots),
        "",
        *(format_graph(k, v, len(bundle.parts[f"{k}.onnx"])) for k, v in m["graphs"].items()),
        *(format_native(k, len(bundle.parts[native_part(k)])) for k, v in m["graphs"].items() if has_native(v)),
    ]
    if kept := read_front(m):
        lines.insert(3, f"front computed once for each sample, {sample_bytes(kept):,} bytes of which are kept")
    if bundle.augment:
        lines.insert(3, f"augmentation {describe_amounts(bundle.augment)}")
    if not isinstance(bundle.task, OneClass):
        lines.insert(3, f"predicts {bundle.task.in_words()}")
    if bundle.class_names:
        lines.insert(3, f"classes {', '.join(bundle.class_names)}")
    if bundle.signal is not None:
        lines.insert(3, f"signal {bundle.signal.describe()}")
    if m.get("split"):
        owners = "; ".join(f"{k} owns {', '.join(v)}" for k, v in m["split"]["parties"].items())
        lines += ["", f"split: {owners}"]
    runtime = m["runtime"]["onnxruntime"]
    lines += [
        "",
        f"onnxruntime {runtime['minimum']} or newer, not {', '.join(runtime['blocked'])}",
        format_parity(bundle.report),
    ]
    return "\n".join(lines)


def describe_amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in amounts.items())


def format_size(bundle: Bundle) -> str:
    """Says what takes room in the file: parameters are there once, and graphs have none of them."""
    sizes = {name: len(part) / 1000 for name, part in bundle.parts.items()}
    graphs = sum(size for name, size in sizes.items() if name.endswith(".onnx"))
    first = sizes["theta0"] + sizes.get("buffers0", 0)
    return f"{sum(sizes.values()):,.0f} kB: {first:,.0f} of parameters and statistics, {graphs:,.0f} of graphs"


def format_layer(name: str, shape: tuple[int, ...], size: int, kind: str, group: str) -> str:
    return f"  {name:<36} {kind:<10} {group:<10} {'x'.join(map(str, shape)):>14} {size:>10,}"


def format_graph(name: str, entry: Mapping[str, Any], size: int) -> str:
    inputs, outputs = (", ".join(v["name"] for v in entry[side]) for side in ("inputs", "outputs"))
    return f"  {name:<24} {size / 1000:>7.0f} kB   {inputs} -> {outputs}"


def format_native(name: str, size: int) -> str:
    return f"  {name:<24} {size / 1000:>7.0f} kB   the same with operators of auscult-native"


def format_parity(report: Mapping[str, Any]) -> str:
    errors = ", ".join(f"{k} {v:.0e}" for k, v in report.get("parity", {}).items())
    return f"parity with autograd when compiled, at most: {errors or 'not recorded'}"


def format_cost(measured: Mapping[str, Any]) -> str:
    front = f" behind a front of {measured['front ms']:.2f} ms" if "front ms" in measured else ""
    return (
        f"here, {measured['kernels']}, batch {measured['batch']:.0f}, {measured['threads']:.0f} thread: "
        f"loaded in {measured['load s']:.1f} s, "
        f"predict {measured['predict ms']:.2f} ms, a training step {measured['loss_grad ms']:.2f} ms{front}, "
        f"peak memory of the process {measured['peak MB']:.0f} MB"
    )
