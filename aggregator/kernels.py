"""Torch twins of what is slow on an aggregator: same names and arguments as in edge_sdk, numpy in and out.

They run on a GPU where there is one. Equal to the numpy versions within the rounding of their element type.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

import torch

from aggregator import discriminator
from aggregator.singular import FastSvt
from edge_sdk.algebra.prox import Svd
from edge_sdk.algebra.vectors import Vector
from edge_sdk.errors import UsageError

DEVICES = ("auto", "cpu", "cuda")
FULL, FAST = "full", "fast"
SVTS = (FULL, FAST)
"""Ways of singular value thresholding: full decompositions, or what aggregator/singular.py shows to be as good."""


def processor(device: str) -> str:
    """The name of a processor for torch, "cpu" or "cuda"; "auto" is a GPU where there is one.

    Raises:
        UsageError: another word, or a GPU is asked for and there is none.
    """
    if device not in DEVICES:
        raise UsageError(f"device = {device!r}: one of {', '.join(DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device = 'cuda': torch finds no GPU here; 'auto' or 'cpu' would do")
    found = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if found == "cuda":  # by itself, torch rounds the factors of convolutions there to 10 bits
        torch.backends.cudnn.allow_tf32 = False
    return found


def svt(x: Vector, threshold: float, device: str = "auto") -> Svd:
    """The decomposition of argmin_z 1/2 ||z - x||_F^2 + threshold * ||z||_*; see prox.svt."""
    a, s, bt = torch.linalg.svd(torch.tensor(x, device=processor(device)), full_matrices=False)
    rank = int((s > threshold).sum())
    kept = a[:, :rank], s[:rank] - threshold, bt[:rank].T
    return tuple(part.cpu().numpy() for part in kept)


def kernels_on(device: str = "auto", thresholding: str = FULL) -> dict[str, Any]:
    """All kernels by name: "svt" and "discriminator".

    Args:
        thresholding: one of SVTS.

    Raises:
        UsageError: there is no such device, or it is not in this machine; no such way.
    """
    where = processor(device)
    if thresholding not in SVTS:
        raise UsageError(f"svt = {thresholding!r}: one of {', '.join(SVTS)}")
    of_matrices = partial(svt, device=where) if thresholding == FULL else FastSvt(where)
    return {"svt": of_matrices, "discriminator": discriminator.kernels(where)}


def kernels_for(env: type, device: str = "auto", thresholding: str = FULL) -> dict[str, Any]:
    """The kernels of `kernels_on` that an env has fields for; raises what it raises."""
    names = {f.name for f in fields(env)}
    return {name: kernel for name, kernel in kernels_on(device, thresholding).items() if name in names}
