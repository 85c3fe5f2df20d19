"""The model of a call, as a file that devices train: a bundle, a name of the zoo, or a torch module, compiled here."""

from __future__ import annotations

import copy
import hashlib
import importlib
import warnings
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from edge_sdk.errors import AuscultError, UsageError, nearest
from edge_sdk.model.bundle import Bundle
from edge_sdk.model.model import Model
from edge_sdk.research.fleets.cache import keep_folder
from edge_sdk.research.fleets.fleet import Fleet

BUNDLE = "model.bundle"
WARNING = "warning: "
PLAIN = (bool, int, float, str, tuple)
LARGEST_BATCH = 1 << 16
"""Of a module that normalises with each batch, which cannot go in parts. It bounds nothing else: no step is larger."""
COMPILED: MutableMapping[Any, tuple[str, Path]] = WeakKeyDictionary()
"""Torch module -> its state when it was compiled, and its bundle: several runs with one module compile it once."""


def bundle_of(model: Any, data: Fleet) -> str:
    """What `--bundle` is to be: the path of a file, or a name of the zoo; "": the one that fits the data.

    Args:
        model: None, the path of a bundle, a `Bundle` or `Model`, a name of the zoo, or a torch module in its state of
            now, which is the initial model of all devices.

    Raises:
        UsageError: it is none of these, or it cannot be compiled for these data.
    """
    if model is None:
        return ""
    if isinstance(model, Model):
        model = model.bundle
    if isinstance(model, Bundle):
        return str(path_of(model))
    if isinstance(model, (str, Path)):
        return find_file(str(model))
    if isinstance(model, type):
        raise UsageError(f"model is the class {model.__name__}: expected a module that it makes, {model.__name__}(...)")
    if hasattr(model, "state_dict") and hasattr(model, "forward"):
        return str(compile_torch(model, data))
    raise UsageError(f"model is a {type(model).__name__}: expected a torch module, a bundle, or a name of the zoo")


def path_of(bundle: Bundle) -> Path:
    """The file of a bundle. Raises UsageError for one that has none."""
    if bundle.path is None:
        raise UsageError("model: this bundle was read from no file; name the file")
    return bundle.path.resolve()


def find_file(name: str) -> str:
    """A bundle's path, whole; a name of the zoo as it is.

    Raises:
        UsageError: there is neither.
    """
    path = Path(name)
    if path.is_file():
        return str(path.resolve())
    if path.suffix or len(path.parts) > 1:
        raise UsageError(f"model = {name!r}: there is no such file")
    plugged = load("edge_sdk.models.zoo.plugged")
    if plugged.find_entry(name) is None:
        known = [*plugged.ZOO, *plugged.PLUGINS]
        raise UsageError(f"model = {name!r}: no file and no name of the zoo{nearest(name, known)}; {', '.join(known)}")
    return name


def compile_torch(net: Any, data: Fleet) -> Path:
    """A torch module as a bundle in the cache, compiled for samples of this fleet.

    Raises:
        UsageError: the compiler refuses it; its reasons are in the message.
    """
    compiler, spec = load("edge_sdk.models.bundle.compile"), load("edge_sdk.models.ir.specification.spec")
    usual_loss = load("edge_sdk.models.task_options").usual_loss
    cohort = data.form()
    if "x" not in cohort.shapes:
        raise UsageError(f"model: a sample is {', '.join(cohort.shapes)}; compile it, with `auscult bundle compile`")
    name, shape = type(net).__name__, tuple(cohort.shapes["x"])
    task = None if cohort.task is None else cohort.task.entry()
    state = hash_state(net, f"{shape} {len(cohort.classes)}{'' if task is None else f' {task}'}")
    before = COMPILED.get(net, ("", Path()))
    if before[0] == state and before[1].is_file():
        return before[1]
    more = {} if cohort.task is None else {"task": cohort.task, "loss": usual_loss(cohort.task)}
    if cohort.largest is not None and (below := table_of(net, cohort.largest, shape)):
        more |= {"below": below}
    if normalises_batches(net):
        more |= {"norm": "running", "max_batch": LARGEST_BATCH}
    refused, modes = load("edge_sdk.models.ir.errors").CompileError, {part: part.training for part in net.modules()}
    try:
        asked = spec.Spec(name.lower(), shape, dropout=dropout_of(net), **more)
        compiled = compiler.compile_module(net.eval(), asked, warn_of)
    except (refused, AuscultError) as error:
        raise UsageError(f"model: {name} cannot be trained on devices as it is: {error}") from error
    finally:
        for part, training in modes.items():
            part.training = training
    digest = hashlib.sha256(compiled.data).hexdigest()
    path = keep_folder("modules", digest, lambda target: compiled.save(target / BUNDLE)) / BUNDLE
    COMPILED[net] = state, path
    return path


def warn_of(told: str) -> None:
    """Passes on what the compiler warns of, among all that it tells of its work."""
    if told.startswith(WARNING):
        warnings.warn(f"model: {told.removeprefix(WARNING)}", stacklevel=2)


def dropout_of(net: Any) -> str:
    """What becomes of dropout: it is kept where there is some."""
    return "keep" if any("drop" in type(part).__name__.lower() for part in net.modules()) else ""


def table_of(net: Any, largest: int, shape: tuple[int, ...]) -> int:
    """Rows of the smallest embedding of a module in which whole numbers up to the largest are looked up; 0: it takes
    samples of this shape for floats.

    Raises:
        UsageError: no embedding has so many rows.
    """
    torch = load("torch")
    kind = torch.nn.Embedding
    rows: dict[str, int] = {name: part.num_embeddings for name, part in net.named_modules() if isinstance(part, kind)}
    if not rows or takes_floats(net, torch.zeros(2, *shape)):
        return 0
    if max(rows.values()) <= largest:
        told = ", ".join(f"{name} has {count} rows" for name, count in rows.items())
        raise UsageError(f"model: x has {largest}, and embedding {told}; numbers begin at 0")
    return min(count for count in rows.values() if count > largest)


def takes_floats(net: Any, x: Any) -> bool:
    """Does a module run on samples that are floats? One that looks them up in an embedding does not."""
    trial = copy.deepcopy(net).eval()
    try:
        with load("torch").no_grad():
            trial(x)
    except Exception:  # whatever its forward raises
        return False
    return True


def normalises_batches(net: Any) -> bool:
    """Has a module batch normalisation that is in training mode, as it is after `net.train()`? Then it normalises with
    each batch and moves its running statistics, as torch does; in evaluation mode these stay as they are.

    Raises:
        UsageError: some of its layers are in one mode, some in the other.
    """
    kind = load("torch.nn.modules.batchnorm")._BatchNorm
    norms = {name: part.training for name, part in net.named_modules() if isinstance(part, kind)}
    if len({*norms.values()}) > 1:
        still, moving = (next(name for name, mode in norms.items() if mode is which) for which in (False, True))
        raise UsageError(
            f"model: batch normalisation {still} is in evaluation mode and {moving} in training mode; all in one of "
            "them, by net.train() or net.eval()"
        )
    return any(norms.values())


def hash_state(net: Any, more: str) -> str:
    """SHA-256 of a module's tensors, and of the numbers and texts that its parts have beside them."""
    found = hashlib.sha256(f"{more}\0{net!r}\0".encode())
    is_lazy = load("torch.nn.parameter").is_lazy
    for name, tensor in net.state_dict().items():
        if is_lazy(tensor):
            continue  # it has no values yet, the compiler makes them
        found.update(f"{name}\0{tuple(tensor.shape)}\0{tensor.dtype}\0".encode())
        found.update(tensor.detach().cpu().numpy().tobytes())
    for name, tensor in net.named_parameters():
        found.update(f"{name} {tensor.requires_grad}\0".encode())
    for name, part in net.named_modules():
        plain = {key: value for key, value in vars(part).items() if isinstance(value, PLAIN)}
        found.update(f"{name} {sorted(plain.items())!r}\0".encode())
    return found.hexdigest()


def load(name: str) -> Any:
    """A module of the compiler.

    Raises:
        UsageError: it, or torch, is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing here: pip install 'auscult[replay]'") from error
