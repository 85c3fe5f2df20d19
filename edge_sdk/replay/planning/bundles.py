"""The bundle of a replay: the one that is named, one that ships, or one that is compiled now and cached for later."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.split_model import input_shapes
from edge_sdk.model.tasks.plugged import PLUGINS, PluggedTask, find_plugged
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task import Forecast, OneClass, OutputTask, Reconstruction, Values
from edge_sdk.nodes.evaluation.recorded_signal import check_signal
from edge_sdk.plugins import hash_plugin
from edge_sdk.replay.cohorts.cohort import Cohort, Shapes, shapes_fit
from edge_sdk.replay.values.asked import check_asked

NETWORKS = {"mnist": "lenet", "cifar10": "lenet", "esr": "signal"}
"""Data set -> the network of the zoo that is compiled for it; tables get an MLP."""

CHANNELS_AND_TIME = 2
"""Axes of a window."""
TASK = "--task="

SPLIT_NETWORKS = {"mnist": "split-images"}
"""Divided data set -> its network, where no compiled one ships."""

INPUTS = {"mnist": (1, 28, 28), "esr": (1, 178)}
"""Data set -> input shape of its network, where that is not the shape of a sample."""


def choose_bundle(
    data: str, bundle: Path | None, cohort: Cohort, seed: int, say: Callable[[str], None], exactly: bool = False
) -> Path:
    """Picks the bundle that was named, or the default for these data.

    Args:
        exactly: it may not know more classes than the data have.

    Raises:
        UsageError: it does not fit the data, or none can be compiled here.
    """
    if bundle is not None:
        path = find_named_bundle(data, bundle, cohort, seed, say)
        check_fit(path, cohort, exactly)
        return path
    name = data.partition(":")[0]
    if not cohort.reshape:
        return choose_for_traces(cohort, seed, say, exactly)
    if "x" not in cohort.shapes:
        return find_shipped_bundle(f"split-{name}.bundle") or compile_network(SPLIT_NETWORKS[name], [], seed, say)
    shape = find_input_shape(data, cohort)
    network = NETWORKS.get(name, "mlp") if cohort.task is None else network_of(cohort.task, len(shape))
    return compile_network(network, size_options(shape, cohort), seed, say)


def find_input_shape(data: str, cohort: Cohort) -> Sequence[int]:
    """Input shape of a network that is compiled for these data."""
    return INPUTS.get(data.partition(":")[0], cohort.shapes["x"])


def find_named_bundle(data: str, named: Path, cohort: Cohort, seed: int, say: Callable[[str], None]) -> Path:
    """The file of that name or, where there is none and the name is a plain word, a network of that name, compiled."""
    if named.exists() or named.suffix or len(named.parts) > 1:
        return named.resolve()
    if "x" not in cohort.shapes:
        needs = ", which needs a split model" if "x.hospital" in cohort.shapes else ""
        have = describe_shapes(cohort.shapes)
        raise UsageError(f"--bundle {named}: there is no such file; a sample is {have}{needs}")
    return compile_network(str(named), size_options(find_input_shape(data, cohort), cohort), seed, say)


def choose_for_traces(cohort: Cohort, seed: int, say: Callable[[str], None], exactly: bool = False) -> Path:
    """The wrist network that ships where it fits, else one that is compiled for these channels and classes.

    Samples that are rows of numbers get the network of tables.

    Raises:
        UsageError: the samples are neither.
    """
    if len(cohort.shapes.get("x", ())) == 1:
        return compile_network(network_of(cohort.task, 1), size_options(cohort.shapes["x"], cohort), seed, say)
    if len(cohort.shapes.get("x", ())) != CHANNELS_AND_TIME:
        raise UsageError(
            f"one sample is {describe_shapes(cohort.shapes)}: compile a model for it and name its file, --bundle FILE "
            "(docs/bring-your-model.md)"
        )
    shipped = find_shipped_bundle("wrist.bundle") if cohort.task is None else None
    if shipped is not None:
        with contextlib.suppress(UsageError):
            check_fit(shipped, cohort, exactly)
            return shipped
    network = network_of(cohort.task, CHANNELS_AND_TIME)
    return compile_network(network, size_options(cohort.shapes["x"], cohort), seed, say)


def network_of(task: OutputTask | None, axes: int) -> str:
    """The network of the zoo that is compiled for samples with so many axes. `task`: None: they are in classes."""
    if isinstance(task, Forecast):
        return "forecaster"
    if task is not None and task.steps:
        return "steps"
    if isinstance(task, Reconstruction):
        return "autoencoder" if axes == CHANNELS_AND_TIME else "autoencoder-dense"
    return "wrist" if axes == CHANNELS_AND_TIME else "mlp"


def size_options(shape: Sequence[int], cohort: Cohort) -> list[str]:
    """Options of the compiler for this input shape, and the cohort's classes, values or labels."""
    given, task = ["--input", ",".join(map(str, shape))], cohort.task
    if task is None:
        return [*given, "--classes", str(len(cohort.classes))]
    if isinstance(task, PluggedTask):
        return [*given, f"--task={task.option}"]
    given += ["--task", task.kind]
    if isinstance(task, Reconstruction):
        given += ["--horizon", str(task.horizon)] if isinstance(task, Forecast) else []
        return [*given, "--quantile", repr(task.quantile), *signal_options(cohort.signal)]
    given += [f"--names={','.join(task.named())}"]
    if task.steps:
        given += ["--steps", str(task.steps), *signal_options(cohort.signal)]
    if isinstance(task, Values):
        given += [f"--unit={','.join(task.units)}"]
        given += [f"--range={low:.12g},{high:.12g}" for low, high in zip(task.low, task.high, strict=True)]
    return given


def signal_options(signal: SignalSpec | None) -> list[str]:
    """Options of the compiler for a signal; None: nothing is known of one."""
    if signal is None:
        return []
    lists = {"channels": signal.channels, "mean": signal.mean, "scale": signal.scale}
    named = [f"--{name}={','.join(map(str, values))}" for name, values in lists.items()]
    return ["--rate", f"{signal.rate_hz:.12g}", "--stride", str(signal.stride), *named]


def choose_bundles(
    data: str, named: Sequence[Path], cohort: Cohort, seed: int, say: Callable[[str], None], several: bool
) -> tuple[Path, ...]:
    """Picks one bundle for all devices or, where models may differ, those that are dealt out to them in turns.

    Raises:
        UsageError: one does not fit, or there are several for a method that trains one model.
    """
    if not several:
        if len(named) > 1:
            raise UsageError(f"--bundle is named {len(named)} times: this method trains one model on all devices")
        return (choose_bundle(data, named[0] if named else None, cohort, seed, say),)
    found = tuple(find_named_bundle(data, path, cohort, seed, say) for path in named)
    found = found or (choose_bundle(data, None, cohort, seed, say, exactly=True),)
    for path in found:
        check_fit(path, cohort, exactly=True)
    return found


def check_fit(path: Path, cohort: Cohort, exactly: bool = False) -> None:
    """Raises UsageError if these samples cannot be given to this model, or it knows fewer classes.

    Args:
        exactly: it may not know more classes either.
    """
    bundle = read_bundle(path)
    check_asked(bundle, cohort.task, cohort.unit)
    check_signal(path, bundle.signal, cohort.channels, cohort.units, cohort.rate_hz)
    found, task = input_shapes(bundle), bundle.task
    known = task.classes if isinstance(task, OneClass) else task.outputs
    enough = task.fits(cohort.classes) and not (exactly and known > len(cohort.classes))
    if not shapes_fit(cohort.shapes, found, cohort.reshape) or not enough:
        wanted = f"{describe_shapes(cohort.shapes)} and {len(cohort.classes)}"
        what = "classes" if cohort.task is None else "outputs"
        wanted += cut_otherwise(found, cohort)
        raise UsageError(f"{path}: input {describe_shapes(found)} and {what} {known}; these data need {wanted}")


def cut_otherwise(found: Shapes, cohort: Cohort) -> str:
    """What would make these samples fit, where they are windows of other lengths only; the end of a sentence."""
    own, wanted = cohort.shapes.get("x", ()), found.get("x", ())
    if len(own) != CHANNELS_AND_TIME or len(wanted) != len(own) or own[0] != wanted[0] or own[1] == wanted[1]:
        return ""
    return f"; traces are cut for it with --window {wanted[1]}"


def describe_shapes(shapes: Shapes) -> str:
    """Shapes of a sample in words: `x 3 x 64`."""
    return ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in shapes.items())


def find_shipped_bundle(name: str) -> Path | None:
    """A bundle that comes with `edge_sdk.models`, if its files are installed."""
    package = find_compiler()
    path = package / "shipped" / name if package is not None else None
    return path if path is not None and path.is_file() else None


def find_compiler() -> Path | None:
    """Directory of `edge_sdk.models`, found without importing it; None: it, or torch, is not installed."""
    spec = importlib.util.find_spec("edge_sdk.models")
    if spec is None or not spec.submodule_search_locations or importlib.util.find_spec("torch") is None:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


# Compiling ------------------------------------------------------------------------------------------------------
def compile_network(network: str, sizes: Sequence[str], seed: int, say: Callable[[str], None]) -> Path:
    """Compiles a network by its name, or takes it from the cache if the same compiler has compiled it before.

    Raises:
        UsageError: `edge_sdk.models` or torch is not installed, or the compiler refuses.
    """
    package = find_compiler()
    if package is None:
        raise UsageError("no model can be compiled here, without torch: pip install 'auscult[replay]'")
    options = [network, "--seed", str(seed), *sizes]
    tasks = [option.removeprefix(TASK) for option in options if option.startswith(TASK)]
    own = hash_plugin("network", network) + "".join(hash_plugin("task", said.partition(":")[0]) for said in tasks)
    given = [said for said in tasks if said in PLUGINS.given]
    own += "".join(json.dumps(find_plugged(said).entry()) for said in given)
    path = find_cache() / f"{network}-{hash_inputs(package, options, own)}.bundle"
    if path.is_file():
        return path
    say(f"compiling {' '.join(options)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")  # others may compile the same at the same time
    code, said = (compile_here if given else compile_apart)(["compile", *options, "-o", str(part)])
    if code:
        raise UsageError(f"no model could be compiled for these data:\n{said}")
    os.replace(part, path)
    return path


def compile_apart(words: Sequence[str]) -> tuple[int, str]:
    """Exit code of the compiler in a process of its own, and what it said if that is an error."""
    command = [sys.executable, "-m", "edge_sdk.models", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, (done.stderr.strip() or done.stdout.strip()) if done.returncode else ""


def compile_here(words: Sequence[str]) -> tuple[int, str]:
    """What `compile_apart` returns, in this process: another one would not know a task that this one was given."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = importlib.import_module("edge_sdk.models.cli").main(list(words))
    return code, said.getvalue().strip()


def find_cache() -> Path:
    """Directory of the compiled bundles."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "auscult" / "bundles"


def hash_inputs(package: Path, options: Sequence[str], own: str = "") -> str:
    """Hash of all that a compiled file depends on: the options, the compiler, and the torch that draws theta0.

    Args:
        own: hash of the sources of the network and of the task, where they are other packages'.
    """
    found = hashlib.sha256("\0".join([*options, own] if own else options).encode())
    for library in ("torch", "onnx", "onnxscript", "onnxruntime"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.update(f"{library} {importlib.metadata.version(library)}".encode())
    for source in sorted(package.rglob("*.py")):
        found.update(source.read_bytes())
    return found.hexdigest()[:20]
