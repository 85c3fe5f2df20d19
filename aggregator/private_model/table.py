"""From the [private] table of an aggregator's settings to its regulariser. Nothing here is ever sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aggregator.private_model.checkpoint import ModelOutputs, compute_outputs, load_module, load_named, read_vector
from aggregator.private_model.crd import Crd, CrdOptions
from aggregator.private_model.regulariser import Batching, Distilled, KdOptions, Loss, SquaredDistance, Stateless, kd
from aggregator.private_model.torch_graph import TorchGraph
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.run import Run
from edge_sdk.data.npz import read_npz
from edge_sdk.errors import UsageError
from edge_sdk.methods.augfl.theory import largest_curvature
from edge_sdk.model.bundle import Bundle
from edge_sdk.nodes.configuration.assembly import describe_excess, method_of, settings_of
from edge_sdk.nodes.configuration.private_table import Private
from edge_sdk.nodes.configuration.settings import from_mapping

HEADS = 33  # purpose of randomness

Regulariser = SquaredDistance | Distilled


def regulariser_of(private: Private, bundle: Bundle, seed: int, device: str) -> Regulariser | None:
    """The regulariser that a [private] table describes; None where lambda is 0, and then no file is opened.

    Raises:
        UsageError: a file cannot be used, or does not fit the devices' model.
    """
    if private.weight == 0:
        return None
    assert private.model is not None  # Private.check_files
    if private.regulariser == "l2":
        if private.options:
            raise UsageError(f"options of regulariser l2: it has none, not {', '.join(private.options)}")
        return SquaredDistance(private.weight, read_vector(private.model, bundle.layout))
    student = TorchGraph(bundle, device)
    x, y = read_data(private, bundle, device)
    teacher = compute_outputs(load_module(private, device), private.features, x, private.batch)
    with torch.no_grad():
        features = student(student.constant(bundle.theta0), x[: private.batch])[0]
    loss = loss_of(private, teacher, y, features, seed)
    batching = Batching(batch=private.batch, every=private.every, seed=seed)
    return Distilled(student, teacher, loss, x, y, weight=private.weight, batching=batching)


def loss_of(private: Private, teacher: ModelOutputs, y: Tensor | None, student: Tensor, seed: int) -> Loss:
    if private.regulariser == "crd":
        options = from_mapping(CrdOptions, private.options, "options of regulariser crd")
        return Crd(options, teacher, y, student, seed + HEADS)
    if private.regulariser == "kd":
        return kd(from_mapping(KdOptions, private.options, "options of regulariser kd"))
    function, options_ = load_named(private.regulariser), private.options
    return Stateless(lambda batch: function(batch, **options_))


def read_data(private: Private, bundle: Bundle, device: str) -> tuple[Tensor, Tensor | None]:
    assert private.data is not None  # Private.check_files
    arrays = read_npz(private.data)
    shape = tuple(bundle.manifest["inputs"][0]["shape"])
    x = arrays.get("x")
    if x is None or x.shape[1:] != shape or x.dtype != np.float32 or len(x) < 2:
        found = "missing" if x is None else f"{x.dtype} {x.shape}"
        raise UsageError(
            f"{private.data}: x is {found}, the devices' model takes float32 (N, {', '.join(map(str, shape))})"
        )
    if not np.isfinite(x).all():
        raise UsageError(f"{private.data}: x has a value that is not finite")
    y = arrays.get("y")
    if y is not None and (len(y) != len(x) or not np.issubdtype(y.dtype, np.integer)):
        raise UsageError(f"{private.data}: y is {y.dtype} {y.shape}, expected {len(x)} integers")
    return torch.from_numpy(x).to(device), None if y is None else torch.from_numpy(y.astype(np.int64)).to(device)


def give_regulariser(env: type, regulariser: Regulariser | None) -> dict[str, Any]:
    """The fields of an env through which a method is given a regulariser.

    Raises:
        UsageError: the method has no room for it, or for what it must remember.
    """
    if regulariser is None:
        return {}
    room, memory = {f.name for f in fields(env)}, regulariser.first()
    if {"regulariser", "memory"} <= room:
        return {"regulariser": regulariser, "memory": memory}
    if "smooth_grad" not in room:
        raise UsageError("private: this method's aggregator has no room for a regulariser")
    if len(memory):
        raise UsageError("private: this method does not keep what the regulariser learns; heads = 'frozen' would do")
    return {"smooth_grad": lambda theta: regulariser(theta, 0, memory).gradient}


def warnings_of(run: Run, sizes: Mapping[str, int], regulariser: Regulariser | None, theta0: Vector) -> Sequence[str]:
    """Warnings of the method, which may depend on the curvature of the regulariser, which only this node knows; and of
    a round that asks for more devices than there are."""
    method, settings = method_of(run), settings_of(run)
    said = [why] if (why := describe_excess(settings, sizes)) else []
    if regulariser is None or method.private_warnings is None:
        return [*said, *method.warnings(settings, sizes)]
    return [*said, *method.private_warnings(settings, sizes, curvature(regulariser, theta0))]


def curvature(regulariser: Regulariser, theta0: Vector) -> float:
    """lambda mu_r at the first model: known for a squared distance, else estimated on one batch."""
    if isinstance(regulariser, SquaredDistance):
        return 2 * regulariser.weight
    memory = regulariser.first()
    rows = regulariser.batches(0)[0]
    return abs(largest_curvature(lambda theta: regulariser.pull(theta, 0, memory, [rows]).gradient, theta0, steps=8))
