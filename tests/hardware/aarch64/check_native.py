"""Native products on the processor that runs this: compared with numpy's, and at work in bundles; printed as JSON.

python check_native.py BUNDLE ...
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import numpy as np

from edge_sdk.model.model import Model
from edge_sdk.model.sessions.native import compare_product, describe_library, find_library, write_probe
from edge_sdk.model.sessions.onnx_session import OnnxSession

SIZES = (1, 3, 4, 7, 8, 9, 17, 33, 61, 257)


def check_products() -> int:
    """Compares products of all these sizes, whose numbers of rows, depths and columns differ; returns how many."""
    session, rng, count = OnnxSession("products", write_probe(), 2, library=find_library()), np.random.default_rng(0), 0
    for rows in SIZES:
        for depth in SIZES:
            for columns in SIZES:
                a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, depth), (depth, columns)))
                bias = rng.standard_normal(columns).astype(np.float32)
                product, sum_ = session.run({"a": a, "b": b, "b_rows": np.ascontiguousarray(b.T), "bias": bias})
                compare_product(product, a, b, np.zeros_like(bias))
                compare_product(sum_, a, b, bias)
                count += 2
    return count


if __name__ == "__main__":
    models = [Model(Path(path), kernels="native") for path in sys.argv[1:]]
    kernels = {model.name: model.kernels for model in models}
    said = {"machine": platform.machine(), "library": describe_library(), "kernels": kernels}
    print(json.dumps(said | {"products": check_products(), "auto": Model(Path(sys.argv[1])).kernels}))
