"""Compiles networks that nobody here wrote: of packages and of published sources, with random weights.

    python benchmarks/foreign.py [NAME ...] [--json FILE --bundles FOLDER] [--untimed | --times] [--sources FOLDER]

Each runs in a process of its own. What is told of it: parameters, processor seconds to compile, kB of the bundle, the
worst float64 error against autograd; the bundle's float32 error in multiples of torch's own (the median of --draws
draws, or of 60 where torch itself once keeps fewer than three digits, of the worst of the gate's kinds of inputs, and
the worst of all draws); the gradient's relative error in ten training steps, beside torch's own in float32
(benchmarks/foreign_steps.py), with WRONG where it is too large; seconds to load, processor ms of a training step at
batch 8 on one thread beside torch's, and the peak memory of a device process. Or, in one sentence, why it does not
compile. Nothing is downloaded. The libraries are none of auscult's own: `make bench-compile` puts them into an
environment of their own; published sources (foreign_wearables.py) are checked out by whoever runs this.

With --json, what passed there with the same code and options is not run again, and the cheapest come first. Errors can
be measured on a busy machine, times cannot. So both can be had one after the other, with the bundles kept between:

    python benchmarks/foreign.py --untimed --json FILE --bundles FOLDER
    python benchmarks/foreign.py --times --json FILE --bundles FOLDER
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import importlib
import importlib.util
import json
import multiprocessing
import resource
import signal
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import foreign_times
from foreign_networks import IMAGE, LIBRARY_NETWORKS, Foreign
from foreign_wearables import WEARABLES

NETWORKS = LIBRARY_NETWORKS | WEARABLES
HEAD = f"{'network':<30}{'parameters':>12} {'cpu s':>7} {'kB':>8} {'float64':>8} {'float32':>7} {'worst':>6} "
HEAD += f"{'largest for':<29} {'steps':>7} {'torch':>7} {'load':>6} {'ms':>8} {'torch':>8} {'ratio':>6} {'MB':>6}"
COLUMNS = ("network", "parameters", "cpu s", "kB", "float64", "float32", "worst", "ten steps", "torch's")
COLUMNS += ("load s", "ms", "torch ms", "ratio", "MB")
TABLE_HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
CODE = Path(__file__).resolve().parents[1]
STAND_INS = ("torchvision._meta_registrations", "torchaudio", "torchaudio.functional", "torchaudio.transforms")
LIBRARIES = ("torchvision.models", "timm", "braindecode.models", "edge_sdk.models.bundle.compile")


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


def load_libraries() -> None:
    """Load what every network needs, once: the process of each is a copy of this one."""
    prepare_libraries()
    import torch

    torch.set_num_threads(1)
    for library in LIBRARIES:
        importlib.import_module(library)
    from edge_sdk.models.frontend.tracing.export import read_registry
    from edge_sdk.models.ir.proto import OPSET

    read_registry(opset_version=OPSET)  # as torch names it, which is what is remembered


def build(entry: Foreign) -> Any:
    """The network, with random weights.

    Raises:
        FileNotFoundError: the source that it is in is not there.
    """
    import torch

    if entry.source:
        if not Path(entry.source).is_dir():
            raise FileNotFoundError(f"{entry.source} is missing: foreign_wearables.py says what --sources needs")
        sys.path.insert(0, entry.source)
    path, _, function = entry.make.rpartition(".")
    torch.manual_seed(7)
    return getattr(importlib.import_module(path), function)(**entry.given).eval()


def compile_network(entry: Foreign, path: Path, draws: int = 3) -> dict[str, Any]:
    """Compile one network to a file, and what was measured of its errors."""
    from foreign_rounding import measure_rounding
    from foreign_steps import compare_steps

    from edge_sdk.model.model import Model
    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.specification.spec import Spec

    net, started = build(entry), time.process_time()
    plain = copy.deepcopy(net)
    made = compile_module(net, Spec("net", entry.input, **{"dropout": "off", **entry.spec}))
    found = {"parameters": made.parameters, "compile_s": time.process_time() - started, "kB": len(made.data) / 1000}
    path.parent.mkdir(parents=True, exist_ok=True)
    made.save(path)
    assert made.truth is not None
    found["float64"] = made.errors["float64"]
    if draws:
        kinds = measure_rounding(Model(path), made.truth, draws)
        largest = max(kinds, key=lambda r: r.ratio)
        found |= {"rounding": largest.ratio, "case": largest.case, "one_draw": max(r.worst for r in kinds)}
        found |= {"kinds": {r.case: [r.device, r.torch] for r in kinds}}
    return {**found, **compare_steps(Model(path), made.truth, plain)}


def time_network(entry: Foreign, path: Path) -> dict[str, Any]:
    """What a device process and torch take for a step.

    Raises:
        FileNotFoundError: the network was not compiled before.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run without --times first, with the same --bundles")
    return foreign_times.compare_with_torch(path, build(entry), entry)


Work = Callable[[Foreign, Path], dict[str, Any]]
PARTS: dict[str, Work] = {"errors": compile_network, "times": time_network}


def try_network(work: Work, entry: Foreign, path: Path, limit: int) -> dict[str, Any]:
    """What one part of the work finds in a copy of this process, or an error in one line."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=send_measured, args=(theirs, work, entry, path, limit))
    child.start()
    theirs.close()
    try:
        found: dict[str, Any] = ours.recv()
        return found
    except EOFError:
        child.join()
        if child.exitcode == -signal.SIGXCPU:
            return {"error": f"more than {limit} s of a processor"}
        return {"error": f"the process ended with {child.exitcode}"}
    finally:
        child.terminate()
        child.join()


def send_measured(to: Connection, work: Work, entry: Foreign, path: Path, limit: int) -> None:
    """Send what a part of the work finds, or its error in one line; the processor's time counts, not that of others."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    try:
        to.send(work(entry, path))
    except Exception as error:
        first = (str(error).strip().splitlines() or ["no word"])[0]
        to.send({"error": f"{type(error).__name__}: {first}", "whole": str(error)})


def write_row(name: str, r: dict[str, Any]) -> str:
    """One line of the table."""
    if "error" in r:
        return f"{name:<30} {r['error'][:220]}"
    made = f"{name:<30}"
    if "kB" in r:
        made += f"{r['parameters']:>12,} {r['compile_s']:>7.1f} {r['kB']:>8.0f} {r['float64']:>8.0e}"
        rounding = f"{r['rounding']:>7.2f} {r['one_draw']:>6.1f} {r['case']}" if "case" in r else ""
        made += f" {rounding:<44}"
    if "steps_device" in r:
        made += f" {r['steps_device']:>7.0e} {r['steps_torch']:>7.0e}" + "".join(f" WRONG {k}" for k in r["wrong"])
    if "ms" not in r:
        return made
    timed = f"{r['load_s']:>6.2f} {r['ms']:>8.1f} {r['torch_ms']:>8.1f} {r['ratio']:>6.2f}"
    return f"{made} {timed} {r['MB']:>6.0f}"


def write_markdown(name: str, r: dict[str, Any]) -> str:
    """One line of the table of `--table`; "-" for what was not measured."""
    kinds: list[tuple[str, str]] = [
        ("parameters", ","), ("compile_s", ".0f"), ("kB", ".0f"), ("float64", ".0e"), ("rounding", ".1f"),
        ("one_draw", ".0f"), ("steps_device", ".0e"), ("steps_torch", ".0e"),
        ("load_s", ".2f"), ("ms", ".1f"), ("torch_ms", ".1f"), ("ratio", ".2f"), ("MB", ".0f"),
    ]  # fmt: skip
    return " | ".join([f"| {name}", *(format(r[k], how) if k in r else "-" for k, how in kinds)]) + " |"


def describe_run(args: argparse.Namespace) -> dict[str, Any]:
    """What must be equal for a result to count again: the sources of compiler and battery, and the options."""
    digest = hashlib.sha256()
    for folder in ("models", "edge_sdk/model", "benchmarks"):
        for path in sorted((CODE / folder).rglob("*.py")):
            if folder != "benchmarks" or path.name.startswith("foreign"):
                digest.update(path.read_bytes())
    return {"code": digest.hexdigest()[:16], "image": args.image, "samples": args.samples, "draws": args.draws}


def read_rows(file: Path | None) -> list[dict[str, Any]]:
    """The results of earlier runs."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of the battery (default: all)")
    parser.add_argument("--json", type=Path, help="file of results, one a line: read for what is done, and added to")
    parser.add_argument("--limit", type=int, default=600, help="processor seconds for one network (default: 600)")
    parser.add_argument("--image", type=int, default=IMAGE[1], help="side of images where any will do (default: 64)")
    parser.add_argument("--samples", type=int, help="samples of a window for braindecode (default: as each is meant)")
    parser.add_argument(
        "--draws", type=int, default=3, help="inputs of each kind for float32 errors, at least; 0: none (default: 3)"
    )
    parser.add_argument("--sources", type=Path, default=Path("."), help="folder of published sources (default: here)")
    parser.add_argument("--bundles", type=Path, help="folder in which bundles are kept (default: they are not)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--untimed", action="store_true", help="compile and compare only")
    only.add_argument("--table", action="store_true", help="measure nothing: print what is in FILE as Markdown")
    only.add_argument("--times", action="store_true", help="measure times of the bundles in the folder only")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in NETWORKS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(NETWORKS)}")
    if args.times and args.bundles is None:
        parser.error("--times: in which folder are the bundles? --bundles FOLDER")
    return args


def settle(entry: Foreign, args: argparse.Namespace) -> Foreign:
    """The entry with smaller inputs where its network takes any, and where its source is."""
    if entry.source:
        return replace(entry, source=str((args.sources / entry.source).resolve()))
    if args.samples and "n_times" in entry.given:
        return replace(entry, input=(entry.input[0], args.samples), given=entry.given | {"n_times": args.samples})
    image = entry.input == IMAGE and "img_size" not in entry.given
    return replace(entry, input=(3, args.image, args.image)) if image else entry


def choose_parts(args: argparse.Namespace) -> list[str]:
    """The parts of the work that are asked for."""
    return ["errors"] if args.untimed else ["times"] if args.times else [*PARTS]


def measure_missing(name: str, path: Path, args: argparse.Namespace, done: dict[tuple[str, str], Any]) -> None:
    """Do what is not done of one network, and keep it; nothing further after an error."""
    run, parts = describe_run(args), choose_parts(args)
    for part in parts:
        if (name, part) in done and (part == parts[-1] or path.exists()):
            continue
        work = partial(compile_network, draws=args.draws) if part == "errors" else PARTS[part]
        made = try_network(work, settle(NETWORKS[name], args), path, args.limit)
        done[name, part] = {"name": name, "part": part, **run, **made}
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(done[name, part]) + "\n")
        if "error" in made:
            return


def main() -> int:
    args = parse_options()
    if args.table:
        print(TABLE_HEAD)
        for name in args.names or NETWORKS:
            told = [r for r in read_rows(args.json) if r["name"] == name and "error" not in r]
            print(write_markdown(name, {k: v for r in told for k, v in r.items()}))
        return 0
    warnings.simplefilter("ignore")
    run, rows, parts = describe_run(args), read_rows(args.json), choose_parts(args)
    done = {(r["name"], r["part"]): r for r in rows if "error" not in r and r.items() >= run.items()}
    costs = {r["name"]: r["compile_s"] for r in rows if "compile_s" in r}
    names = sorted(args.names or NETWORKS, key=lambda name: costs.get(name, float("inf")))
    print(HEAD, flush=True)
    if any((name, part) not in done for name in names for part in parts):
        load_libraries()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = (args.bundles or Path(folder)) / f"{name.replace(' ', '_').replace(',', '')}.bundle"
            measure_missing(name, path, args, done)
            found = {k: v for part in PARTS for k, v in done.get((name, part), {}).items()}
            print(write_row(name, found), flush=True)
            failed += "error" in found
    print(f"{len(names) - failed} of {len(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
