"""Public inputs: samples without labels that every device of a run has, so that devices can compare their outputs.

A run names them by the sha256 of their file; a device that has other ones is told so, and takes no part.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.samples import read_arrays
from edge_sdk.errors import UsageError


@dataclass(frozen=True)
class Public:
    """Inputs that all devices of a run know.

    Attributes:
        x: float32 (P, ...), one row for each input.
        sha256: of the file, hex.
    """

    x: npt.NDArray[np.float32]
    sha256: str

    def shaped(self, shape: tuple[int, ...], whose: str) -> npt.NDArray[np.float32]:
        """Arranges the inputs as a model wants them; the numbers stay the same.

        Args:
            whose: name of the node, for the error.

        Raises:
            UsageError: they are of another size.
        """
        if self.x[:1].size != int(np.prod(shape)):
            raise UsageError(f"{whose}: public inputs of shape {self.x.shape[1:]}, the bundle's input is {shape}")
        return self.x.reshape(len(self.x), *shape)


def read_public(path: str | Path) -> Public:
    """Reads an NPZ file with one array, `x`.

    Raises:
        UsageError: it cannot be read, or is not as it should be.
    """
    path = Path(path)
    x = read_arrays(path, ("x",))["x"]
    if x.dtype != np.float32 or x.ndim < 2 or not len(x):
        raise UsageError(f"{path}: x is {x.dtype} {x.shape}, expected float32 (P, ...) with at least one row")
    if not np.isfinite(x).all():
        raise UsageError(f"{path}: x has a value that is not finite")
    return Public(x, hashlib.sha256(path.read_bytes()).hexdigest())


def store_public(path: Path, x: npt.NDArray[np.float32]) -> Path:
    """Writes what `read_public` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, x=np.ascontiguousarray(x, np.float32))
    return path
