"""Algorithm 1 of HSGD in one process, sample by sample, each gradient a complex step through the loss itself."""

from __future__ import annotations

import numpy as np

H = 1e-30


def grad(f, v):
    """Of a real function at v, to the last bit: Im f(v + i h e_k) / h."""
    out = np.empty(len(v))
    for k in range(len(v)):
        step = v.astype(complex)
        step[k] += 1j * H
        out[k] = f(step).imag / H
    return out


def top(x, k):
    """The k largest entries by magnitude; the others are zero."""
    done = np.zeros_like(x)
    best = sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))[:k]
    done[best] = x[best]
    return done


def same(x):
    return x


def hsgd(
    model,
    data,
    theta,
    plans,
    A,
    back=None,
    groups=None,
    *,
    mu=0.0,
    eta=None,
    squeeze=same,
    pairs=False,
    steps=None,
):
    """The global model after each round.

    Args:
        data: group -> device -> Samples.
        plans: (P, Q, eta) of each round.
        A: (m, r, k) -> {device: indices of its samples}, of interval k in round r.
        back: (m, r, k) -> devices whose theta_2 returned; groups: r -> those in the global average.
        eta: (eta of the plan, t) -> that of iteration t.
        squeeze: compression of a row of a vertical message.
        pairs: JFL.
        steps: a list that is given (t, group, theta_0, theta_1, {device: theta_2}) after each iteration.
    """
    t, path, eta = 0, [theta], eta or (lambda eta, t: eta)
    s0, s1 = model.split.s0, model.split.s1
    for r, (P, Q, rate) in enumerate(plans):
        local = {}
        for m in data if groups is None else groups[r]:
            blocks = theta[:s0], theta[s0 : s0 + s1], theta[s0 + s1 :]
            rates = [eta(rate, t + j) for j in range(P)]
            run = group_of_pairs if pairs else group
            local[m] = run(
                model,
                data[m],
                blocks,
                Q,
                rates,
                m,
                r,
                A,
                back or A,
                mu,
                squeeze,
                None if steps is None else (steps, t),
            )
        if local:
            sizes = {m: sum(map(len, data[m].values())) for m in local}
            theta = sum(sizes[m] * local[m] for m in local) / sum(sizes.values())
            t += P
        path.append(theta)
    return path


def group(model, devices, blocks, Q, rates, m, r, A, back, mu, squeeze, steps):
    w, a, b = blocks
    for k in range(len(rates) // Q):
        if not A(m, r, k):
            continue
        xi = {n: devices[n][rows] for n, rows in A(m, r, k).items()}
        z1 = {n: [squeeze(model.h1(a, x)) for x in s.x1] for n, s in xi.items()}
        z2 = {n: [squeeze(model.h2(b, x)) for x in s.x2] for n, s in xi.items()}
        w0, own = squeeze(w), {n: b for n in xi}
        for j in range(k * Q, k * Q + Q):
            w, a = hospital(model, xi, w, a, z2, rates[j], mu)
            own = {n: device(model, s, w0, z1[n], own[n], rates[j], mu) for n, s in xi.items()}
            if steps:
                steps[0].append((steps[1] + j, m, w, a, dict(own)))
        came = [n for n in back(m, r, k)]
        if came:
            b = sum(len(xi[n]) * own[n] for n in came) / sum(len(xi[n]) for n in came)
    return np.concatenate([w, a, b])


def group_of_pairs(model, devices, blocks, Q, rates, m, r, A, back, mu, squeeze, steps):
    """JFL: a theta_0, theta_1, theta_2 for each device that takes part, and one average at the end."""
    own = None
    for k in range(len(rates) // Q):
        own = {n: blocks if own is None else own[n] for n in A(m, r, k)}
        for n, (w, a, b) in own.items():
            s = devices[n][A(m, r, k)[n]]
            xi, w0 = {n: s}, squeeze(w)
            z1, z2 = [squeeze(model.h1(a, x)) for x in s.x1], [squeeze(model.h2(b, x)) for x in s.x2]
            for j in range(k * Q, k * Q + Q):
                b, (w, a) = device(model, s, w0, z1, b, rates[j], mu), hospital(model, xi, w, a, {n: z2}, rates[j], mu)
            own[n] = w, a, b
        own = {n: own[n] for n in back(m, r, k)}
    sizes = {n: len(A(m, r, k)[n]) for n in own}
    return np.concatenate([sum(sizes[n] * own[n][i] for n in own) / sum(sizes.values()) for i in range(3)])


def hospital(model, xi, w, a, z2, eta, mu):
    """(5) and (6), both at the values of before."""
    N = sum(map(len, xi.values()))
    rows = [(s.x1[i], z2[n][i], s.y[i]) for n, s in xi.items() for i in range(len(s))]
    g_0 = sum(grad(lambda v, x=x, z=z, y=y: model.f(v, model.h1(a, x), z, y), w) for x, z, y in rows) / N
    g_1 = sum(grad(lambda v, x=x, z=z, y=y: model.f(w, model.h1(v, x), z, y), a) for x, z, y in rows) / N
    return w - eta * g_0, a - eta * (g_1 + mu * a)


def device(model, s, w0, z1, b, eta, mu):
    """(7), on the device's own samples."""
    terms = [grad(lambda v, i=i: model.f(w0, z1[i], model.h2(v, s.x2[i]), s.y[i]), b) for i in range(len(s))]
    return b - eta * (sum(terms) / len(s) + mu * b)


def objective(model, data, theta, weights=None):
    """F: per-sample mean over everything, times K_m / K by construction; `weights`: of single samples instead."""
    s0, s1 = model.split.s0, model.split.s1
    w, a, b = theta[:s0], theta[s0 : s0 + s1], theta[s0 + s1 :]
    total, size = 0.0, 0.0
    for m, devices in data.items():
        for n, s in devices.items():
            for i in range(len(s)):
                k = 1.0 if weights is None else weights(m, n, i)
                total, size = total + k * model.f(w, model.h1(a, s.x1[i]), model.h2(b, s.x2[i]), s.y[i]), size + k
    return total / size
