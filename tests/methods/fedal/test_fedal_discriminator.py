"""The discriminator: gradients, its optimum and the value of the game; the arithmetic on logits; the theorems."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from edge_sdk.methods.fedal import discriminator, distillation
from edge_sdk.methods.fedal.memory import Memory, empty, optimiser, remembered
from tests.methods.fedal.logit_problems import CLASSES, PARTIES, PUBLIC

RNG = np.random.default_rng(2)
WIDTHS = (4, 9, 8, 5)
W = discriminator.initial(RNG, WIDTHS, np.float64) * 2
F, WHO = 2 * RNG.normal(size=(12, 4)), np.arange(12) % 5
ALL, SOME = np.ones(5, bool), np.array([True, True, False, True, False])
ROWS = {"all": (F, WHO, ALL), "some are away": (F[SOME[WHO]], WHO[SOME[WHO]], SOME)}


def payoff(w, f, who, there, E):
    return discriminator.feedback(w, WIDTHS, f, who, there, E)[0]


def differences(function, x, step=1e-6):
    """Gradient of a scalar function, by central differences."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = step
        found[i] = (function(x + e) - function(x - e)) / (2 * step)
    return found


# Gradients ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("E", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("rows", ROWS)
def test_gradients_by_finite_differences(rows, E):
    f, who, there = ROWS[rows]
    ascent = discriminator.ascent(W, WIDTHS, f, who, there, E)
    assert np.allclose(ascent, differences(lambda w: payoff(w, f, who, there, E).mean(), W), atol=1e-8)
    u, g, right = discriminator.feedback(W, WIDTHS, f, who, there, E)
    assert np.allclose(g, differences(lambda f: payoff(W, f, who, there, E).sum(), f), atol=1e-8)
    assert np.abs(g.sum(1)).max() < 1e-15 and (u <= 0).all() and right.dtype == bool


def test_feedback_is_per_input():
    """Not a mean: one row's is the same whoever else is in the batch."""
    together = discriminator.feedback(W, WIDTHS, F, WHO, ALL, 2.0)
    for i in range(len(F)):
        alone = discriminator.feedback(W, WIDTHS, F[i : i + 1], WHO[i : i + 1], ALL, 2.0)
        assert np.allclose(alone[1][0], together[1][i], atol=1e-15) and np.isclose(alone[0][0], together[0][i])


def test_the_papers_scalar_is_no_gradient():
    """(74), (75) with 1 - h_n in place of e_n - softmax(h)."""
    p, E = distillation.softmax(F, 2.0), 2.0
    kept = discriminator.activations(W, WIDTHS, p)
    s = np.exp(distillation.log_softmax(kept[-1]))
    back = np.zeros_like(s)
    back[np.arange(len(F)), WHO] = (1 - s)[np.arange(len(F)), WHO]
    for i, (weights, _) in reversed(list(enumerate(discriminator.layers(W, WIDTHS)))):
        back = (back @ weights) * (kept[i] > 0 if i else 1)
    wrong = (p * back - p * (p * back).sum(1, keepdims=True)) / E
    assert np.abs(wrong - discriminator.feedback(W, WIDTHS, F, WHO, ALL, E)[1]).max() > 1e-2


def test_split_back_propagation_is_the_whole_one():
    """[df/dtheta]^T g_n, (19), against autograd through h(psi(f_theta(x) / E)) in one piece."""
    from tests.methods.fedal import literal_fedal

    widths, E, x = (CLASSES, 9, 8, 5), 2.0, PUBLIC[:8]
    w = discriminator.initial(RNG, widths, np.float64)
    for n, party in enumerate(list(PARTIES.values())[:3]):
        theta = torch.tensor(party.theta0, requires_grad=True)
        f = literal_fedal.net(party, theta, x)
        literal_fedal.payoff(torch.tensor(w), widths, f, n, [True] * 5, E).backward()
        logits, who = party.net.logits(party.theta0, x), np.full(8, n)
        g = discriminator.feedback(w, widths, logits, who, ALL, E)[1]
        assert np.abs(party.net.pull(party.theta0, x, g / 8) - theta.grad.numpy()).max() < 1e-10


@pytest.mark.parametrize("E", [1.0, 3.0])
def test_divergence_and_its_gradient(E):
    q, f = distillation.softmax(RNG.normal(size=(6, 4))), RNG.normal(size=(6, 4))
    p = distillation.softmax(f, E)
    assert np.allclose(distillation.divergence(q, f, E), (q * np.log(q / p)).sum(1))
    expected = differences(lambda f: distillation.divergence(q, f, E).sum(), f)
    assert np.allclose(distillation.divergence_gradient(q, f, E), expected, atol=1e-8)
    assert np.abs(distillation.divergence_gradient(p, f, E)).max() == 0
    sure = np.eye(4)[:1]
    assert np.isclose(distillation.divergence(sure, f[:1], E)[0], -np.log(p[0, 0]))


def test_cross_entropy():
    y, f = np.array([0, 3, 1]), RNG.normal(size=(3, 4))
    _, gradient = distillation.cross_entropy(y, f)
    assert np.allclose(gradient / 3, differences(lambda f: distillation.cross_entropy(y, f)[0], f), atol=1e-8)


# Invariant 7 ----------------------------------------------------------------------------------------------------
def test_the_others_mean_comes_out_of_the_broadcast():
    stack = RNG.normal(size=(5, 6, 4))
    mean = distillation.mean_of(stack)
    for n in range(5):
        assert np.allclose(distillation.of_others(mean, 5, stack[n]), np.delete(stack, n, 0).mean(0), atol=1e-14)


def test_a_constant_on_all_logits_of_a_device_changes_nothing():
    stack, shift = RNG.normal(size=(3, 6, 4)), np.array([2.0, -1.0, 5.0])[:, None, None]
    target = [distillation.softmax(distillation.mean_of(s)) for s in (stack, stack + shift)]
    assert np.allclose(*target, atol=1e-14)
    who = np.repeat(np.arange(3), 6)
    found = [payoff(W, s.reshape(-1, 4), who, ALL, 2.0) for s in (stack, stack + shift)]
    assert np.allclose(*found, atol=1e-13)


# The game -------------------------------------------------------------------------------------------------------
def trained(stack, there=None, rounds=1500, widths=(4, 16, 16)):
    """(w, widths, rows, whose) of a discriminator at its best on frozen outputs (D, B, K)."""
    D, B, K = stack.shape
    full, f, who = (*widths, D), stack.reshape(-1, K), np.repeat(np.arange(D), B)
    there = np.ones(D, bool) if there is None else there
    w, memory = discriminator.initial(np.random.default_rng(0), full, np.float64), None
    opt = optimiser("adam", 0.02, memory or empty(W))
    for _ in range(rounds):
        opt.step(w, -discriminator.ascent(w, full, f, who, there, 1.0))
    return w, full, f, who


def test_the_optimum_is_the_share_of_each_law_and_its_value_a_jensen_shannon_divergence():
    """Laws on four points: softmax(h(v))_n = rho_n(v) / sum_m rho_m(v); -log N + JSD."""
    points = 3 * np.eye(4)
    counts = np.array([[4, 4, 2, 0], [4, 2, 4, 0], [4, 1, 1, 4]])
    stack = np.stack([np.repeat(points, c, axis=0) for c in counts])
    w, widths, f, who = trained(stack)
    rho = counts / 10
    best = rho / rho.sum(0)
    h = discriminator.activations(w, widths, distillation.softmax(points))[-1]
    assert np.abs(distillation.softmax(h) - best.T).max() < 0.01
    mean = rho.mean(0)
    jsd = sum((r[r > 0] * np.log(r[r > 0] / mean[r > 0])).sum() for r in rho) / 3
    value = discriminator.feedback(w, widths, f, who, np.ones(3, bool), 1.0)[0].mean()
    assert abs(value - (-log(3) + jsd)) < 1e-3 and -log(3) < value < 0


def test_14_who_can_be_told_apart_is_and_who_cannot_is_not():
    apart = RNG.normal(size=(3, 20, 4)) * 0.2 + np.eye(3, 4)[:, None] * 2
    alike = np.stack([RNG.normal(size=(20, 4))] * 3)
    right, values = [], []
    for stack in (apart, alike):
        w, widths, f, who = trained(stack, rounds=400)
        u, _, caught = discriminator.feedback(w, widths, f, who, np.ones(3, bool), 1.0)
        right, values = [*right, caught.mean()], [*values, u.mean()]
    assert right[0] > 0.9 and right[1] == pytest.approx(1 / 3) and values[1] == pytest.approx(-log(3), abs=1e-3)


def test_the_elementwise_reading_of_the_lemma():
    """A class is drawn from p_n: tabular h[k, .] at D = p_n / sum p_m earns -log N + mean K(p_n, ptilde)."""
    p = distillation.softmax(RNG.normal(size=(3, 4)))
    D = p / p.sum(0)
    value = (p * np.log(D)).sum(1).mean()
    tilde = p.mean(0)
    assert value == pytest.approx(-log(3) + (p * np.log(p / tilde)).sum(1).mean())
    h = np.zeros((4, 3))
    for _ in range(20000):  # ascent on (1/N) sum_n sum_k p_n(k) log softmax(h[k])_n
        h += 2.0 * (p.T - p.sum(0)[:, None] * distillation.softmax(h)) / 3
    assert np.abs(distillation.softmax(h) - D.T).max() < 1e-8


def test_the_best_answer_to_the_best_discriminator_is_the_mean_of_the_others():
    """Lemma IV.3: p_n minimises sum_m K(p_m, ptilde) where p_n = mean of the others."""
    others = distillation.softmax(RNG.normal(size=(3, 4)))

    def value(p):
        every = np.vstack([others, p])
        return (every * np.log(every / every.mean(0))).sum()

    best = others.mean(0)
    for _ in range(200):
        other = np.abs(best + 0.05 * RNG.normal(size=4))
        assert value(best) <= value(other / other.sum()) + 1e-12


def test_the_gap_is_zero_where_all_agree():
    one = RNG.normal(size=(6, 4))
    assert np.abs(distillation.gaps(np.stack([one] * 3))).max() < 1e-15
    stack = RNG.normal(size=(3, 6, 4))
    p = distillation.softmax(stack, 2.0)
    assert np.allclose(distillation.gaps(stack, 2.0), (p * np.log(p / p.mean(0))).sum(-1).mean(-1))
    assert np.isfinite(distillation.gaps(1000 * stack)).all()


def test_clipping_shortens_only_what_is_long():
    g = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert np.allclose(distillation.clipped(g, 1.0), [[0.6, 0.8], [0.3, 0.4], [0, 0]])


# Who comes and goes ---------------------------------------------------------------------------------------------
def test_the_game_is_among_those_who_are_there():
    f, who, there = ROWS["some are away"]
    gradient = discriminator.ascent(W, WIDTHS, f, who, there, 2.0)
    weights, bias = discriminator.layers(gradient, WIDTHS)[-1]
    assert (weights[~there] == 0).all() and (bias[~there] == 0).all() and (bias[there] != 0).all()
    same = np.zeros_like(W)
    assert np.allclose(payoff(same, f, who, there, 2.0), -log(3))


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_an_optimiser_goes_on_where_it_was_saved(kind):
    gradients, memory, theta = RNG.normal(size=(6, 5)), Memory(), np.zeros(5)
    for g in gradients:
        opt, theta = optimiser(kind, 0.1, memory), theta.copy()
        opt.step(theta, g)
        memory = remembered(opt, theta)
    parameter = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    whole = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[kind]([parameter], lr=0.1)
    for g in gradients:
        parameter.grad = torch.tensor(g)
        whole.step()
    assert np.abs(parameter.detach().numpy() - theta).max() < 1e-14


# Theorems -------------------------------------------------------------------------------------------------------
def test_the_inequality_49_cannot_be_asserted():
    """l(f_m) - l(f_n) <= sqrt(2 zeta_n) + sqrt(2 zeta_m) is false: the remainder that the proof drops is positive."""
    p = np.array([[0.01, 0.99], [0.0001, 0.9999]])
    left = -np.log(p[1, 0]) + np.log(p[0, 0])
    zetas = distillation.gaps(np.log(p)[:, None])
    right = np.sqrt(2 * zetas).sum()
    assert left == pytest.approx(4.605, abs=1e-3) and right == pytest.approx(0.157, abs=1e-3)
