"""The families that a method can name."""

from __future__ import annotations

from collections.abc import Mapping

from edge_sdk.nodes.kernels.companions import COMPANIONS
from edge_sdk.nodes.kernels.family import Family
from edge_sdk.nodes.kernels.outputs import OUTPUTS
from edge_sdk.nodes.kernels.plain import PLAIN
from edge_sdk.nodes.kernels.rollout import VERSIONS
from edge_sdk.nodes.kernels.split import SPLIT

FAMILIES: Mapping[str, Family] = {
    "plain": PLAIN,
    "split": SPLIT,
    "outputs": OUTPUTS,
    "companions": COMPANIONS,
    "rollout": VERSIONS,
}
"""Value of `Method.kernels` -> what the nodes do for it."""
