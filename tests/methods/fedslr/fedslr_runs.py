"""FedSLR's usual settings, and the literal algorithm beside a run of it over three tiers."""

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.methods.fedslr.settings import Settings
from tests.methods import literal
from tests.methods.problems import LAYOUT, PROBLEMS, THETA0, devices_counted, devices_that_ran, state

FULL_BATCH = Settings(
    eta_g=0.5, eta_l=0.1, decay=1.0, lam=0.3, mu=0.2, weight_decay=0.0, batch=0, local_epochs=20, personal_epochs=5
)
PAPER_LIKE = Settings(eta_g=0.5, eta_l=0.1, decay=0.9, lam=0.2, mu=0.1, weight_decay=1e-2, batch=16, local_epochs=2)


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


def agrees(net, transcript, settings, **reading):
    """Largest difference of w to the literal algorithm, given who took part."""
    S, ran = devices_counted(transcript), devices_that_ran(transcript)
    path, gamma, p = literal.fedslr(PROBLEMS, THETA0, settings, S, ran, **reading)
    return np.abs(model(net) - path[-1]).max(), gamma, p
