"""HSGD's usual settings, and the literal algorithm beside a run of it over three tiers."""

from __future__ import annotations

import numpy as np

from edge_sdk.methods.hsgd import equations as hsgd_equations
from edge_sdk.methods.hsgd.settings import Settings
from tests.methods.hsgd import literal_hsgd as literal
from tests.methods.hsgd.split_problems import THETA0, Net, intervals, theta

BASIC = Settings(P=4, Q=2, eta=0.3)
NET = Net()
KNOWN = dict(f0=2.0, rho=1.5, delta=0.5)


def whole(data):
    """A for `literal`: everybody, all samples."""
    return lambda m, r, k: {d: np.arange(len(s)) for d, s in data[m].items()}


def by_literal(net, transcript, data, plans, model=NET, theta0=THETA0, **more):
    """The literal algorithm on the sets that the trace shows."""
    found = intervals(transcript)

    def A(m, r, k):
        env = net.nodes[m].env
        return {d: hsgd_equations.draw_minibatch(env, r, k, d, len(data[m][d])) for d in found.A.get((m, r, k), [])}

    def back(m, r, k):
        return found.back.get((m, r, k), [])

    return literal.hsgd(model, data, np.asarray(theta0), plans, A, back, found.groups, **more)


def error(net, path):
    return np.abs(theta(net) - path[-1]).max()
