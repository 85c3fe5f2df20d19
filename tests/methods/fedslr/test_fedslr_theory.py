"""FedSLR's identities where local problems are solved exactly: I1 to I5, the limit, Douglas-Rachford."""

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.prox import nuclear
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.methods.fedslr import equations as fedslr_equations
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr.settings import Settings


class Quadratics:
    """Four devices with f_i(W) = 1/2 ||A_i W - B_i||^2, W 6 x 5, through the method's own equations."""

    def __init__(self, eta_g_times_L, lam=0.3):
        rng = np.random.default_rng(0)
        self.a = [rng.normal(size=(6, 6)) / 3 + np.diag(np.linspace(0.3, 1, 6)) for _ in range(4)]
        self.b = [rng.normal(size=(6, 5)) for _ in range(4)]
        self.L = max(np.linalg.eigvalsh(a.T @ a).max() for a in self.a)
        self.eta, self.lam = eta_g_times_L / self.L, lam
        layout = layout_of(("w", (6, 5), "linear"))
        self.env = FEDSLR.env(layout=layout, theta0=np.zeros(30), settings=Settings(eta_g=self.eta, lam=lam))

    def f(self, i, w):
        return 0.5 * ((self.a[i] @ w.reshape(6, 5) - self.b[i]) ** 2).sum()

    def grad(self, i, w):
        return (self.a[i].T @ (self.a[i] @ w.reshape(6, 5) - self.b[i])).ravel()

    def solve(self, i, w, gamma):
        h = self.a[i].T @ self.a[i] + np.eye(6) / self.eta
        return np.linalg.solve(h, self.a[i].T @ self.b[i] + (gamma + w / self.eta).reshape(6, 5)).ravel()

    def rounds(self, count):
        """(t, w, w_i, gamma_i before, gamma_i after, x, next w) of each round."""
        w, gamma = np.zeros(30), [np.zeros(30)] * 4
        for t in range(count):
            local = [self.solve(i, w, gamma[i]) for i in range(4)]
            before, gamma = (
                gamma,
                [fedslr_equations.update_auxiliary(gamma[i], w, local[i], self.eta) for i in range(4)],
            )
            mean, gamma_mean = np.mean(local, 0), np.mean(gamma, 0)
            after = lowrank.unpack(self.env.layout, fedslr_equations.aggregate(self.env, w, mean, gamma_mean))
            yield t, w, local, before, gamma, mean - self.eta * gamma_mean, after
            w = after

    def potential(self, x, ys, gs):
        nuclear = np.linalg.svd(x.reshape(6, 5), compute_uv=False).sum()
        terms = [
            self.f(i, y) + g @ (x - y) + ((x - y) ** 2).sum() / (2 * self.eta)
            for i, (y, g) in enumerate(zip(ys, gs, strict=True))
        ]
        return np.mean(terms) + self.lam * nuclear


def test_I1_gamma_is_the_local_gradient():
    q = Quadratics(0.49)
    for _, _, local, _, gamma, _, _ in q.rounds(30):
        assert max(np.abs(gamma[i] - q.grad(i, local[i])).max() for i in range(4)) < 1e-13


@pytest.mark.parametrize("share", [0.49, 5.0])
def test_I2_a_local_model_moves_no_further_than_its_gradient_allows(share):
    q, old = Quadratics(share), None
    for t, w, local, _, _, _, _ in q.rounds(30):
        for i in range(4) if t else ():
            moved = np.linalg.norm(local[i] - old[i])
            assert np.linalg.norm(w - local[i]) <= q.L * q.eta * moved + 1e-12
        old = local


def test_I3_the_certificate_of_the_prox():
    q = Quadratics(0.49)
    for _, _, _, _, _, x, w in q.rounds(30):
        g, w = ((x - w) / (q.eta * q.lam)).reshape(6, 5), w.reshape(6, 5)
        assert np.linalg.norm(g, 2) <= 1 + 1e-9
        assert np.isclose((g * w).sum(), np.linalg.svd(w, compute_uv=False).sum(), rtol=1e-9)


@pytest.mark.parametrize("share", [0.49, 0.5, 5.0, 20.0])
def test_I4_the_potential_descends_as_lemma_3_says(share):
    q, last, old = Quadratics(share), None, None
    for t, w, local, _, gamma, _, after in q.rounds(60):
        d = q.potential(after, local, gamma)
        if t:
            c = q.L**2 * q.eta + q.L / 2 - 1 / (2 * q.eta)
            moved = np.mean([((local[i] - old[i]) ** 2).sum() for i in range(4)])
            assert d - last <= c * moved - ((after - w) ** 2).sum() / (2 * q.eta) + 1e-10
            assert share > 0.5 or d <= last + 1e-11
        last, old = d, local


def test_I5_full_participation_needs_only_the_old_gamma():
    q = Quadratics(0.49)
    for _, w, local, before, _, x, _ in q.rounds(30):
        assert np.abs(x - (2 * np.mean(local, 0) - w - q.eta * np.mean(before, 0))).max() < 1e-13


@pytest.mark.parametrize("share", [0.49, 20.0])
def test_the_limit_is_the_minimiser_of_P1(share):
    """Also far beyond the step size of Theorem 1 (A20)."""
    q = Quadratics(share)
    *_, (_, _, local, _, _, _, w) = q.rounds(3000)
    gradient = np.mean([q.grad(i, w) for i in range(4)], 0)
    nearest = fedslr_equations.aggregate(q.env, w, w, gradient)
    assert np.linalg.norm(w - lowrank.unpack(q.env.layout, nearest)) / q.eta < 1e-9
    assert max(np.abs(v - w).max() for v in local) < 1e-9


def test_R6_with_one_device_it_is_douglas_rachford():
    """z_t = w_t + eta_g gamma_t: y = prox_f(z), w = prox_R(2 y - z), z <- z + w - y."""
    q = Quadratics(0.49)
    w, gamma, z = np.zeros(30), np.zeros(30), np.zeros(30)
    for _ in range(50):
        local = q.solve(0, w, gamma)
        gamma = fedslr_equations.update_auxiliary(gamma, w, local, q.eta)
        w = lowrank.unpack(q.env.layout, fedslr_equations.aggregate(q.env, w, local, gamma))
        y = q.solve(0, z, np.zeros(30))
        x = nuclear((2 * y - z).reshape(6, 5), q.eta * q.lam).ravel()
        z = z + x - y
        assert np.abs(w - x).max() < 1e-12 and np.abs(z - (w + q.eta * gamma)).max() < 1e-12
