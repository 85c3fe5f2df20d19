"""The contract, over every method, with and without evaluation around it; and faults, each caught by its check."""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from edge_sdk.contract import round as rounds
from edge_sdk.contract.method import OUT, UP, Send
from edge_sdk.errors import PeerError
from edge_sdk.methods import METHODS, fedavg
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedslr import device as fedslr_device
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from tests.methods import contract
from tests.methods.problems import play

WRAPPED = {"plain": lambda m: m, "evaluated": lambda m: evaluated(m, every=3)}


SMALL = dict(eta_l=0.05, eta_x=0.05, eta=0.05, batch=16, local_epochs=1, local_steps=2, personal_slots="bias")


def settings_of(method):
    known = {f.name for f in fields(method.settings)}
    return method.settings(**{name: value for name, value in SMALL.items() if name in known})


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("wrap", [pytest.param("plain", marks=pytest.mark.long), "evaluated"])
@pytest.mark.parametrize("name", METHODS)
def test_contract(name, wrap, check):
    method = WRAPPED[wrap](METHODS[name])
    check(method, settings_of(method))


# Methods at fault -----------------------------------------------------------------------------------------------
def changed(method, tier, **functions):
    return replace(method, **{tier: replace(getattr(method, tier), **functions)})


def mutating(env, s, sender, m):
    s.gamma[0] += 1
    return fedslr_device.device_receive(env, s, sender, m)


def writing_the_message(env, s, sender, m):
    m.total[...] = 0
    return fedavg.aggregator_receive(env, s, sender, m)


def never_twice(env, s, sender, m, calls=[0]):  # noqa: B006 (the fault)
    calls[0] += 1
    s, sends = fedavg.device_receive(env, s, sender, m)
    return s, [Send(UP, replace(sends[0].message, scores={"calls": float(calls[0])}))]


def keeping(env, s, sender, m):
    """A hospital that does not drop what it had gathered."""
    done, sends = fedavg.hospital_receive(env, s, sender, m)
    return (replace(done, tally=s.tally) if sender == UP else done), sends


@dataclass(frozen=True)
class Diary:
    text: str


def telling(env, s, sender, m):
    return s, [Send(UP, Diary("what it measured"))]


@dataclass(frozen=True)
class Other:
    pass


def of_another_type(env, s):
    return Other(), fedavg.hospital_close(env, s)[1]


@dataclass(frozen=True)
class Floats:
    total: np.ndarray | None = None
    weight: float = 0.0


def adding_floats(env, s, sender, m):
    if sender == UP:
        return Floats(), [Send(tuple(env.here), m)]
    return Floats(m.total if s.total is None else s.total + m.total, s.weight + m.weight), []


def sum_of_floats(env, s):
    return s, [Send(UP, Sum(s.total, s.weight, 1))]


def patient_for_ever(env, s):
    """An aggregator that asks the same again until everybody is there."""
    if s.tally is None or s.tally.count < env.devices:
        return replace(s, tally=None), [*fedavg.questions(env, s)]
    return fedavg.aggregator_close(env, s)


def weightless(env, s, sender, m):
    """A device that divides by the number of its samples, whatever that is."""
    s, sends = fedavg.device_receive(env, s, sender, m)
    return s, sends if env.samples else [Send(UP, Sum(env.theta0 / np.float32(env.samples), 1.0))]


@dataclass(frozen=True)
class Unchecked(Sum):
    def check(self, layout):
        """Whatever it says is taken."""


def unchecked(env, s, sender, m):
    s, (send,) = fedavg.device_receive(env, s, sender, m)
    return s, [Send(UP, Unchecked(**vars(send.message)))]


FAULTS = {
    "a role that writes into its state": (changed(FEDSLR, "device", receive=mutating), contract.inputs_untouched),
    "a role that writes into a message": (
        changed(FEDAVG, "aggregator", receive=writing_the_message),
        contract.inputs_untouched,
    ),
    "a role with a memory of its own": (changed(FEDAVG, "device", receive=never_twice), contract.replays),
    "a message that is not declared": (
        changed(FEDAVG, "device", receive=telling),
        contract.only_declared_messages,
    ),
    "a message that takes any number": (
        changed(FEDAVG, "device", receive=unchecked),
        contract.no_number_below_zero,
    ),
    "a state of an undeclared type": (
        changed(FEDAVG, "hospital", close=of_another_type),
        contract.survives_the_codec,
    ),
    "answers of an abandoned round": (
        changed(FEDAVG, "hospital", receive=keeping),
        contract.an_interrupted_round_is_dropped,
    ),
    "sums in the order of arrival": (
        changed(FEDAVG, "hospital", receive=adding_floats, close=sum_of_floats, start=lambda env: (Floats(), [])),
        contract.order_does_not_matter,
    ),
    "an upload of no samples": (
        changed(FEDAVG, "device", receive=weightless),
        contract.a_device_without_samples_spoils_nothing,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault):
    method, check = FAULTS[fault]
    with pytest.raises(AssertionError):
        check(method, settings_of(method))


def accepting(r, child, number, *_):
    owed = {c: n for c, n in r.owed.items() if c != child}
    return replace(r, owed=owed, heard=r.heard | {child}), None


@pytest.mark.parametrize("check", [contract.duplicates_change_nothing, contract.late_answers_change_nothing])
def test_a_node_that_accepts_what_nobody_owes_is_seen(check, monkeypatch):
    monkeypatch.setattr(rounds, "hear", accepting)
    with pytest.raises((AssertionError, PeerError)):  # the latter: more devices than there are
        check(FEDAVG, settings_of(FEDAVG))


def test_an_aggregator_that_waits_for_everybody_is_seen():
    """With a bound on the questions, or the check itself would never end."""
    asked = [0]

    def bounded(env, s):
        asked[0] += 1
        s, sends = patient_for_ever(env, s)
        return s, sends if asked[0] < 50 else [Send(OUT, None)]

    with pytest.raises(AssertionError, match="0 of 6 rounds"):
        contract.a_silent_device_does_not_stall(changed(FEDAVG, "aggregator", close=bounded), settings_of(FEDAVG))


# What it says of itself ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_in_a_line_of_its_own_what_it_is(name):
    said = [METHODS[other].summary for other in METHODS]
    assert METHODS[name].summary and said.count(METHODS[name].summary) == 1


@pytest.mark.parametrize("name", METHODS)
def test_it_tells_of_personal_models_if_it_has_any(name):
    """With `fine_tune_epochs` above 0, where that makes them."""
    method, settings = METHODS[name], settings_of(METHODS[name])
    if "fine_tune_epochs" in method.recommended:
        settings = replace(settings, fine_tune_epochs=1)
    net, _ = play(method, settings, 2)
    shown = method.show(net.nodes["aggregator"].env, net.nodes["aggregator"].record.state)
    device = net.nodes["d0"]
    assert ("personal" in method.models(device.env, device.record.state, shown)) == bool(method.personal)
