"""A device begins a run with what an earlier one has left on it, in each method that has a personal part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.contract.method import OUT, Send
from edge_sdk.methods import METHODS
from edge_sdk.methods.ditto import DITTO, DeviceState
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.shared.evaluation.healing import heal
from edge_sdk.methods.shared.evaluation.reports import COMPANION
from edge_sdk.methods.shared.training.parts import taken
from tests.methods.contract import fingerprint
from tests.methods.problems import DEVICES, LAYOUT, THETA0, envs_of, play, state
from tests.methods.test_contract import settings_of

OTHER = np.random.default_rng(9).normal(size=LAYOUT.size)
EARLIER = {"personal": THETA0 + OTHER, "global": THETA0 - 1, COMPANION: THETA0 + OTHER}


def begin(name: str, device: str = "d0"):
    """State of a device at the start of a run: without anything from an earlier one, and with it; and its env."""
    method = METHODS[name]
    env = replace(envs_of(method, settings_of(method), 3)[device], me=device)
    warm = replace(env, earlier=EARLIER)
    return method.device.start(env)[0], method.device.start(warm)[0], warm


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_what_is_there_or_says_that_it_does_not(name):
    pairs = [begin(name, device)[:2] for device in DEVICES]
    assert any(fingerprint(cold) != fingerprint(warm) for cold, warm in pairs) == METHODS[name].warms_up


def test_fedslr_takes_the_component_and_not_gamma():
    _, warm, _ = begin("fedslr")
    np.testing.assert_array_equal(warm.p, EARLIER["personal"] - EARLIER["global"])
    assert not warm.gamma.any() and not warm.tried.any()


def test_models_of_its_own_are_taken_as_they_are():
    for name, field in (("ditto", "v"), ("apfl", "v"), ("fedala", "theta"), ("fedal", "theta")):
        assert getattr(begin(name)[1], field) is EARLIER["personal"]


def test_only_the_slots_that_never_leave_a_device_are_taken():
    for name in ("fedper", "fedrep", "fedbn"):
        _, warm, env = begin(name)
        np.testing.assert_array_equal(warm.own, taken(EARLIER["personal"], env.parts.personal))


def test_a_second_run_goes_on_where_the_first_has_ended():
    """One run of 12 rounds in which w stands still, against two of 6: the personal models are the same."""
    still = replace(settings_of(DITTO), local_epochs=0, batch=0, decay=1.0)
    whole, _ = play(DITTO, still, 12)
    first, _ = play(DITTO, still, 6)
    envs = envs_of(DITTO, still, 6)
    for d in DEVICES:
        envs[d] = replace(envs[d], earlier={"personal": state(first, d).v})
    second, _ = play(DITTO, still, 6, envs=envs)
    for d in DEVICES:
        np.testing.assert_allclose(state(second, d).v, state(whole, d).v, rtol=1e-10)
        assert np.abs(state(second, d).v - state(first, d).v).max() > 1e-3


def test_a_device_whose_state_has_diverged_takes_nothing_of_an_earlier_run():
    env = replace(envs_of(DITTO, settings_of(DITTO), 3)["d0"], me="d0", earlier=EARLIER)
    spoilt = DeviceState(np.full(LAYOUT.size, np.inf))
    kept, sends = heal(DITTO.device, env, spoilt, (spoilt, [Send(OUT, None)]), 1)
    assert kept.v is None and "as on the first day" in sends[0].message.what


def test_what_was_taken_is_judged_as_the_personal_model():
    _, warm, env = begin("fedslr")
    shown = FEDSLR.show(env, FEDSLR.aggregator.start(envs_of(FEDSLR, env.settings, 3)["aggregator"])[0])
    np.testing.assert_allclose(FEDSLR.models(env, warm, shown)["personal"] - THETA0, OTHER + 1, atol=1e-12)
