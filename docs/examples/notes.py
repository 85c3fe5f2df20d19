"""Samples that are cut already, and the network for them: notes as word numbers, with a mood each.

Written as a folder of NPZ files, one for each device, for `auscult replay notes --bundle words.bundle`.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn


class Words(nn.Module):
    """Twelve word numbers, and which of them count, to two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 16), nn.Linear(16, 2)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        counted = self.words(ids) * mask.to(torch.float32).unsqueeze(-1)
        return self.head(counted.mean(1))  # type: ignore[no-any-return]


if __name__ == "__main__":
    random = np.random.default_rng(1)
    Path("notes").mkdir(exist_ok=True)
    for name in ("ann", "bob"):
        arrays = {}
        for part, count in (("", 40), ("validation_", 20), ("held_out_", 20)):
            glad = random.integers(0, 2, count)
            arrays[part + "x.ids"] = random.integers(1, 25, (count, 12)) + 24 * glad[:, None]
            arrays[part + "x.mask"] = (random.random((count, 12)) < 0.8).astype(int)
            arrays[part + "labels"] = np.where(glad, "glad", "sad")
        np.savez(f"notes/{name}.npz", **arrays)  # type: ignore[arg-type]
        print(f"notes/{name}.npz")
