"""FedBCD and FedBCD-I as the paper prints them: one process, one loop, no roles. Who took part comes in as sets.

`drawn(t, i)`: the mini-batches (indices or None) of device i's local iterations in round t. eta_z: the raw step.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from edge_sdk.methods.fedbcd.settings import OfflineSettings
from tests.methods.problems import SEED, TREE


def drawing(s, problems):
    """As devices draw them: K, then so many epochs or steps."""

    def drawn(t, i):
        rng = lambda purpose: np.random.default_rng([SEED, t, crc32(i.encode()), purpose])  # noqa: E731
        samples, steps = len(problems[i].b), steps_of(s, t, i)
        if s.batch == 0:
            return [None] * steps
        if s.unit == "step":
            again = rng(2)
            return [again.integers(samples, size=s.batch) for _ in range(steps)]
        return list(epochs(rng(2), samples, s.batch, steps))

    return drawn


def steps_of(s, t, i):
    """K_i^(t)."""
    rng = np.random.default_rng([SEED, t, crc32(i.encode()), 1])
    return int(rng.integers(1, s.local_steps + 1)) if s.draw_steps else s.local_steps


def epochs(rng, samples, batch, count):
    for _ in range(count):
        order = rng.permutation(samples)
        yield from (order[k : k + batch] for k in range(0, samples, batch))


def aspg(problem, x, before, z, gamma, s, batches):
    """Eq. (4)."""
    for indices in batches:
        ex = x + s.zeta * (x - before)
        grad = problem(ex, indices)[1] + (0 if z is None else gamma * (ex - z))
        x, before = np.clip(ex - s.eta_x * grad, -s.bound, s.bound), x
    return x, before


def fedbcd(problems, s, x0, eta_z, rounds, ran, known):
    """Algorithm 1, eq. (5). ran[t]: who moved; known[t]: device -> the round of the copy that the cloud has.

    ("z", round) in its place: nothing is known of the device, and the model of that round stands for it.
    """
    drawn = drawing(s, problems)
    x, z, path = {i: (x0, x0) for i in problems}, x0, [x0]
    copy = {(i, -1): x0 for i in problems}
    for t in range(rounds):
        copy |= {(i, ("z", t)): z for i in problems}
        for i in ran[t]:
            x[i] = aspg(problems[i], *x[i], z, s.weight(i), s, drawn(t, i))
            copy[i, t] = x[i][0]
        for _ in range(s.cloud_steps):
            z = z - eta_z * sum(s.weight(i) * (z - copy[i, known[t].get(i, -1)]) for i in problems)
        path.append(z)
    return path, x


def moved(problem, pair, z, s, drawn, t, i, trainings):
    """What a device does when it is called: Algorithm 1; in FedBCD-I it trains, then is pulled."""
    if not isinstance(s, OfflineSettings):
        return aspg(problem, *pair, z, s.weight(i), s, drawn(t, i))
    v, before = aspg(problem, *pair, None, 0.0, s, drawn(trainings[i], i))
    for _ in range(steps_of(s, trainings[i], i)):
        v, before = v - s.weight(i) * (v - z), v
    trainings[i] += 1
    return v, before


def first_b(problems, s, x0, eta_z, members, active, mixing=None):
    """Algorithm 1, eq. (6), first-B. active(n, k): devices of n in its k-th phase. `mixing(V)`: over sorted V."""
    drawn, names, trainings = drawing(s, problems), sorted(TREE), dict.fromkeys(problems, 0)
    x, copy, z = {i: (x0, x0) for i in problems}, {i: x0 for i in problems}, {n: x0 for n in names}
    phase, label = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for t, V in enumerate(members):
        for n in V:
            for i in active(n, phase[n]):
                x[i] = moved(problems[i], x[i], z[n], s, drawn, label[n], i, trainings)
                copy[i] = x[i][0]
        A = np.array([[1 / len(V) if n in V and m in V else float(n == m) for m in names] for n in names])
        if mixing is not None:
            inside = np.ix_(*[[names.index(n) for n in sorted(V)]] * 2)
            A = np.eye(len(names))
            A[inside] = mixing(sorted(V))
        for _ in range(s.cloud_steps):
            w = {n: sum(A[a, b] * z[m] for b, m in enumerate(names)) for a, n in enumerate(names)}
            shown = sum(w[n] for n in V) / len(V)
            for n in V:
                z[n] = w[n] - eta_z * slope(s, w[n], copy, n, active(n, phase[n]))
        for n in V:
            phase[n], label[n] = phase[n] + 1, t + 1
    return shown, z, x


def slope(s, w, copy, n, active):
    """Over all of a hospital's devices; in FedBCD-I over those active."""
    summed = active if isinstance(s, OfflineSettings) else TREE[n]
    return sum((s.weight(i) * (w - copy[i]) for i in summed), 0 * w)


def rigorous(problems, s, x0, eta_z, members, active, heard=None, lost=()):
    """As above with the same step everywhere: those outside V mix with themselves. Returns the last mean.

    heard(n, k): those of active(n, k) whose x_i arrived. lost: (t, n) of a mixed model that never arrived.
    """
    drawn, heard, trainings = drawing(s, problems), heard or active, dict.fromkeys(problems, 0)
    x, copy, z = {i: (x0, x0) for i in problems}, {i: x0 for i in problems}, {n: x0 for n in TREE}
    for t, V in enumerate(members):
        for n in V if t == len(members) - 1 else TREE:
            for i in active(n, t):
                x[i] = moved(problems[i], x[i], z[n], s, drawn, t, i, trainings)
                copy[i] = x[i][0] if i in heard(n, t) else copy[i]
        for _ in range(s.cloud_steps):
            mean = sum(z[n] for n in V) / len(V)
            for n in V if t == len(members) - 1 else TREE:
                w = mean if n in V and (t, n) not in lost else z[n]
                z[n] = w - eta_z * slope(s, w, copy, n, heard(n, t))
    return mean


def fedbcd_i(problems, s, x0, eta_z, trained, contact, counted):
    """Algorithm 2, sync. trained[t][i]: how often i trained before its contact in round t. eta_z(count): the step."""
    drawn = drawing(s, problems)
    x, z, path, trainings = {i: (x0, x0) for i in problems}, x0, [x0], dict.fromkeys(problems, 0)
    for t in range(len(contact)):
        for i in problems:
            for _ in range(trained[t].get(i, 0)):
                x[i] = aspg(problems[i], *x[i], None, 0.0, s, drawn(trainings[i], i))
                trainings[i] += 1
        for i in contact[t]:
            v, before = x[i]
            for _ in range(steps_of(s, trainings[i] - 1, i)):
                v, before = v - s.weight(i) * (v - z), v
            x[i] = v, v if s.after_pull == "reset" else before
        if counted[t]:
            step = eta_z(len(counted[t]))
            z = z - step * sum(s.weight(i) * (z - x[i][0]) for i in counted[t])
        path.append(z)
    return path, x
