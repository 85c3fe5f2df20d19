"""The aggregator's heavy steps on several ranks: whole layers dealt out by cost, and rows of a batch.

Two ways to call them. In a simulation every rank plays the aggregator and has the same arguments (`shared`). A service
has one aggregator, rank 0; the others wait (`assist`), are told the arguments (`led`), and then do their part.
What comes back is put together in the order of the ranks. A layer is decomposed as on one rank, to the bit; a sum over
rows is rounded differently, by less than 1e-6, so that a simulation, which comes to the same bits on however many
ranks, has each of them take all rows (`exactly`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from edge_sdk.algebra.prox import Svd
from edge_sdk.algebra.vectors import Vector
from edge_sdk.methods.fedal.discriminator import DiscriminatorKernels, Mask, Widths
from edge_sdk.methods.fedal.distillation import Floats, Labels
from edge_sdk.simulation.processes.ranks import Ranks

Kernels = Mapping[str, Any]
Arrays = dict[str, Any]


def shared(kernels: Kernels, ranks: Ranks, exactly: bool = False) -> dict[str, Any]:
    """Kernels that all ranks call with the same arguments.

    Args:
        exactly: share only what comes out as on one rank, to the bit.
    """
    found = dict(kernels)
    if ranks.count > 1 and "svt" in found:
        found["svt"] = SharedSvt(found["svt"], ranks)
    if ranks.count > 1 and "discriminator" in found and not exactly:
        found["discriminator"] = share_rows(found["discriminator"], ranks)
    return found


# Layers ---------------------------------------------------------------------------------------------------------
@dataclass
class SharedSvt:
    """Singular value thresholding whose layers are dealt out."""

    svt: Any
    ranks: Ranks

    def __call__(self, x: Vector, threshold: float) -> Svd:
        found: Svd = self.svt(x, threshold)
        return found

    def layers(self, matrices: Mapping[str, Vector], threshold: float, near: Mapping[str, Vector]) -> dict[str, Svd]:
        """The decompositions of all layers; each rank makes some of them."""
        whose = deal({name: cost(x) for name, x in matrices.items()}, self.ranks.count)
        mine = {name: x for name, x in matrices.items() if whose[name] == self.ranks.number}
        own = self.decompose(mine, threshold, {name: near[name] for name in mine if name in near})
        arrays = {f"{part}.{name}": array for name, svd in own.items() for part, array in zip("asb", svd, strict=True)}
        every = [read_arrays(data) for data in self.ranks.gather(write_arrays(arrays))]
        return {name: tuple(every[whose[name]][f"{part}.{name}"] for part in "asb") for name in matrices}

    def decompose(
        self, matrices: Mapping[str, Vector], threshold: float, near: Mapping[str, Vector]
    ) -> Mapping[str, Svd]:
        """This rank's layers."""
        layers = getattr(self.svt, "layers", None)
        if layers is None:
            return {name: self.svt(x, threshold) for name, x in matrices.items()}
        found: Mapping[str, Svd] = layers(matrices, threshold, near)
        return found


def cost(x: Vector) -> float:
    """What a decomposition costs, in proportion: long times short squared."""
    return float(max(x.shape) * min(x.shape) ** 2)


def deal(costs: Mapping[str, float], count: int) -> dict[str, int]:
    """Name -> rank: the dearest first, each to the rank that has least to do; the same on all ranks."""
    loads, found = [0.0] * count, dict[str, int]()
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        found[name] = loads.index(min(loads))
        loads[found[name]] += costs[name]
    return found


# Rows -----------------------------------------------------------------------------------------------------------
def share_rows(kernels: DiscriminatorKernels, ranks: Ranks) -> DiscriminatorKernels:
    """FedAL's discriminator, data-parallel: each rank has a stretch of the rows."""

    def part(rows: int) -> slice:
        return slice(rows * ranks.number // ranks.count, rows * (ranks.number + 1) // ranks.count)

    def ascent(w: Vector, widths: Widths, f: Floats, who: Labels, there: Mask, temperature: float) -> Vector:
        own = part(len(f))
        share = (own.stop - own.start) / len(f)
        mine = kernels.ascent(w, widths, f[own], who[own], there, temperature) if share else np.zeros_like(w)
        every = [read_arrays(data)["g"] for data in ranks.gather(write_arrays({"g": share * mine.astype(np.float64)}))]
        return np.asarray(np.sum(every, axis=0), w.dtype)

    def feedback(
        w: Vector, widths: Widths, f: Floats, who: Labels, there: Mask, temperature: float
    ) -> tuple[Floats, Floats, Mask]:
        own = part(len(f))
        found = kernels.feedback(w, widths, f[own], who[own], there, temperature) if own.start < own.stop else ()
        every = [read_arrays(d) for d in ranks.gather(write_arrays({str(i): x for i, x in enumerate(found)}))]
        u, g, right = (np.concatenate([one[key] for one in every if key in one]) for key in "012")
        return u, g, right

    return DiscriminatorKernels(ascent, feedback)


# A service ------------------------------------------------------------------------------------------------------
END = "end"


def led(kernels: Kernels, ranks: Ranks | None) -> dict[str, Any]:
    """The kernels of rank 0, which tells the others what to do: see `assist`."""
    if ranks is None or ranks.count == 1:
        return dict(kernels)
    inner, found = shared(kernels, ranks), dict(kernels)
    if "svt" in found:
        found["svt"] = LedSvt(inner["svt"], ranks)
    if "discriminator" in found:
        rows = inner["discriminator"]
        found["discriminator"] = DiscriminatorKernels(
            led_rows("ascent", rows.ascent, ranks), led_rows("feedback", rows.feedback, ranks)
        )
    return found


@dataclass
class LedSvt:
    """The `svt` of rank 0."""

    inner: SharedSvt
    ranks: Ranks

    def __call__(self, x: Vector, threshold: float) -> Svd:
        return self.inner(x, threshold)

    def layers(self, matrices: Mapping[str, Vector], threshold: float, near: Mapping[str, Vector]) -> dict[str, Svd]:
        told = {f"x.{name}": x for name, x in matrices.items()} | {f"near.{name}": x for name, x in near.items()}
        self.ranks.tell(write_arrays({"do": "svt", "threshold": threshold, **told}))
        return self.inner.layers(matrices, threshold, near)


ROWS = ("w", "widths", "f", "who", "there", "temperature")


def led_rows(name: str, kernel: Callable[..., Any], ranks: Ranks) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        ranks.tell(write_arrays({"do": name, **dict(zip(ROWS, given, strict=True))}))
        return kernel(*given)

    return call


def assist(kernels: Kernels, ranks: Ranks) -> None:
    """Does what rank 0 tells, until that ends."""
    inner = shared(kernels, ranks)
    while (told := read_arrays(ranks.tell(b"")))["do"] != END:
        if told["do"] == "svt":
            matrices, near = (
                {key.removeprefix(head): x for key, x in told.items() if key.startswith(head)}
                for head in ("x.", "near.")
            )
            inner["svt"].layers(matrices, float(told["threshold"]), near)
        else:
            given: Sequence[Any] = [told[key] for key in ROWS]
            widths, temperature = tuple(map(int, told["widths"])), float(told["temperature"])
            getattr(inner["discriminator"], str(told["do"]))(given[0], widths, *given[2:5], temperature)


def dismiss(ranks: Ranks) -> None:
    """Ends the `assist` of all others."""
    ranks.tell(write_arrays({"do": END}))


# Bytes ----------------------------------------------------------------------------------------------------------
def write_arrays(arrays: Arrays) -> bytes:
    """Arrays by name as bytes (NPZ)."""
    file = BytesIO()
    named: Any = {name: np.asarray(value) for name, value in arrays.items()}
    np.savez(file, **named)
    return file.getvalue()


def read_arrays(data: bytes) -> Arrays:
    """What `write_arrays` was given; nothing in it is executed."""
    with np.load(BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
