"""FedAL. P. Han, X. Shi, J. Huang: "FedAL: Black-Box Federated Knowledge Distillation Enabled by Adversarial Learning",
arXiv 2311.16584.

Every device trains a model of its own, of any architecture. They learn from each other through their outputs on public
inputs that all devices have; a discriminator at the aggregator makes them alike. There is no global model.

    Algorithm 1                                                     here
    local stage     tau steps on CE + r_loc, (14) (15)              device.local_stage
    transfer stage  tau exchanges, each:
      (a) f_n on the common batch P^{t,i}, up                       equations.draw_public_rows, device.compute_logits
      (b) an ascent step of the discriminator, (13)                 aggregator.teach_discriminator
      (c) fbar, the mean of all logits                              distillation.mean_of
      (d) g_n at the new w and the old f_n, (19)                    aggregator.play_discriminator
      (e) fbar for all and g_n for its device alone, down           Consensus, Feedback
      (f) a step on KL + U_n + r_glo, (16) (17)                     device.transfer_stage, equations.transfer_cotangent

A round is tau + 1 closes of the aggregator: the last answer carries no logits, only that the device is done.

Where the paper contradicts itself or is silent: the target leaves the device itself out, as in (5), rebuilt from the
broadcast (the printed algorithm has the mean of all: `target`); one optimiser for both stages; batches without
replacement, independent of each other; g_n is each input's own derivative, so the device divides by B. Step (f) goes
through the outputs that were sent. Initial models are the bundles', or such of each device's own (`start`).
Variants are weights, see `settings.VARIANTS`: FedMD, FedMD-LF, FedMD-AL, FedAL; FedDF and FedDF-AL also average
parameters within equal architectures (`averaging`), which takes another exchange of models.

Leaves the device: logits on public inputs, and scores as sums; with `averaging` also |D_n| theta_n, summed by its
hospital, and a fingerprint of its architecture. Leaves the hospital: these logits under numbers in place of names.
Never: inputs, labels, names; without `averaging` no parameter and no architecture.
Kind of upload: memoryless. Who misses an exchange sits out until the next local stage; the mean and the discriminator
are of those who answered. One alone: there is nothing to learn from, so no step. Nobody: the round is over.
Devices that come or leave for good during a run wait for the next one: the discriminator has an output for each device.
So do hospitals, whose devices' outputs follow one another in the order of their names.
"""

from __future__ import annotations

from edge_sdk.contract.method import Method, Role, unchanged
from edge_sdk.methods.fedal.aggregator import (
    AggregatorState,
    aggregator_close,
    aggregator_receive,
    aggregator_start,
    show,
)
from edge_sdk.methods.fedal.device import DeviceState, device_receive, device_start, models, train_alone
from edge_sdk.methods.fedal.hospital import HospitalState, hospital_close, hospital_receive, hospital_start
from edge_sdk.methods.fedal.messages import (
    Average,
    Averages,
    Consensus,
    Feedback,
    HospitalLogits,
    Local,
    Outputs,
    Settled,
    Share,
    Shares,
    Shown,
)
from edge_sdk.methods.fedal.noise import LOCAL_NOISE
from edge_sdk.methods.fedal.settings import SEARCH, Env, Settings, warnings
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.aggregation.plain import always_plain
from edge_sdk.methods.shared.aggregation.traffics import always_floats
from edge_sdk.methods.shared.membership.changing import always_fixed

FEDAL = Method(
    name="fedal",
    summary="devices of any architecture learn from each other's outputs",
    device=Role(device_start, device_receive, unchanged, DeviceState),
    hospital=Role(hospital_start, hospital_receive, hospital_close, HospitalState),
    aggregator=Role(aggregator_start, aggregator_receive, aggregator_close, AggregatorState),
    messages=(
        Local,
        Consensus,
        Feedback,
        Averages,
        Average,
        Outputs,
        HospitalLogits,
        Share,
        Shares,
        Settled,
        Nobody,
        Shown,
    ),
    settings=Settings,
    env=Env,
    show=show,
    models=models,
    warnings=warnings,
    kernels="outputs",
    alone=train_alone,
    own_noise=LOCAL_NOISE,
    rounds_over=lambda s: s.round,
    traffic=always_floats("devices compare outputs on public samples, and models are not what is added up"),
    plain_sums=always_plain(
        'devices compare outputs on public samples; the rule for these is its own: consensus = "median", target = "all"'
    ),
    search=SEARCH,
    warms_up=True,
    fixed=always_fixed("the discriminator has an output for each device of the cohort with which the run began"),
)
