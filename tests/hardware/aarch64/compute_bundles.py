"""What a bundle computes on the processor that runs this: printed as JSON, to be compared between processors.

python compute_bundles.py BUNDLE ...
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.model.model import Model


def compute(path: Path) -> dict[str, Any]:
    """Loads a bundle, which runs its golden vectors, and returns outputs, loss and gradient for them in full."""
    model = Model(path, kernels="portable")
    arrays = model.bundle.golden()
    feeds: dict[str, Any] = {name[3:]: value for name, value in arrays.items() if name.startswith("in.")}
    feeds["theta"] = model.theta0
    began = time.perf_counter()
    loss, gradient = model.run("loss_grad", feeds, None)[:2]
    return {
        "seconds": time.perf_counter() - began,
        "output": np.ravel(model.run("predict", feeds, None)[0]).tolist(),
        "loss": np.ravel(loss).tolist(),
        "gradient": np.ravel(gradient).tolist(),
    }


if __name__ == "__main__":
    found = {Path(path).name: compute(Path(path)) for path in sys.argv[1:]}
    print(json.dumps({"machine": platform.machine(), "bundles": found}))
