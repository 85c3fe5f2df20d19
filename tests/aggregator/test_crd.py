"""Contrastive distillation: the formula as the paper prints it, its derivatives, and what it remembers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aggregator.private_model.crd import CrdOptions, in_batch
from edge_sdk.errors import UsageError
from tests.aggregator.private_models import (
    LOSSES,
    SAMPLES,
    STUDENT,
    TEACHER,
    Teacher,
    distil,
    make_crd,
    normalise,
    split_heads,
)


def literal_crd(c, s, tau, samples):
    """As the paper prints it: h, its logarithms, one pair after the other."""
    u = c @ s.T / tau
    q = (len(u) - 1) / samples
    h = np.exp(u) / (np.exp(u) + q)
    return np.mean(
        [-np.log(h[j, j]) - sum(np.log(1 - h[j, i]) for i in range(len(u)) if i != j) for j in range(len(u))]
    )


def test_contrast_is_as_the_paper_prints_it():
    rng = np.random.default_rng(3)
    c, s = normalise(rng.normal(size=(7, 4))), normalise(rng.normal(size=(7, 4)))
    found = in_batch(torch.tensor(c), torch.tensor(s), None, 0.3, 1 / 50)
    assert abs(found.item() - literal_crd(c, s, 0.3, 50)) < 1e-10


def test_its_derivatives_are_those_of_the_logits():
    """d/du_pos = -(1 - h_pos), d/du_neg = h_neg; and it does not overflow where h does."""
    rng = np.random.default_rng(4)
    c = torch.tensor(normalise(rng.normal(size=(5, 4))))
    s = torch.tensor(normalise(rng.normal(size=(5, 4))), requires_grad=True)
    (slope,) = torch.autograd.grad(in_batch(c, s, None, 0.3, 1 / 50), s)
    u = (c @ s.T / 0.3).detach().numpy()
    h = 1 / (1 + np.exp(-(u - np.log(4 / 50))))
    du = (h - np.eye(5)) / 5
    assert np.abs(slope.numpy() - du.T @ c.numpy() / 0.3).max() < 1e-12
    assert torch.isfinite(in_batch(c, -c, None, 1e-4, 1 / 50))


def test_a_pass_is_the_mean_over_all_samples(bundle, teacher):
    """Teacher anchors, batches in an order of their own, heads as they were drawn; in numpy."""
    r = distil(bundle, teacher, LOSSES["crd, frozen heads"], batch=23)
    theta = bundle.theta0.astype(np.float64)
    head_c, head_s = (tuple(p.numpy() for p in h) for h in split_heads(r.loss.frozen, 3))
    with torch.no_grad():
        c, s = r.teacher.features.numpy(), r.student(torch.tensor(theta), r.x)[0].numpy()
    wanted = literal_crd(normalise(c @ head_c[0].T + head_c[1]), normalise(s @ head_s[0].T + head_s[1]), 0.5, SAMPLES)
    assert abs(r(theta, 0, r.first()).value - 0.7 * wanted) < 1e-10


def test_the_other_constant_begins_at_one_in_n_plus_1(bundle, teacher):
    """N mean(e^u) in place of N / |D_s|: then h is 1 / (N + 1) where e^u is its mean."""
    r = distil(bundle, teacher, make_crd(heads="frozen", dim=3, tau=0.5), batch=8)
    head_c, head_s = (tuple(p.numpy() for p in h) for h in split_heads(r.loss.frozen, 3))
    s = r.student(torch.tensor(bundle.theta0.astype(np.float64)), r.x)[0].numpy()
    c, s = normalise(r.teacher.features.numpy() @ head_c[0].T + head_c[1]), normalise(s @ head_s[0].T + head_s[1])
    e = np.exp(c[:8] @ s[:8].T / 0.5)
    mean = e[~np.eye(8, dtype=bool)].mean()
    assert abs(r.loss.unit - mean) < 1e-12
    assert abs(mean / (mean + 7 * r.loss.unit) - 1 / 8) < 1e-12
    assert abs(in_batch(torch.tensor(c[:8]), torch.tensor(s[:8]), None, 0.5, mean)
               - literal_crd(c[:8], s[:8], 0.5, 1 / mean)) < 1e-10  # fmt: skip


def test_trained_heads_go_down_their_own_gradient(bundle, teacher):
    r = distil(bundle, teacher, LOSSES["crd, trained heads"], batch=SAMPLES)
    theta, memory = bundle.theta0.astype(np.float64), r.first()
    assert len(memory) == 3 * (TEACHER + STUDENT + 2)
    found = r(theta, 0, memory)
    for i in (0, 7, 20, 33):
        e = 1e-6 * np.eye(len(memory))[i]
        slope = (r(theta, 0, memory + e).value - r(theta, 0, memory - e).value) / 2e-6 / 0.7
        assert abs(memory[i] - 0.01 * slope - found.memory[i]) < 1e-8
    values = []
    for t in range(60):
        pull = r(theta, t, memory)
        memory, values = pull.memory, [*values, pull.value]
    assert values[-1] < values[0]


def test_heads_with_lessons_learn_more_in_a_round(bundle, teacher):
    """As many rounds, the same batches for R_h: it is lower where the heads had eight batches a round of their own."""
    theta, found = bundle.theta0.astype(np.float64), {}
    for steps in (1, 9):
        r = distil(bundle, teacher, make_crd(dim=3, tau=0.5, head_steps=steps), batch=16, every="batch")
        memory = r.first()
        for t in range(20):
            pull = r(theta, t, memory)
            memory = pull.memory
        found[steps] = pull.value
    assert found[9] < 0.97 * found[1]


def test_a_lesson_is_a_step_of_the_heads_on_a_batch_of_its_own(bundle, teacher):
    """With all samples in each batch, a round with one lesson is two rounds without, and R_h is that of the second."""
    theta = bundle.theta0.astype(np.float64)
    plain = distil(bundle, teacher, make_crd(dim=3, tau=0.5), batch=SAMPLES)
    taught = distil(bundle, teacher, make_crd(dim=3, tau=0.5, head_steps=2), batch=SAMPLES)
    second = plain(theta, 1, plain(theta, 0, plain.first()).memory)
    found = taught(theta, 0, taught.first())
    assert np.abs(found.memory - second.memory).max() < 1e-9 and abs(found.value - second.value) < 1e-9
    assert np.abs(found.gradient - second.gradient).max() < 1e-9


@pytest.mark.parametrize(
    "options", [{"head_steps": 0}, {"head_steps": 2, "heads": "frozen"}, {"head_steps": 2, "dim": 0}]
)
def test_lessons_need_heads_that_learn(options):
    with pytest.raises(UsageError, match="head_steps"):
        CrdOptions(**options)


def test_a_bank_follows_the_student(bundle, teacher):
    r = distil(bundle, teacher, LOSSES["crd, bank"])
    theta, memory = bundle.theta0.astype(np.float64), r.first()
    assert len(memory) == SAMPLES * 3
    for t in range(40):
        memory = r(theta, t, memory).memory
    w, b = split_heads(r.loss.frozen, 3)[1]
    s = normalise(r.student(torch.tensor(theta), r.x)[0].numpy() @ w.numpy().T + b.numpy())
    assert np.abs(memory.reshape(-1, 3) - s).max() < 1e-6


def test_features_without_heads(bundle):
    torch.manual_seed(2)
    r = distil(bundle, Teacher(STUDENT), make_crd(dim=0, tau=0.5))
    assert len(r.first()) == 0 and np.isfinite(r(bundle.theta0.astype(np.float64), 0, r.first()).value)
    with pytest.raises(UsageError, match="need heads"):
        distil(bundle, Teacher(), make_crd(dim=0))
