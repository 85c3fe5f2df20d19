"""FedAL's Algorithm 1 as it is printed: one process, one loop, torch's autograd through the whole of each loss."""

from __future__ import annotations

from itertools import pairwise
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F

from tests.methods.fedal.logit_problems import CLASSES
from tests.methods.problems import SEED


def tensor(x):
    return torch.tensor(np.asarray(x), dtype=torch.float64)


def net(party, theta, x, features=False):
    """Logits of a device's tanh layers, or what enters the last one."""
    widths, z, at = party.net.widths[: -1 if features else None], tensor(x), 0
    for i, (a, b) in enumerate(pairwise(widths)):
        z = z @ theta[at : at + a * b].reshape(b, a).T + theta[at + a * b : at + (a + 1) * b]
        z = torch.tanh(z) if i + 2 < len(widths) or features else z
        at += (a + 1) * b
    return z


def mlp(w, widths, p):
    at = 0
    for i, (a, b) in enumerate(pairwise(widths)):
        p = p @ w[at : at + a * b].reshape(b, a).T + w[at + a * b : at + (a + 1) * b]
        p = torch.relu(p) if i + 2 < len(widths) else p
        at += (a + 1) * b
    return p


def kl(target, f, temperature):
    """Mean over rows of K(target, psi(f, E))."""
    return F.kl_div(F.log_softmax(f / temperature, 1), target, reduction="batchmean")


def payoff(w, widths, f, n, there, temperature):
    """Mean over rows of U_n."""
    h = mlp(w, widths, torch.softmax(f / temperature, 1))
    return torch.log_softmax(h.masked_fill(~torch.tensor(there), -torch.inf), 1)[:, n].mean()


def optimiser(kind, parameter, rate):
    return {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[kind]([parameter], lr=rate)


def private(name, t, i, s, samples):
    random = np.random.default_rng([SEED, t, crc32(name.encode()), 1, i])
    return np.sort(random.choice(samples, min(s.batch, samples), replace=False))


def common(t, i, s, size):
    return np.sort(np.random.default_rng([SEED, t, i, 2]).choice(size, s.public_batch, replace=False))


class Run:
    """All of it. Who took part comes in as sets: round -> devices, or (round, exchange) -> devices."""

    def __init__(self, parties, public, w0, s, *, old_w=False):
        self.parties, self.public, self.s, self.names, self.old_w = parties, public, s, sorted(parties), old_w
        self.theta = {n: tensor(p.theta0).requires_grad_() for n, p in parties.items()}
        self.widths, self.w = (CLASSES, *s.widths, len(parties)), tensor(w0).requires_grad_()
        self.opt = {n: optimiser(s.optimiser, self.theta[n], s.eta_l) for n in parties}
        self.opt_d = optimiser(s.optimiser_d, self.w, s.eta_d) if s.al else None

    def play(self, rounds, trained=None, counted=None, stepped=None):
        def everybody(*_):
            return self.names

        for t in range(rounds):
            self.before(t)
            for n in (trained or everybody)(t):
                self.local(n, t)
            if self.s.averaging == "after_local":
                self.average()
            self.ref = {n: self.theta[n].detach().clone() for n in self.names}
            for i in range(self.s.tau):
                self.exchange(t, i, (counted or everybody)(t, i), (stepped or everybody)(t, i))
            if self.s.averaging == "after_transfer":
                self.average()
        return {n: theta.detach().numpy() for n, theta in self.theta.items()}, self.w.detach().numpy()

    def before(self, t):
        s = self.s
        for opt in self.opt.values():
            opt.param_groups[0]["lr"] = s.eta_l * s.decay_l**t
        if self.opt_d:
            self.opt_d.param_groups[0]["lr"] = s.eta_d * s.decay_d**t

    def fresh(self, n):
        if self.s.fresh_optimiser:
            rate = self.opt[n].param_groups[0]["lr"]
            self.opt[n] = optimiser(self.s.optimiser, self.theta[n], rate)

    def local(self, n, t):
        s, p, theta = self.s, self.parties[n], self.theta[n]
        start, E = theta.detach().clone(), s.memory_temperature
        self.fresh(n)
        for i in range(s.tau):
            rows = private(n, t, i, s, len(p.x))
            f = net(p, theta, p.x[rows])
            loss = F.cross_entropy(f, torch.tensor(p.y[rows]))
            if s.lf_local and not (s.lf_skip_first and t == 0):
                loss = loss + s.lf_local * kl(torch.softmax(net(p, start, p.x[rows]) / E, 1), f, E)
            self.opt[n].zero_grad()
            loss.backward()
            self.opt[n].step()

    def exchange(self, t, i, here, stepping):
        s, x = self.s, self.public[common(t, i, self.s, len(self.public))]
        f = {n: net(self.parties[n], self.theta[n], x, s.features > 0) for n in here}
        sent, there = {n: f[n].detach() for n in here}, [n in here for n in self.names]
        before = self.w.detach().clone()
        if s.al and len(here) > 1:
            values = [self.payoff(self.w, sent[n], n, there) for n in here]
            self.opt_d.zero_grad()
            (-sum(values) / len(values)).backward()
            self.opt_d.step()
        judge = before if self.old_w else self.w.detach()
        for n in stepping:
            if i == 0:
                self.fresh(n)
            if len(here) > 1:
                self.opt[n].zero_grad()
                self.transfer_loss(n, x, f, sent, here, there, judge).backward()
                self.opt[n].step()

    def payoff(self, w, f, n, there):
        return payoff(w, self.widths, f, self.names.index(n), there, self.s.temperature_d)

    def transfer_loss(self, n, x, f, sent, here, there, w):
        """(16): no split back-propagation, the gradient goes through discriminator and model at once."""
        s, loss = self.s, torch.zeros((), dtype=torch.float64)
        among = here if s.target == "all" else [m for m in here if m != n]
        if s.kd:
            consensus = sum(sent[m] for m in among) / len(among)
            if s.consensus == "median":
                consensus = torch.quantile(torch.stack([sent[m] for m in among]), 0.5, dim=0)
            if s.features:
                return s.kd * F.mse_loss(f[n], consensus)
            loss = loss + s.kd * kl(torch.softmax(consensus / s.temperature_kd, 1), f[n], s.temperature_kd)
        if s.al:
            loss = loss + s.al * self.payoff(w, f[n], n, there)
        if s.lf_transfer:
            E = s.memory_temperature
            reference = net(self.parties[n], self.ref[n], x)
            loss = loss + s.lf_transfer * kl(torch.softmax(reference / E, 1), f[n], E)
        return loss

    def average(self):
        kinds = {n: self.parties[n].net.hidden for n in self.names}
        size = {n: len(self.parties[n].x) for n in self.names}
        with torch.no_grad():
            for kind in set(kinds.values()):
                group = [n for n in self.names if kinds[n] == kind]
                mean = sum(size[n] * self.theta[n] for n in group) / sum(size[n] for n in group)
                for n in group:
                    self.theta[n].copy_(mean)
