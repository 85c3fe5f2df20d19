"""FedBN. X. Li, M. Jiang, X. Zhang, M. Kamp, Q. Dou: "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization", ICLR 2021 (arXiv:2102.07623v2).

FedAvg in which the scale and shift of normalisation layers stay on each device.

    Algorithm 1                                                 here
    local updates of all layers                                 partial.joint_phase
    layers other than normalisation: mean over the clients      partial.step
    normalisation layers: each client's own                     partial.device

Means are not weighted, as printed. The paper is about batch normalisation; slots of the kind "norm" are the parameters
of any normalisation layer here (the models of this project have group and layer normalisation, whose statistics
come from the sample itself). Each device's slots begin as in the model that the run begins with. `PAPER` is its step
size, with one local epoch.
A model without normalisation layers is refused: `personal_slots` would have to name other slots, and that is FedPer.

Leaves the device: its shared slots, summed by its hospital, and scores as sums. Never: its normalisation slots. Kind of
upload: memoryless.
When few answer: the mean is over those who did. Nobody: the same again, with a new draw. A device's own slots move
whenever it has trained, whether its upload was counted or not.
A lost disk: that device's slots start again from the run's first model; nothing else notices.
"global" in reports is the shared slots with the normalisation that the run began with.
Devices that come or leave during a run: the draw is over those that there are; own slots begin as in round 0.
Hospitals: the same, with all their devices, whose own slots they bring along when they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from edge_sdk.methods.shared.training import partial
from edge_sdk.methods.shared.training.partial import PartTraining


@dataclass(frozen=True, kw_only=True)
class Settings(PartTraining):
    """Hyper-parameters: those of every method that shares a part of the model."""

    personal_slots: str = "norm"
    weighting: str = "uniform"


PAPER: Mapping[str, Any] = {"eta_l": 0.01, "local_epochs": 1}
RECOMMENDED: Mapping[str, Any] = {"eta_l": 0.1, "local_epochs": 5}


FEDBN = replace(
    partial.method("fedbn", partial.joint_phase, Settings),
    summary="averaging, with own statistics",
    paper=PAPER,
    recommended=RECOMMENDED,
)
