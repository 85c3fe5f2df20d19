"""FedBCD's usual settings, runs of it over three tiers, and who was in each part of an asynchronous one."""

from dataclasses import replace
from math import inf

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.methods.fedbcd.method import FEDBCD, FEDBCD_I, policies
from edge_sdk.methods.fedbcd.settings import OfflineSettings, Settings
from tests.methods.problems import DEVICES, LAYOUT, SIZES, THETA0, USUAL, play, state

GAMMAS = dict(zip(DEVICES, (1.0, 0.5, 2.0, 1.5, 1.0, 0.7), strict=True))
SMALL = {d: g / 4 for d, g in GAMMAS.items()}  # FedBCD-I: gamma_i is the step of the pull
ASPG = dict(eta_x=0.1, zeta=0.6, eta_z=0.08, eta_mode="raw", unit="step", batch=0, draw_steps=False, local_steps=1)
SYNC = Settings(gammas=GAMMAS, **ASPG)
DRAWN = replace(SYNC, local_steps=5, draw_steps=True, batch=8)
OFFLINE = OfflineSettings(gammas=SMALL, **(ASPG | dict(local_steps=2)))
X0 = np.clip(THETA0, -2, 2)
SLOW = NetworkFaults(work={"d5": 9.0, "d0": 2.0})


def run(settings, rounds=30, *, seed=0, faults=USUAL, deadline=inf, hospital_deadline=inf, method=None, **more):
    method = method or (FEDBCD_I if isinstance(settings, OfflineSettings) else FEDBCD)
    kept = policies(settings, SIZES, deadline, hospital_deadline)
    return play(method, settings, rounds, faults=faults, policies=kept, seed=seed, **more)


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


def off(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def parts_of(transcript):
    members = [sorted(c.children) for c in transcript.closed["aggregator"]]
    return members, lambda n, k: sorted(transcript.closed[n][k].children)
