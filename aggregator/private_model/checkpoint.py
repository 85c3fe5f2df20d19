"""A pretrained model from a torch checkpoint, and its outputs on the aggregator's data.

Checkpoints are loaded with weights_only: numbers and names, never code. The module's class is named in the settings, or
by the checkpoint itself where `python -m aggregator pretrain` wrote it.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edge_sdk.algebra.vectors import Layout, Vector
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.private_table import Private

STATES = ("state", "state_dict", "model", "net")  # where checkpoints keep their tensors, if not at the top
Tensor = torch.Tensor


@dataclass(frozen=True)
class ModelOutputs:
    """What one model makes of B samples.

    Attributes:
        features: (B, d), the input of its last linear layer.
        logits: (B, classes).
    """

    features: Tensor
    logits: Tensor

    def __getitem__(self, rows: Tensor) -> ModelOutputs:
        return ModelOutputs(self.features[rows], self.logits[rows])


def load_named(path: str) -> Any:
    """The object that FILE.py:NAME or package.module:NAME stands for.

    Raises:
        UsageError: there is none.
    """
    module, sign, name = path.rpartition(":")
    if not sign or not name:
        raise UsageError(f"{path!r}: expected FILE.py:NAME or package.module:NAME")
    try:
        found = load_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except (ImportError, OSError) as error:
        raise UsageError(f"{path}: {error}") from error
    if not hasattr(found, name):
        raise UsageError(f"{path}: {module} has no {name}")
    return getattr(found, name)


def build_module(architecture: str, arguments: Mapping[str, Any]) -> nn.Module:
    """A module of a named class, or one of the zoo.

    Raises:
        UsageError: there is none of that name, or it does not take these arguments.
    """
    try:
        if ":" in architecture:
            module = load_named(architecture)(**arguments)
        else:
            entry = importlib.import_module("edge_sdk.models.zoo.plugged").find_entry(architecture)
            if entry is None:
                raise UsageError(f"{architecture!r}: no such model in the zoo; one's own is FILE.py:NAME")
            defaults = {"input": entry.input, "classes": entry.classes, **entry.options}
            module = entry.make(**{**defaults, **arguments})
    except (ImportError, TypeError, RuntimeError, ValueError, IndexError) as error:
        raise UsageError(f"{architecture} with {dict(arguments)}: {error}") from error
    if not isinstance(module, nn.Module):
        raise UsageError(f"{architecture}: makes a {type(module).__name__}, expected a torch module")
    return module


def load_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Checkpoints ----------------------------------------------------------------------------------------------------
def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    """Tensors by name, and whatever else is in the file.

    Raises:
        UsageError: it cannot be read, or is no checkpoint of tensors.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise UsageError(f"{path}: no torch checkpoint that can be loaded without running code: {error}") from error
    if not isinstance(found, Mapping):
        raise UsageError(f"{path}: holds a {type(found).__name__}, expected tensors by name")
    inner = next((found[key] for key in STATES if isinstance(found.get(key), Mapping)), found)
    tensors = {str(k).removeprefix("module."): v for k, v in inner.items() if isinstance(v, Tensor)}
    if not tensors:
        raise UsageError(f"{path}: there is no tensor in it")
    return tensors, {} if inner is found else found


def read_vector(path: Path, layout: Layout) -> Vector:
    """A checkpoint of the devices' own architecture as theta_p, float32 (n,).

    Raises:
        UsageError: a parameter is missing or has another shape.
    """
    tensors, _ = read_checkpoint(path)
    theta = np.zeros(layout.size, np.float32)
    for slot in layout.slots:
        found = tensors.get(slot.name)
        if found is None or tuple(found.shape) != slot.shape:
            shape = "is missing" if found is None else f"has shape {tuple(found.shape)}"
            raise UsageError(f"{path}: {slot.name} {shape}, the devices' model has it as {slot.shape}")
        theta[slot.span] = found.float().numpy().ravel()
    return theta


def load_module(private: Private, device: str) -> nn.Module:
    """The module of a checkpoint, for use only.

    Raises:
        UsageError: there is no class for it, or it does not fit.
    """
    assert private.model is not None  # Private.check_files
    tensors, more = read_checkpoint(private.model)
    path = private.architecture or str(more.get("architecture", ""))
    if not path:
        raise UsageError(f"{private.model}: does not say its architecture; name it as FILE.py:NAME")
    module = build_module(path, {**dict(more.get("arguments", {})), **private.arguments})
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise UsageError(f"{private.model} as {path}: {str(error)[:500]}") from error
    return module.to(device).eval().requires_grad_(False)


# Use ------------------------------------------------------------------------------------------------------------
class Watcher:
    """A module together with its features, which a hook sees as they go into a layer.

    Args:
        layer: name of that layer; "": the last linear one.

    Raises:
        UsageError: there is no such layer; when it is called: the layer is run more than once for a batch.
    """

    def __init__(self, module: nn.Module, layer: str = "") -> None:
        self.module, self.seen = module, list[Tensor]()
        linear = [m for m in module.modules() if isinstance(m, nn.Linear)]
        known = dict(module.named_modules())
        if (layer and layer not in known) or not (layer or linear):
            raise UsageError(f"features = {layer!r}: no such layer; there are {', '.join(n for n in known if n)}")
        (known[layer] if layer else linear[-1]).register_forward_pre_hook(self.see)

    def see(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.seen.append(inputs[0])

    def __call__(self, x: Tensor) -> ModelOutputs:
        self.seen.clear()
        logits = self.module(x)
        if len(self.seen) != 1:
            raise UsageError(f"the layer of the features is run {len(self.seen)} times for one batch, expected once")
        return ModelOutputs(self.seen[0].flatten(1), logits)


@torch.no_grad()
def compute_outputs(module: nn.Module, layer: str, x: Tensor, batch: int) -> ModelOutputs:
    """A frozen model's outputs for all of x (N, ...), `batch` samples at a time."""
    watcher = Watcher(module, layer)
    parts = [watcher(part) for part in torch.split(x, batch)]
    return ModelOutputs(torch.cat([p.features for p in parts]), torch.cat([p.logits for p in parts]))
