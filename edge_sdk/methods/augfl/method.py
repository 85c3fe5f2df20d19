"""AugFL. S. Yue, Z. Qin, Y. Deng, J. Ren, Y. Zhang, J. Zhang: "AugFL: Augmenting Federated Learning with Pretrained
Models"; extends "Inexact-ADMM Based Federated Meta-Learning for Fast and Continual Edge Learning", MobiHoc 2021.

    minimise  sum_i w_i L_i(theta - alpha grad L_i(theta; support); query) + lambda R_h(theta, theta_p)      eq. (14)

All devices learn one model that becomes a good personal one after a step on a device's support set. The aggregator
pulls it to a pretrained model theta_p of its own, which nobody else sees.

    Algorithm 1                                                 here
    phi_i, eq. (7); g_i, eq. (10)                               meta.meta_gradient
    theta_i, eq. (11), with the old dual                        equations.primal_step
    y_i, eq. (12), with the new primal                          equations.dual_step
    theta^{t+1}, eq. (13), with grad R_h at the old theta^t     aggregator.step
    adaptation at seen and unseen devices                       meta.adapted

Where the paper is silent: rounds are 0 .. T-1; delta_t counts from 1; y_i^-1 is 0 (Settings.y_init); w_i is a share of
the samples of all training devices, which are counted before the first round; gradients are of full sets.
That y_i = -w_i G_i, theta_i = theta + (y_i - y_i^-) / rho_i, and S^t = lambda grad R_h(theta^t) - sum_i y_i is the
residual of stationarity, follows from these equations.

Leaves the device: theta_i and y_i, u_i, or y_i (Settings.upload, sums.py), and scores. Leaves the hospital: their
sums. Never leaves the aggregator: theta_p, its data and features, lambda, R_h. With lambda = 0 it has none of them.
Kind of upload: replaceable. Who is not asked, or is silent, counts with its latest upload, as in asynchronous ADMM. And
mirrored: y_i moves if and only if its upload was counted, so a device keeps `y` and `tried`, and each question tells
which upload of its receiver was counted last.
Nobody answers: the same model again. A device whose training has diverged says that it has nothing.
Where nobody may look at a single upload (run.uploads.unopened, secret), adding.py stands in for this.
Devices that come during a run enter the sums with their first upload, with y_i^- = 0; their samples count in w_i from
then on. Who leaves for good is taken out of the sums, u_i and y_i and rho_i, at its hospital's next answer, which sends
both sums. A hospital enters u, y, rho and the samples that w_i is a share of with its first answer, and is taken out of
all four when it leaves; when it returns it sends both sums again. With unseen > 0 all wait for the next run.
"""

from __future__ import annotations

from dataclasses import replace

from edge_sdk.contract.method import Method, Role, unchanged
from edge_sdk.methods.augfl.adding import adding
from edge_sdk.methods.augfl.aggregator import (
    AggregatorState,
    aggregator_close,
    aggregator_receive,
    aggregator_start,
    show,
)
from edge_sdk.methods.augfl.device import DeviceState, device_receive, device_start, models
from edge_sdk.methods.augfl.hospital import HospitalState, hospital_close, hospital_receive, hospital_start
from edge_sdk.methods.augfl.messages import AugflModel, Census, Counted, Sums, Upload
from edge_sdk.methods.augfl.settings import SEARCH, Env, Settings
from edge_sdk.methods.augfl.sums import traffic
from edge_sdk.methods.augfl.theory import warnings
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.aggregation.plain import always_plain
from edge_sdk.methods.shared.membership.changing import fixed_while_unseen
from edge_sdk.methods.shared.training.meta import ADAPTED

AUGFL = Method(
    name="augfl",
    summary="a private model of the aggregator helps",
    personal=ADAPTED,
    device=Role(device_start, device_receive, unchanged, DeviceState),
    hospital=Role(hospital_start, hospital_receive, hospital_close, HospitalState),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, AggregatorState),
    messages=(Census, Counted, AugflModel, Upload, Sums, Nobody),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    warnings=warnings,
    private_warnings=warnings,
    search=SEARCH,
    fixed=fixed_while_unseen,
    rounds_over=lambda state: int(state.round),
    traffic=traffic,
    plain_sums=always_plain("a hospital leaves out of its sums what follows from the others", "aggregator"),
)
AUGFL = replace(AUGFL, adding=adding(AUGFL))
