"""FedAvg of a part of theta in one loop: what FedPer, FedRep, FedBABU and FedBN are as printed."""

from __future__ import annotations

import numpy as np

from tests.methods import literal
from tests.methods.problems import LAYOUT, PROBLEMS, SEED, THETA0, devices_counted, devices_that_ran, state


def mask(*names):
    """True where theta belongs to one of these slots."""
    found = np.zeros(LAYOUT.size, bool)
    for slot in LAYOUT.slots:
        found[slot.span] = slot.name in names
    return found


def sgd(i, theta, where, s, t, purpose, epochs):
    """Mini-batch SGD of device i in round t on the entries of theta where the mask is true."""
    eta, f = s.eta_l * s.decay**t, PROBLEMS[i]
    for batch in literal.shuffled(SEED, t, i, purpose, len(f.b), s.batch, epochs):
        theta = theta - eta * where * (f(theta, batch)[1] + s.weight_decay * theta)
    return theta


def part_averaging(s, personal, phase, S, ran):
    """(theta with the last shared part and the first personal one, device -> its theta of before the last mean).

    Args:
        personal: mask of what stays on each device.
        phase: (device, theta, round) -> theta after its training.
    """
    w, own = THETA0, dict.fromkeys(PROBLEMS, THETA0)
    for t, S_t in enumerate(S):
        after = {i: phase(i, np.where(personal, own[i], w), t) for i in ran[t]}
        own |= after
        if S_t:
            n = {i: len(PROBLEMS[i].b) if s.weighting == "samples" else 1 for i in S_t}
            w = np.where(personal, THETA0, sum(n[i] * after[i] for i in S_t) / sum(n.values()))
    return w, own


def error(net, transcript, s, personal, phase):
    """Largest difference of the shared slots and of each device's own ones to the printed algorithm."""
    w, own = part_averaging(s, personal, phase, devices_counted(transcript), devices_that_ran(transcript))
    found = [np.abs(state(net, "aggregator").values - w[~personal]).max()]
    if hasattr(state(net, "d0"), "own"):
        found += [np.abs(state(net, d).own - own[d][personal]).max() for d in PROBLEMS]
    return max(found)
