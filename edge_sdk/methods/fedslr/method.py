"""FedSLR. T. Huang, L. Shen, Y. Sun, W. Lin, D. Tao: "Fusion of Global and Local Knowledge for Personalized Federated
Learning", Transactions on Machine Learning Research, 2023.

All devices share one low-rank model w; each adds a sparse component p_i of its own and predicts with w + p_i.

    Algorithm 2 (partial participation)                         here
    3        a part S_t of the clients                          draw.quotas, draw.chosen
    4        factors of w_t, by the SVD of line 10              lowrank.balanced, lowrank.pack
    5-6, 12  send them, rebuild w_t                             aggregator.ask_hospitals, lowrank.unpack
    17       w_{i,t+1}, phase I, eq. (4)                        equations.local_phase
    7, 18    gamma_{i,t+1}, eq. (5)                             equations.update_auxiliary
    21-23    p_{i,t,K}, phase II, eq. (7)                       equations.local_fusion
    10       w_{t+1}, eq. (6)                                   aggregator.step, equations.aggregate
    Algorithm 3, line 6: one mean of gamma at the server        the same, with the share of devices counted

Where the paper contradicts itself or is silent: eta_g * gamma, not the gamma / eta_g of Algorithm 2; w is averaged over
S_t, gamma over all devices; the threshold of phase II is mu times the current, decayed step size; phase II starts where
this device last stopped; gamma and p start at zero; w_t is what its factors give, on every tier.

Leaves the device: w_i, summed by its hospital, and scores as sums. Never: p_i. In no message: gamma_i, but whoever
reads a device's uploads can compute it from them (docs/privacy.md).
Kind of upload: mirrored. The aggregator's mean of gamma assumes that gamma_i has moved if and only if w_i was counted.
So a device keeps `gamma` and `tried`, and each question says which upload of each receiver was counted last. A hospital
asks all that it has drawn with one message, so these read each other's names and rounds.
A node whose disk was lost remembers another round than it is told, and says so. Nobody knows its gamma_i any more, so
the mean cannot be mended: a new era begins, in which gamma is zero everywhere, as in the first round; w stays.
When few answer: S_t is those that were counted. Nobody: the same w again, with a new draw.
Devices that come during a run have gamma_i = 0 and p_i = 0: the mean of gamma, which is over M, shrinks to M / M' of
itself, and the share of devices counted is of M'. One that leaves for good takes its gamma_i with it, which nobody else
knows: if it was ever counted in this era, a new era begins. A hospital that comes or leaves is all its devices at once:
M grows or shrinks by them, and if its sum was ever counted in this era, also in the round that is on, a new era begins.
"""

from __future__ import annotations

from edge_sdk.contract.method import Method, Role, unchanged
from edge_sdk.methods.fedslr.aggregator import (
    AggregatorState,
    aggregator_close,
    aggregator_receive,
    aggregator_start,
    show,
)
from edge_sdk.methods.fedslr.device import DeviceState, device_receive, device_start, models
from edge_sdk.methods.fedslr.hospital import HospitalState, hospital_close, hospital_receive, hospital_start
from edge_sdk.methods.fedslr.messages import FedslrModel, Forgotten
from edge_sdk.methods.fedslr.settings import RECOMMENDED, SEARCH, Env, Settings, warnings
from edge_sdk.methods.fedslr.uploads import movement
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.aggregation.traffics import summed
from edge_sdk.methods.shared.membership.mirror import shortened

FEDSLR = Method(
    name="fedslr",
    summary="sparse personal parts beside a low-rank shared model",
    device=Role(device_start, device_receive, unchanged, DeviceState),
    hospital=Role(hospital_start, hospital_receive, hospital_close, HospitalState),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, AggregatorState),
    messages=(FedslrModel, Sum, Nobody, Forgotten),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    warnings=lambda settings, sizes: warnings(settings),
    mirrored={"hospital": movement, "aggregator": movement},
    shortened=shortened("gamma"),
    traffic=summed(FedslrModel, "model"),
    recommended=RECOMMENDED,
    search=SEARCH,
    adds_up=True,
    warms_up=True,
)
