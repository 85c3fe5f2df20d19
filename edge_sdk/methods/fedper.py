"""FedPer. M. G. Arivazhagan, V. Aggarwal, A. K. Singh, S. Choudhary: "Federated Learning with Personalization Layers",
2019 (arXiv:1912.00818v1).

All devices share the body W_B of a model; each has a head W_P of its own, the last layers. Both are trained together.

    Algorithm 1 (client)                                        here
    line 3   receive W_B, merge it with W_Pj                    partial.whole
    line 4   SGD on both, several epochs                        partial.joint_phase
    line 5   send W_Bj                                          partial.upload
    Algorithm 2 (server)
    line 5   W_B <- sum of n_j / n W_Bj                         partial.step

The paper lets every client take part in every round; here `participation` may ask for fewer. Each W_Pj begins as in the
model that the run begins with. The paper's K_P = 1 personal layers is the default, `personal_slots` names others.
`PAPER` is what Flower's replication (adap/flower, baselines/fedper, conf/cifar10.yaml) has for its CIFAR-10 figures.

Leaves the device: n_j W_Bj, summed by its hospital, and scores as sums. Never: W_Pj. Kind of upload: memoryless.
When few answer: the mean is over those who did. Nobody: the same W_B again, with a new draw. W_Pj moves whenever its
device has trained, whether its upload was counted or not.
A lost disk: that device's W_Pj starts again from the run's first model; nothing else notices.
"global" in reports is W_B with the head that the run began with: no classifier, but what a newcomer starts from.
Devices that come or leave during a run: the draw is over those that there are; a new head begins as in round 0.
Hospitals: the same, with all their devices, whose heads they bring along when they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edge_sdk.methods.shared.training import partial

PAPER: Mapping[str, Any] = {"eta_l": 0.01, "decay": 1.0, "weight_decay": 0.0, "batch": 128, "local_epochs": 4}
RECOMMENDED: Mapping[str, Any] = {"eta_l": 0.1, "local_epochs": 5}


FEDPER = replace(
    partial.method("fedper", partial.joint_phase),
    summary="shared body, own last layers",
    paper=PAPER,
    recommended=RECOMMENDED,
)
