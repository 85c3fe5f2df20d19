"""FedSLR's variants and settings, what a run tells, and what never crosses a wire."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedslr import device as fedslr_device
from edge_sdk.methods.fedslr import equations as fedslr_equations
from edge_sdk.methods.fedslr import method as fedslr
from edge_sdk.methods.fedslr import settings as fedslr_settings
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr.settings import Settings
from edge_sdk.methods.shared.evaluation.evaluation import Progress
from tests.methods.fedslr.fedslr_runs import FULL_BATCH, PAPER_LIKE, agrees, model
from tests.methods.problems import DEVICES, LAYOUT, PROBLEMS, envs_of, play, state, told


# Variants -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "change",
    [{"global_penalty": "l1"}, {"global_penalty": "none"}, {"personal_penalty": "nuclear"}],
    ids=["S+S", "none", "LR+LR"],
)
def test_variants_agree_with_the_literal_algorithm(change):
    settings = replace(PAPER_LIKE, **change)
    net, transcript = play(FEDSLR, settings, 10)
    error, _, p = agrees(net, transcript, settings)
    assert error < 1e-12
    assert max(np.abs(state(net, d).p - p[d]).max() for d in DEVICES) < 1e-12


def test_a_further_smooth_term_composes_with_low_rank():
    """ServerTerms: AugFL's pretrained model beside FedSLR's penalty; the limit is a point of both."""
    target, k = np.random.default_rng(2).normal(size=LAYOUT.size), 0.3
    envs = envs_of(FEDSLR, FULL_BATCH, 150, smooth_grad=lambda w: k * 2 * (w - target))
    net, transcript = play(FEDSLR, FULL_BATCH, 150, envs=envs)
    assert agrees(net, transcript, FULL_BATCH, smooth=lambda w: k * 2 * (w - target))[0] < 1e-12
    w = model(net)
    gradient = sum(f(w)[1] for f in PROBLEMS.values()) / 6 + k * 2 * (w - target)
    again = fedslr_equations.aggregate(replace(net.nodes["aggregator"].env, smooth_grad=None), w, w, gradient)
    assert np.abs(lowrank.unpack(LAYOUT, again) - w).max() < 1e-6


def test_p_may_start_as_the_authors_code_has_it():
    layout = layout_of(("w", (2, 2), "linear"), ("scale", (2,), "norm"), ("b", (2,), "bias"))
    env = FEDSLR.env(layout=layout, theta0=np.arange(1.0, 9.0), settings=Settings(p_init="copy_w0"))
    assert fedslr_device.device_start(env)[0].p.tolist() == [1, 2, 3, 4, 0, 0, 7, 8]


def test_the_personal_model_may_be_settled_on_the_final_w_and_only_there():
    """Problem (3) at the final w: phase II goes on from the last p, with the stream of a round of its own."""
    net, _trace = play(FEDSLR, replace(PAPER_LIKE, settle_epochs=3), 4)
    plain, _ = play(FEDSLR, PAPER_LIKE, 4)
    shown = FEDSLR.show(net.nodes["aggregator"].env, state(net, "aggregator"))
    assert shown.round == 4
    for d in DEVICES:
        env, s = replace(net.nodes[d].env, me=d), state(net, d)
        assert s.p.tobytes() == state(plain, d).p.tobytes()  # training is the same
        found = FEDSLR.models(env, s, shown)
        expected = fedslr_equations.local_fusion(env, 4, found["global"], s.p, 3)
        assert found["personal"].tobytes() == (found["global"] + expected).tobytes()
        earlier = FEDSLR.models(env, s, replace(shown, round=3))
        assert earlier["personal"].tobytes() == (found["global"] + s.p).tobytes()


# Privacy --------------------------------------------------------------------------------------------------------
def test_p_and_gamma_never_cross_a_wire():
    _, transcript = play(FEDSLR, PAPER_LIKE, 6)
    private = {v.tobytes() for d in DEVICES for s in transcript.states[d] for v in (s.p, s.tried) if v.any()}
    vectors = [m.total if isinstance(m, fedslr.Sum) else m.model.values for _, _, m in transcript.crossed]
    assert len(private) == 6 * 6 * 2 and not private & {v.tobytes() for v in vectors}


def test_no_device_is_named_above_its_hospital():
    _, transcript = play(FEDSLR, replace(PAPER_LIKE, participation=0.5), 6)
    above = [m for a, b, m in transcript.crossed if "aggregator" in (a, b)]
    assert above and not any(d in repr(m) for m in above for d in DEVICES)


# Settings, and what is told -------------------------------------------------------------------------------------
def test_progress_of_each_round():
    _, transcript = play(FEDSLR, replace(PAPER_LIKE, participation=0.5), 5)
    found = told(transcript, Progress)
    assert [(p.round, p.devices, p.sums["devices"]) for p in found] == [(r, 3, 3) for r in range(1, 6)]
    assert {"loss", "samples", "global_correct", "personal_correct", "global_accuracy"} <= set(found[0].sums)
    assert found[0].sums["global_correct"] == found[0].sums["personal_correct"]  # p = 0 on what was received first
    assert found[-1].sums["loss"] < found[0].sums["loss"]


@pytest.mark.parametrize(
    "key, value",
    [
        ("eta_g", 0.0), ("eta_g", float("nan")), ("eta_l", -1.0), ("lam", -1e-4), ("mu", float("inf")), ("decay", 1.5),
        ("batch", -1), ("local_epochs", -2), ("participation", 0.0), ("participation", 2.5), ("selection", "some"),
        ("global_penalty", "l2"), ("personal_penalty", "none"), ("p_init", "random"), ("lipschitz", 0.0),
    ],
)  # fmt: skip
def test_settings_are_checked(key, value):
    with pytest.raises(UsageError, match=key):
        Settings(**{key: value})


def test_warnings_only_where_the_constant_is_known():
    assert fedslr_settings.warnings(Settings()) == []
    assert fedslr_settings.warnings(Settings(lipschitz=1.0, eta_l=0.1, eta_g=0.4)) == []
    found = fedslr_settings.warnings(Settings(lipschitz=1.0, eta_l=1.0, eta_g=0.5))
    assert len(found) == 2 and "eta_l" in found[0] and "eta_g" in found[1]


def test_learning_rate_of_the_last_round_of_the_paper():
    assert np.isclose(Settings().eta(999), 0.01353, atol=1e-5)
    assert np.isclose(sum(Settings().eta(t) for t in range(1000)), 43.247, atol=1e-3)
