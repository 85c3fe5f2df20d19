"""`auscult bundle compile` and `python -m edge_sdk.models compile`: from a torch class to a bundle file."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

import torch
from torch import nn

from edge_sdk.arguments import Parser
from edge_sdk.data.augment import AMOUNTS
from edge_sdk.errors import UsageError
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task import CLASS, STEP_VALUES, STEPS, Forecast
from edge_sdk.models.bundle.compile import Compiled, compile_module
from edge_sdk.models.bundle.split import SplitNet, SplitSpec, compile_split
from edge_sdk.models.frontend.tracing.explain import explain_forward
from edge_sdk.models.frontend.tracing.export import Forward
from edge_sdk.models.gate.graphs.search import SEARCH
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import DROPOUT, NORMS, Spec
from edge_sdk.models.loading import build_entry, build_module, name_error, read_arguments, read_augmentation
from edge_sdk.models.task_options import add_task_options, read_number, read_task_options, read_words, usual_loss
from edge_sdk.models.zoo import ZOO
from edge_sdk.models.zoo.plugged import find_entry, is_network
from edge_sdk.models.zoo.split import SPLIT_ZOO

Shapes = tuple[int, ...] | dict[str, tuple[int, ...]]


def add_parsers(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the command `compile` to a command line."""
    p = commands.add_parser("compile", help="compile a torch module to a bundle that devices train")
    p.add_argument(
        "module",
        nargs="?",
        help="my_module.py:Net (a class, or a function that builds a module), an installed package:name, one of "
        f"another package (auscult plugins), or one of the zoo: {', '.join([*ZOO, *SPLIT_ZOO])}",
    )
    p.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the class")
    p.add_argument("-o", "--output", type=Path, help="bundle to write (default: <name>.bundle)")
    p.add_argument("--seed", type=int, default=0, help="seed of the initial parameters (default: 0)")
    p.add_argument(
        "--explain", action="store_true", help="show the way from layers to the graph and, after an error, to its cause"
    )
    p.add_argument(
        "--search",
        type=int,
        default=SEARCH,
        metavar="N",
        help="inputs among which the gate looks for one at which the gradient is wrong (default: %(default)s)",
    )
    add_input_options(p)
    add_task_options(p)
    add_training_options(p)
    add_graph_options(p)
    add_signal_options(p)
    p.set_defaults(do=run_compile)


def add_input_options(p: argparse.ArgumentParser) -> None:
    """Options that say what goes in and what comes out."""
    p.add_argument(
        "--input",
        nargs="+",
        metavar="SHAPE",
        help="shape of one sample without the batch, e.g. 3,64 (several inputs: ARGUMENT=SHAPE ..., split models: "
        "TOWER=SHAPE ...)",
    )
    p.add_argument(
        "--below",
        nargs="+",
        metavar="N",
        help="the input holds integers from 0 to N - 1 (embeddings); of several inputs NAME=N ...",
    )
    p.add_argument("--classes", type=int, help="number of classes")
    p.add_argument(
        "--result", default="", metavar="NAME", help="of several results, the key, field or place that counts"
    )


def add_training_options(p: argparse.ArgumentParser) -> None:
    """Options that say what is trained, and how."""
    p.add_argument("--smooth", type=float, default=0.0, metavar="SHARE", help="label smoothing: a share of 0 to 1")
    p.add_argument(
        "--norm",
        choices=NORMS,
        help="statistics of batch normalisation in training: as they are (frozen, the default), the batch's (batch), "
        "the batch's with running ones as part of the parameters, which evaluation uses (running), or the same with "
        "outputs corrected towards those of the running ones, for small batches (renorm)",
    )
    p.add_argument(
        "--dropout",
        choices=[d for d in DROPOUT if d],
        help="for modules with dropout or stochastic depth: keep it, with masks that devices draw, or leave it out",
    )
    p.add_argument(
        "--augment",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"change samples while devices train, where a run does not say otherwise: {', '.join(AMOUNTS)}",
    )
    p.add_argument("--lora", type=int, default=0, metavar="RANK", help="train low-rank adapters, and nothing else")
    p.add_argument(
        "--target", nargs="+", default=[], metavar="WORD", help="adapters for linear layers with it in their path"
    )
    p.add_argument(
        "--also", nargs="+", default=[], metavar="LAYER", help="layers trained whole beside adapters (a new head)"
    )


def add_graph_options(p: argparse.ArgumentParser) -> None:
    """Options that say which graphs the bundle has."""
    words = "further results, and how many times their loss is added to the loss: aux=0.3 (deep supervision)"
    p.add_argument("--heads", nargs="*", metavar="NAME=WEIGHT", help=words)
    p.add_argument("--groups", nargs="*", metavar="NAME=PREFIX,...", help="layer groups (default: top-level parts)")
    p.add_argument(
        "--features", default="", metavar="LAYER", help="path of a layer whose result is offered as features"
    )
    p.add_argument(
        "--max-batch",
        type=int,
        metavar="N",
        help="samples that a device puts through at once (default: what fits a cache)",
    )
    p.add_argument(
        "--blocked",
        action="store_true",
        help="also write graphs in the blocked layout that onnxruntime has on this processor (faster convolutions)",
    )
    p.add_argument(
        "--native", action="store_true", help="also write graphs with operators of auscult-native, for workstations"
    )
    p.add_argument(
        "--split", nargs="+", metavar="PARTY=GROUP+...", help="split models: the towers (and head) that each party owns"
    )


def add_signal_options(p: argparse.ArgumentParser) -> None:
    """Options that say what the outputs are called and what the input is a window of."""
    p.add_argument("--class-names", metavar="NAME,...", help="names of the classes, in the order of the outputs")
    p.add_argument("--rate", type=float, metavar="HZ", help="the input (channels,window) is a window of a signal")
    p.add_argument("--channels", metavar="NAME,...", help="names of the signal's channels")
    p.add_argument("--units", metavar="UNIT,...", help="their units, one for all or one each (default: none)")
    p.add_argument("--stride", type=int, metavar="N", help="samples from window to window (default: half a window)")
    p.add_argument("--mean", metavar="X,...", help="taken away from each channel; needs --scale")
    p.add_argument("--scale", metavar="X,...", help="by which each channel is divided after that")


def read_numbers(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between."""
    try:
        return tuple(int(t) for t in text.split(","))
    except ValueError as error:
        raise CompileError(f"--input {text}: expected numbers with commas between, e.g. 3,64") from error


def read_pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """NAME=VALUE arguments as a dictionary."""
    for text in texts or []:
        if "=" not in text:
            raise CompileError(f"{option} {text}: expected NAME=VALUE")
    return dict(t.split("=", 1) for t in texts or [])


def read_values(option: str, text: str | None) -> tuple[float, ...]:
    """Numbers with commas between."""
    try:
        return tuple(float(word) for word in read_words(text))
    except ValueError as error:
        raise CompileError(f"{option} {text}: expected numbers with commas between") from error


def read_signal_options(args: argparse.Namespace, shape: Shapes) -> SignalSpec | None:
    """What the arguments say of the signal; None: nothing.

    Raises:
        CompileError: something is missing or does not fit the input.
    """
    if args.rate is None:
        if args.channels or args.units or args.stride or args.mean or args.scale:
            raise CompileError("--rate is missing: a signal's samples per second, e.g. --rate 32")
        return None
    if isinstance(shape, dict) or len(shape) != 2 or not args.channels:
        raise CompileError(f"--rate: needs --channels and an input of shape channels,window; the input is {shape}")
    channels, units = read_words(args.channels), read_words(args.units) or ("",)
    units = units * len(channels) if len(units) == 1 else units
    mean, scale = read_values("--mean", args.mean), read_values("--scale", args.scale)
    try:
        return SignalSpec(channels, units, args.rate, shape[1], args.stride or max(1, shape[1] // 2), mean, scale)
    except UsageError as error:
        raise CompileError(str(error)) from error


def run_compile(args: argparse.Namespace) -> int:
    """Compile and write a bundle; 0, or 2 after an error, which is told in one sentence."""
    started = time.perf_counter()
    try:
        find_module_argument(args)
        torch.manual_seed(args.seed)
        compiled = compile_split(*read_split_module(args), print_line) if is_split(args) else compile_whole(args)
        path = args.output or Path(f"{compiled.spec.name}.bundle")
        compiled.save(path)
    except Exception as error:
        if args.explain:
            traceback.print_exc()
        known = isinstance(error, (CompileError, UsageError, OSError))
        what = name_error(error) if not known else f"{type(error).__name__}: {error}"
        more = "" if known else "; this is a defect of the compiler, which --explain shows in full"
        print(f"{what}{more}", file=sys.stderr)
        return 2
    print(f"{path} written in {time.perf_counter() - started:.1f} s")
    return 0


def compile_whole(args: argparse.Namespace) -> Compiled:
    """Compile a whole model as the arguments say."""

    def show(forward: Forward) -> None:
        for line in explain_forward(forward):
            print_line(line)

    if args.search < 0:
        raise CompileError(f"--search {args.search}: a number of inputs, 0 or more")
    return compile_module(*read_module(args), print_line, show if args.explain else None, args.search)


def find_module_argument(args: argparse.Namespace) -> None:
    """Put the module into its place, where it was written behind an option that takes several words.

    Raises:
        CompileError: there is none.
    """
    for words in (args.input, args.below, args.groups, args.split, args.target, args.also, args.heads):
        for word in words or []:
            if args.module is None and "=" not in word and (":" in word or is_network(word)):
                args.module = word
                words.remove(word)
    if args.module is None:
        raise CompileError("which module? my_module.py:Net, an installed package:name, or one of the zoo (--help)")


def print_line(text: str) -> None:
    """Show one line of progress."""
    print(f"  {text}", flush=True)


def is_split(args: argparse.Namespace) -> bool:
    """True if the arguments ask for a split model."""
    return bool(args.split) or args.module in SPLIT_ZOO


def read_module(args: argparse.Namespace) -> tuple[nn.Module, Spec]:
    """The module and its settings."""
    shape, below = read_inputs(args)
    groups = read_pairs("--groups", args.groups) or None
    entry = find_entry(args.module)
    args.task = args.task or (CLASS if entry is None else entry.task)
    task = read_task_options(args)
    if entry is not None:
        name = args.module
        if isinstance(shape, dict):
            raise CompileError(f"--input {' '.join(args.input)}: {name} has one input, e.g. --input 3,64")
        shape, classes = shape or entry.input, task.outputs if task else args.classes or entry.classes
        if not shape or not classes:
            raise CompileError(f"{name} has no size of its own: --input and --classes, or --task, are missing")
        seen, made = (task.seen(shape), task.horizon) if isinstance(task, Forecast) else (shape, classes)
        steps = [f"steps={task.steps}"] if task and task.steps and entry.task in (STEPS, STEP_VALUES) else []
        net = build_entry(args.module, entry, seen, made, [*steps, *args.arg])
    else:
        net, classes = build_module(args.module, read_arguments(args.arg)), args.classes or 0
        name = args.module.split(":")[-1].lower()
    if not shape:
        raise CompileError("--input is missing: the shape of one sample without the batch, e.g. --input 3,64")
    norm = args.norm or (entry.norm if entry else "frozen")
    most = entry.max_batch if args.max_batch is None and entry else args.max_batch
    names, signal = read_words(args.class_names), read_signal_options(args, shape)
    if entry and (task is None or args.task == entry.task) and (shape, classes) == (entry.input, entry.classes):
        names, signal = names or entry.class_names, signal or entry.signal
    return net.eval(), Spec(
        name, shape, classes, args.loss or usual_loss(task), below, norm, groups, features=args.features,
        blocked=args.blocked, max_batch=most, dropout=args.dropout or "", output=args.result, class_names=names,
        signal=signal, lora=args.lora, target=args.target, also=args.also, smoothing=args.smooth,
        augment=read_augmentation(args.augment), native=args.native, task=task,
        heads={k: read_number("--heads", v) for k, v in read_pairs("--heads", args.heads).items()},
    )  # fmt: skip


def read_inputs(args: argparse.Namespace) -> tuple[Shapes | None, int | dict[str, int] | None]:
    """The shape of a sample and the bound of its integers, or for several inputs a dictionary of each."""
    words, below = args.input or [], args.below or []
    if any("=" in w for w in words):
        named = {k: read_numbers(v) for k, v in read_pairs("--input", words).items()}
        return named, {k: read_count("--below", v) for k, v in read_pairs("--below", below).items()}
    if len(words) > 1 or len(below) > 1:
        raise CompileError(f"--input {' '.join(words)}: several inputs have names, ARGUMENT=SHAPE ...")
    bound = read_count("--below", below[0]) if below else None
    return read_numbers(words[0]) if words else None, bound


def read_count(option: str, text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or not int(text):
        raise CompileError(f"{option} {text}: expected a number above 0")
    return int(text)


def read_split_module(args: argparse.Namespace) -> tuple[SplitNet, SplitSpec]:
    """The split model and its settings."""
    args.task = args.task or CLASS
    if read_task_options(args) is not None:
        raise CompileError(f"--task {args.task}: a split model predicts one class")
    for option in ("native", "blocked"):
        if getattr(args, option):
            raise CompileError(f"--{option}: split models have portable graphs only; compile {args.module} without it")
    if args.module in SPLIT_ZOO:
        ready, spec = SPLIT_ZOO[args.module]()
        return ready.eval(), spec
    net = build_module(args.module, read_arguments(args.arg))
    if not isinstance(net, SplitNet):
        raise CompileError(
            f"{args.module}: --split needs an edge_sdk.models.bundle.split.SplitNet, got {type(net).__name__}"
        )
    inputs = {k: read_numbers(v) for k, v in read_pairs("--input", args.input).items()}
    parties = {k: tuple(v.split("+")) for k, v in read_pairs("--split", args.split).items()}
    name = args.module.split(":")[-1].lower()
    return net.eval(), SplitSpec(name, inputs, parties, args.classes or 0, args.loss or usual_loss(None))


def main(argv: list[str] | None = None, prog: str = "python -m edge_sdk.models") -> int:
    """The command line of `python -m edge_sdk.models`, or of what `prog` says that the user has typed."""
    return int((args := make_parser(prog).parse_args(argv)).do(args))


def make_parser(prog: str) -> Parser:
    """The parser of all its commands."""
    parser = Parser(prog=prog, description="Compile torch modules for devices.")
    add_parsers(parser.add_subparsers(required=True, metavar="COMMAND"))
    return parser
