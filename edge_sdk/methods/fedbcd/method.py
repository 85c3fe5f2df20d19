"""FedBCD and FedBCD-I. R. Wu, A. Scaglione, H.-T. Wai, N. Karakoc, K. Hreinsson, W.-K. Ma: "Federated Block Coordinate
Descent Scheme for Learning Global and Personalized Models", AAAI 2021.

    minimise  sum_n sum_{i at n} g_i(x_i) + gamma_i / 2 ||x_i - z_n||^2   over x_i in X, all z_n equal           eq. (2)

Each device has a model x_i of its own, pulled to the z_n of its hospital (a cloud server of the paper, whose
coordinator is our aggregator).

    Algorithm 1                                                 here
    Q_n^(t), a random subset of each hospital's devices         Settings.taking_part, draw.chosen
    x_i: accelerated stochastic projected gradient, eq. (4)     equations.edge_update
    z, eq. (5), on sums                                         equations.cloud_step; sync: aggregator.step_model
    w_n, z_n, eq. (6)                                           consensus.apply_mixing; hospital.take_mixed
    Algorithm 2 (FedBCD-I): train without the penalty           device.train, when called or on its own clock
    pull to z_n, only those who answered count                  equations.pull

Settings.cloud: "sync", "first-b" or "rigorous" (section 3.1, appendix A; consensus.py). In sync the aggregator holds z,
and a hospital's own step is 0. Otherwise hospitals hold z_n and step; of K_z > 1 repetitions the aggregator makes all
but the last step of the members, on their sums: the same numbers without asking again.

Where the paper contradicts itself or is silent: eta_z = 0.5 is a share of the limit in assumption A4 (as it stands, it
diverges); sums are weighted by gamma_i; K_i is uniform on 1..K_x, drawn anew by each device that trains; FedBCD-I sums
over those who answered, and keeps the last two iterates, be they of a training or of a pull.

Leaves the device: gamma_i x_i, and scores as sums. It is summed in sync; otherwise z_n leaves the hospital.
Kind of upload: replaceable in FedBCD: silent devices and hospitals count with what was last heard of them, at first the
common start, so a lost answer is merely old; with selection = "fastest" x_i moves only if its answer was counted. A
hospital that has lost its disk counts a device that it has not heard since with its own z_n, which such a device leaves
where it is, and asks it in the next phase. A device without samples has x_i = z_n. Sums are exact integers (exact.py):
replacing a summand leaves no drift, so a running sum equals the sum made anew. Memoryless in FedBCD-I: nobody answers,
nothing moves.
Where nobody may look at a single upload (run.uploads.unopened, secret), adding.py stands in for this.
Devices that come during a run enter S_n and G_n at the common start until they are heard, as all did in the first round
(FedBCD-I: with their first answer). Who leaves for good is taken out of S_n and G_n at its hospital's next close.
A hospital that comes in "sync" enters the sums over n as its devices at the common start, eta_z follows from G, and its
own S_n and G_n from its first answer on; one that leaves takes S_n and G_n out of them at once, and brings them along
when it returns. With a cloud of "first-b" or "rigorous" it waits for the next run: only who was asked at the start is
ever ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import Method, Role, unchanged
from edge_sdk.contract.round import Policy
from edge_sdk.contract.traffic import VectorTraffic
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedbcd.adding import adding
from edge_sdk.methods.fedbcd.aggregator import aggregator_close, aggregator_receive, aggregator_start, show
from edge_sdk.methods.fedbcd.device import (
    DeviceState,
    alone,
    device_receive,
    device_start,
    models,
    offline_device_close,
    offline_device_receive,
)
from edge_sdk.methods.fedbcd.hospital import HOSPITAL
from edge_sdk.methods.fedbcd.messages import FedbcdModel
from edge_sdk.methods.fedbcd.settings import (
    FIRST_B,
    OFFLINE_SEARCH,
    SEARCH,
    SYNC,
    Env,
    OfflineEnv,
    OfflineSettings,
    Settings,
)
from edge_sdk.methods.fedbcd.sums import feasible
from edge_sdk.methods.fedbcd.theory import warnings
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.consensus.consensus import Coordinator, Isolated, Mixed, Ready
from edge_sdk.methods.shared.membership.changing import fixed_unless_in_step, unless_in_step


def policies(
    s: Settings, sizes: Mapping[str, int], deadline: float, hospital_deadline: float, evaluate_every: int = 0
) -> dict[str, Policy]:
    """Tier -> when its rounds are over.

    Args:
        sizes: at the aggregator: hospital -> number of its devices; at a hospital: its own name -> their number.
        deadline: seconds after which the aggregator goes on with the hospitals that are ready.
        hospital_deadline: seconds after which a hospital goes on with the devices that have answered.
        evaluate_every: rounds between evaluations on all devices; 0: only at the end.

    Raises:
        UsageError: evaluations would interrupt hospitals that work on their own clock.
    """
    if s.cloud != SYNC and evaluate_every:
        raise UsageError(
            f"evaluate_every = {evaluate_every} with cloud = {s.cloud!r}: an evaluation of all devices would interrupt "
            "hospitals at work; expected 0 (at the end only), each round tells the scores of those that took part"
        )
    need = None if s.cloud == SYNC else s.ready
    fastest = s.taking_part(max(sizes.values())) if s.selection == "fastest" else None
    idle = s.offline_every if isinstance(s, OfflineSettings) else inf
    return {
        "aggregator": Policy(need=need, quorum=1, deadline=deadline, keep_late=s.cloud == FIRST_B),
        "hospital": Policy(need=fastest, deadline=hospital_deadline),
        "device": Policy(idle=idle),
    }


def plain_sums(s: Settings, tier: str, rule: str) -> str:
    """The reason why hospitals must be mixed as they are; a hospital may add up its devices by any rule."""
    if tier == "hospital" or s.cloud == SYNC:
        return ""
    if s.graph != "complete":
        return f"with graph = {s.graph!r} each hospital has a mean of its own, over its neighbours"
    return f"cloud_steps = {s.cloud_steps} mixes models and sums in turns" if s.cloud_steps > 1 else ""


def traffic(s: Settings) -> VectorTraffic | str:
    """Vectors as integers. Hospitals open them: they keep each device's latest."""
    if s.cloud != SYNC:
        return f"with cloud = {s.cloud!r} each hospital has a model of its own, and no reference is common to all"
    up: dict[type, tuple[str, ...]] = {Sum: ("total",), Ready: ("sums.total",)}
    down: dict[type, tuple[str, ...]] = {Mixed: ("model",), FedbcdModel: ("model",)}
    return VectorTraffic(down=down, up=up, anchor=near_model, mend=feasible, adds=False, moves=False)


def near_model(env: Any, who: str, upload: Any, path: str, z: Vector) -> Vector:
    """What lies near gamma_i x_i, or a sum of them: z, as often."""
    weight: float = upload.sums.weight if path == "sums.total" else upload.weight
    return weight * z


FEDBCD = Method(
    name="fedbcd",
    summary="block coordinate descent between hospitals",
    device=Role(device_start, device_receive, unchanged, DeviceState),
    hospital=HOSPITAL,
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, Coordinator),
    messages=(Mixed, Isolated, FedbcdModel, Sum, Ready, Nobody),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    policies=policies,
    warnings=warnings,
    alone=alone,
    plain_sums=plain_sums,
    traffic=traffic,
    search=SEARCH,
    fixed_hospitals=fixed_unless_in_step,
    late_counts=unless_in_step,
)
FEDBCD = replace(FEDBCD, adding=adding(FEDBCD))


FEDBCD_I = replace(
    FEDBCD,
    name="fedbcd-i",
    summary="fedbcd with inexact steps",
    device=Role(device_start, offline_device_receive, offline_device_close, DeviceState),
    settings=OfflineSettings,
    env=OfflineEnv,
    search=OFFLINE_SEARCH,
    adding=None,
)
FEDBCD_I = replace(FEDBCD_I, adding=adding(FEDBCD_I))
