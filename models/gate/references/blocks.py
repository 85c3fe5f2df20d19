"""The blocked layout of this machine's onnxruntime."""

from __future__ import annotations

from functools import cache

from edge_sdk.model.bundle import BundleError
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.model.sessions.self_test import check_layout
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.passes.convolutions.blocked import BLOCKS, write_probe


@cache
def find_block() -> int:
    """Channels in a block of onnxruntime's layout on this machine; 0: it has none that graphs are written for."""
    return next((b for b in BLOCKS if has_blocks(b)), 0)


def has_blocks(b: int) -> bool:
    """True if the probe for blocks of b channels passes, as on devices; a build without the operator refuses it."""
    probe = Target(write_probe(b), ["y"])
    try:
        session = OnnxSession("probe", probe.model().SerializeToString(), 1)
        check_layout(session, {"inputs": [{"shape": list(probe.graph.shape("x"))}]})
    except BundleError:
        return False
    return True
