"""Each algorithm as its paper prints it: one process, one loop, no roles. Who took part comes in as sets."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from tests.methods.problems import LAYOUT, SEED


def soft(x, t):
    return np.sign(x) * np.maximum(np.abs(x) - t, 0)


def svt(x, t):
    u, s, v = np.linalg.svd(x, full_matrices=False)
    return u @ np.diag(np.maximum(s - t, 0)) @ v


def on_layers(f, theta, layout=LAYOUT):
    """f on the matrix form of every layer that has one, written out for what the tests use."""
    done = theta.copy()
    for slot in layout.slots:
        if slot.kind in ("conv", "linear"):
            x = theta[slot.span].reshape(slot.shape)
            if len(slot.shape) == 4:
                o, i, h, w = slot.shape
                x = f(x.transpose(0, 2, 1, 3).reshape(o * h, i * w)).reshape(o, h, i, w).transpose(0, 2, 1, 3)
            else:
                x = f(x.reshape(slot.shape[0], -1))
            done[slot.span] = x.ravel()
    return done


def shuffled(seed, t, name, purpose, samples, batch, epochs):
    """Mini-batches of one device in one phase of one round."""
    rng = np.random.default_rng([seed, t, crc32(name.encode()), purpose])
    for _ in range(epochs):
        if batch == 0 or samples <= batch:
            yield np.arange(samples)
            continue
        order = rng.permutation(samples)
        yield from (order[k : k + batch] for k in range(0, samples, batch))


def fedslr(
    problems, w, s, S, ran=None, *, layout=LAYOUT, gamma_over="all", gamma_times=None, smooth=lambda w: 0.0, choose=None
):
    """Algorithm 2: a gamma per device, mean of w over S_t, mean of gamma over all.

    Args:
        s: settings.
        S: round -> devices that were counted; `ran`: round -> devices that trained.
        choose: (w, device -> w_i, gamma) -> those of S_t that are counted.
        gamma_over, gamma_times: wrong readings, for sentinels ("S"; 1 / eta_g).

    Returns:
        w after each round, gamma, p.
    """
    gamma, p = {i: np.zeros_like(w) for i in problems}, {i: np.zeros_like(w) for i in problems}
    path = [w]
    for t, S_t in enumerate(S):
        eta, local = s.eta_l * s.decay**t, {}
        for i in ran[t] if ran else S_t:
            n, f = len(problems[i].b), problems[i]
            v = w
            for batch in shuffled(SEED, t, i, 1, n, s.batch, s.local_epochs):
                v = v - eta * (f(v, batch)[1] + s.weight_decay * v - gamma[i] + (v - w) / s.eta_g)
            local[i] = v
            for batch in shuffled(SEED, t, i, 2, n, s.batch, s.personal_epochs):
                decay = s.weight_decay * s.personal_weight_decay
                step = p[i] - eta * (f(w + p[i], batch)[1] + decay * p[i])
                threshold = eta * s.mu
                p[i] = (
                    soft(step, threshold)
                    if s.personal_penalty == "l1"
                    else on_layers(lambda x, a=threshold: svt(x, a), step, layout)
                )
        S_t = choose(w, local, gamma) if choose else S_t
        if S_t:
            for i in S_t:
                gamma[i] = gamma[i] + (w - local[i]) / s.eta_g
            members = gamma if gamma_over == "all" else S_t
            mean = sum(gamma[i] for i in members) / len(members) + smooth(w)
            x = sum(local[i] for i in S_t) / len(S_t) - (gamma_times or s.eta_g) * mean
            shrink = {"nuclear": svt, "l1": soft, "none": lambda x, a: x}[s.global_penalty]
            w = on_layers(lambda v, f=shrink: f(v, s.lam * s.eta_g), x, layout)
        path.append(w)
    return path, gamma, p


def fedavg(problems, w, s, S, *, layout=LAYOUT):
    """FedAvg; FedProx with s.proximal; GPGD and LPGD with a penalty at the server, or after each local step."""
    shrink = {"nuclear": svt, "l1": soft, "none": lambda x, a: x}
    path = [w]
    for t, S_t in enumerate(S):
        eta, local = s.eta_l * s.decay**t, {}
        for i in S_t:
            v = w
            for batch in shuffled(SEED, t, i, 1, len(problems[i].b), s.batch, s.local_epochs):
                v = v - eta * (problems[i](v, batch)[1] + s.weight_decay * v + s.proximal * (v - w))
                if s.local_penalty == "l1":
                    v = soft(v, eta * s.lam)
                else:
                    v = on_layers(lambda x, a=eta * s.lam: shrink[s.local_penalty](x, a), v, layout)
            local[i] = v
        if S_t:
            n = {i: len(problems[i].b) if s.weighting == "samples" else 1 for i in S_t}
            w = sum(n[i] * local[i] for i in S_t) / sum(n.values())
            w = on_layers(lambda x, a=eta * s.lam: shrink[s.server_penalty](x, a), w, layout)
        path.append(w)
    return path
