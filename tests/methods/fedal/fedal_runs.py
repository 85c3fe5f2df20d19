"""FedAL's usual settings, and the literal algorithm beside a run of it over three tiers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from edge_sdk.methods.fedal import discriminator
from edge_sdk.methods.fedal.settings import DISCRIMINATOR, Settings
from tests.methods.fedal import literal_fedal
from tests.methods.fedal.logit_problems import CLASSES, PARTIES, PUBLIC, envs_of
from tests.methods.problems import state

SMALL = Settings(tau=3, eta_l=0.05, eta_d=0.02, batch=16, public_batch=8, widths=(7, 6), optimiser="sgd",
                 optimiser_d="sgd")  # fmt: skip
NO_LF = dict(lf_local=0.0, lf_transfer=0.0)


def discriminator0(s, rounds=1):
    env = envs_of(s, rounds)["aggregator"]
    if not s.al:
        return np.zeros(0)
    random = replace(env, me="aggregator").random(0, DISCRIMINATOR)
    return discriminator.initial(random, (CLASSES, *s.widths, len(PARTIES)), np.float64)


def literal(s, rounds, parties=PARTIES, **more):
    w0 = discriminator0(s)
    return literal_fedal.Run(parties, PUBLIC, w0, s, **more)


def difference(net, expected):
    """Largest, over all models and the discriminator."""
    theta, w = expected
    apart = [np.abs(state(net, d).theta - theta[d]).max() for d in theta]
    return max(*apart, np.abs(state(net, "aggregator").w - w).max(initial=0))
