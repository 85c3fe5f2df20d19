"""Bundles that reconstruct windows, for tests: one channel of a wave of any phase, which two numbers describe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.data.samples import Samples
from edge_sdk.model.tasks.reconstruction import Reconstruction
from edge_sdk.model.tasks.signal_spec import SignalSpec

SHAPE = (1, 12)
WAVES = Reconstruction(0.9)
NAMES = ("normal", "spike")
PHASES = 2 * np.pi * np.arange(12) / 12


def compile_waves(path: Path, signal: SignalSpec | None = None) -> Path:
    """Writes the bundle: 12 numbers, of which 2 are passed on."""
    import torch
    from torch import nn

    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.specification.spec import Spec

    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 2), nn.Linear(2, 12), nn.Unflatten(1, SHAPE)).eval()
    spec = Spec("waves", SHAPE, loss="mean_squared_error", task=WAVES, signal=signal)
    compile_module(net, spec).save(path)
    return path


def best_theta() -> npt.NDArray[np.float32]:
    """Parameters of the bundle with which waves are reconstructed as they are."""
    basis = np.stack([np.sin(PHASES), np.cos(PHASES)])
    parts = [basis / np.sqrt(6), np.zeros(2), basis.T / np.sqrt(6), np.zeros(12)]
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def draw(count: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Waves (count, 1, 12) of any phase and strength, with a little noise."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, count, 1))
    waves = a * np.sin(PHASES) + b * np.cos(PHASES) + random.normal(0, 0.1, (count, 12))
    return waves[:, None].astype(np.float32)


def samples(normal: int, spikes: int, seed: int = 0) -> Samples:
    """Waves without a label, and after them some with a spike, which are labelled so."""
    x = draw(normal + spikes, seed)
    x[normal:, 0, seed % 12] += 1.5
    return Samples(x, ("",) * normal + ("spike",) * spikes)
