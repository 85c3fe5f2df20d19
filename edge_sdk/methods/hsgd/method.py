"""HSGD. C. Yu, S. Shen, S. Wang, K. Zhang, H. Zhao: "Communication-Efficient Hybrid Federated Learning for E-health
with Horizontal and Vertical Data Partitioning".

A patient's features are split: X2 at the wearable device, X1 at the hospital, the label at both. The model is
yhat = combined(theta_0; h1(theta_1; X1), h2(theta_2; X2)), and theta is [theta_0; theta_1; theta_2]. A hospital is two
things in one node: it learns theta_0 and theta_1, and it is the edge node that averages theta_2 over its group.

    Algorithm 1                                                 here
    draw A_m, every Q iterations                                equations.draw_devices, draw_minibatch
    zeta_2 up; theta_0 and own row of zeta_1 down               hospital.begin_exchange, begin_interval; device.embed
    (5), (6)  theta_0, theta_1 with stale zeta_2, Q times       equations.hospital_steps, while the devices work (ME)
    (7)       theta_2 with stale theta_0, zeta_1, Q times       equations.device_steps
    (1)       theta_2 over the A_m that has trained             hospital.end_interval
    (2)       theta over the groups, every P iterations         aggregator.aggregate
    S1, S2, S3, Theorem 1                                       plan.py
    C-HSGD: theta_0, zeta_1 and zeta_2 by their largest entries compression.py
    (not in the paper) all of these and theta_2 as integers     row_integers.py, the setting bits

Two questions to the devices per interval, so 2 P / Q per global round: the aggregator's deadline has to be longer than
that many of a hospital's. P, Q and eta come with its question, so it may change them at every global round.

Where the paper contradicts itself or is silent: first the local average, then the global one; over the A_m that has
trained, not the one drawn next; T updates, not T + 1; |A_m| = max(1, alpha K_m rounded); weights K_m / K; each device
is sent its own row of zeta_1 only. A device may hold several samples: then a sample is what counts, not a device.

Baselines: C-HSGD and C-TDCD are `keep`; TDCD is one hospital with all patients; JFL is `copies = "pair"`, where each
device and its hospital train a model of their own that meets the others in (2) only; P = Q = alpha = 1 is centralised.

The pretraining (Settings.pretraining) compares gradients of one mini-batch. Its uploads carry these gradients in place
of models. Two rounds in which different devices took part are not compared.

Leaves the device: zeta_2, theta_2. Leaves the hospital: downwards theta_0, theta_2 and to each device its rows of
zeta_1; upwards its group's model and scores as sums. Never: features, labels; to a device, theta_1. An evaluation
shows a device theta_0, theta_2, and zeta_1 of the samples that it is judged on.
Kind of upload: memoryless. A device whose zeta_2 does not come is not in the mini-batch of this interval; one whose
theta_2 does not come back is not in (1), but its zeta_2 was in (5) and (6). None: the group rests for this interval, or
keeps theta_2. A group that rested all round, or missed it, is not in (2), and is overwritten next time. No group: the
same model again, with new draws. The iteration t then stands still, so step sizes do not depend on loss. Groups and
devices of unequal size: weighted with their samples.
Devices that come or leave for good during a run wait for the next one: groups and K count the patients of the start, of
each of whom the hospital holds its part. So do hospitals: each is a group of (2).
"""

from __future__ import annotations

from dataclasses import replace

from edge_sdk.contract.method import Method, Role, unchanged
from edge_sdk.methods.hsgd import plan as hsgd_plan
from edge_sdk.methods.hsgd import settings as hsgd_settings
from edge_sdk.methods.hsgd.aggregator import (
    AggregatorState,
    aggregator_close,
    aggregator_receive,
    aggregator_start,
    show,
)
from edge_sdk.methods.hsgd.device import DeviceState, device_receive, device_start, models, scorer
from edge_sdk.methods.hsgd.hospital import HospitalState, hospital_close, hospital_receive, hospital_start
from edge_sdk.methods.hsgd.messages import Embed, EmbedByIntegers, Embedding, HsgdModel, Moved, OwnSteps, Train, Trained
from edge_sdk.methods.hsgd.plan import Planned
from edge_sdk.methods.hsgd.settings import SEARCH, Env, Settings
from edge_sdk.methods.shared.aggregation.gather import Nobody, Sum
from edge_sdk.methods.shared.aggregation.plain import always_plain
from edge_sdk.methods.shared.aggregation.traffics import always_floats
from edge_sdk.methods.shared.membership.changing import always_fixed


def forward(env: Env, m: HsgdModel, device: str, final: bool) -> HsgdModel:
    """A device cannot judge alone: its hospital adds zeta_1 of the samples that it is judged on, and keeps theta_1.

    With theta_1 a device could compute the hospital's features back from zeta_1, of all its patients.
    """
    own, theta = env.split.blocks[1], m.theta.copy()
    theta[own] = 0
    return replace(m, theta=theta, zeta_1=None if env.h1_judged is None else env.h1_judged(m.theta[own], device, final))


HSGD = Method(
    name="hsgd",
    summary="a network split between patient, hospital and aggregator",
    personal="",
    device=Role(device_start, device_receive, unchanged, DeviceState),
    hospital=Role(hospital_start, hospital_receive, hospital_close, HospitalState),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, AggregatorState),
    messages=(HsgdModel, Embed, EmbedByIntegers, Embedding, Train, Trained, Moved, OwnSteps, Sum, Nobody, Planned),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    kernels="split",
    policies=hsgd_settings.policies,
    warnings=hsgd_plan.warnings,
    forward=forward,
    scorer=scorer,
    traffic=always_floats("an iteration's messages are what towers make of samples, and not sums"),
    plain_sums=always_plain("a device's outputs enter its hospital's steps before anything is added up", "hospital"),
    search=SEARCH,
    fixed=always_fixed("a hospital holds its part of each patient's samples from the start, and K counts them"),
)
