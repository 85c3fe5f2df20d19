"""`auscult bundle compile` and `python -m models compile`: from a torch class to a bundle file."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path

import torch
from torch import nn

from models.compile import compile_module
from models.errors import CompileError
from models.losses import LOSSES
from models.spec import NORMS, Spec
from models.zoo import ZOO


def add_parsers(commands: argparse._SubParsersAction) -> None:
    """Add `compile` to a command line."""
    p = commands.add_parser("compile", help="compile a torch module to a bundle that devices train")
    p.add_argument("module", help=f"my_module.py:Net, or one of the zoo: {', '.join(ZOO)}")
    p.add_argument("-o", "--output", type=Path, help="bundle to write (default: <name>.bundle)")
    p.add_argument("--input", type=numbers, help="shape of one sample without the batch, e.g. 3,64")
    p.add_argument("--classes", type=int, help="number of classes")
    p.add_argument("--loss", choices=sorted(LOSSES), default="cross_entropy")
    p.add_argument("--norm", choices=NORMS, default="frozen", help="batch normalisation in training (default: frozen)")
    p.add_argument("--seed", type=int, default=0, help="of the initial parameters (default: 0)")
    p.add_argument("--groups", nargs="*", metavar="NAME=PREFIX,...", help="layer groups (default: top-level parts)")
    p.add_argument(
        "--features", default="", metavar="LAYER", help="path of a layer whose result is offered as features"
    )
    p.add_argument("--below", type=int, help="the input holds integers from 0 to BELOW - 1 (embeddings)")
    p.set_defaults(run=run_compile)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(t) for t in text.split(","))


def run_compile(args: argparse.Namespace) -> int:
    started = time.perf_counter()
    try:
        net, spec = resolve(args)
        compiled = compile_module(net, spec, lambda text: print(f"  {text}", flush=True))
    except CompileError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    path = args.output or Path(f"{spec.name}.bundle")
    compiled.save(path)
    print(f"{path} written in {time.perf_counter() - started:.1f} s")
    return 0


def resolve(args: argparse.Namespace) -> tuple[nn.Module, Spec]:
    """The module with seeded parameters, and what to make of it."""
    groups = dict(g.split("=", 1) for g in args.groups) if args.groups else None
    torch.manual_seed(args.seed)
    if args.module in ZOO:
        entry = ZOO[args.module]
        shape, classes, name = args.input or entry.input, args.classes or entry.classes, args.module
        net = entry.build(shape, classes)
    else:
        factory = load(args.module)
        if not args.input:
            raise CompileError("--input is missing: the shape of one sample without the batch, e.g. --input 3,64")
        shape, classes, name = args.input, args.classes or 0, args.module.split(":")[-1].lower()
        net = factory()
    spec = Spec(name, shape, classes, args.loss, args.below, args.norm, groups, features=args.features)
    return net.eval(), spec


def load(text: str):
    """`file.py:Name` -> the class or function."""
    file, _, name = text.rpartition(":")
    if not file or not Path(file).is_file():
        raise CompileError(
            f"{text}: neither a model of the zoo ({', '.join(ZOO)}) nor FILE.py:CLASS with a file that exists"
        )
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise CompileError(f"{file} has no {name!r}")
    return getattr(module, name)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m models", description="Compile torch modules for devices.")
    add_parsers(parser.add_subparsers(required=True, metavar="COMMAND"))
    args = parser.parse_args(argv)
    return args.run(args)
