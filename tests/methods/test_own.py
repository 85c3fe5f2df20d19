"""Methods of plain functions: the contract, Ditto written again, a server with a memory, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra import lowrank
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS, Catalogue
from edge_sdk.methods.ditto import DITTO
from edge_sdk.methods.ditto import Settings as DittoSettings
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedavg import Settings as FedavgSettings
from edge_sdk.methods.own import method
from edge_sdk.methods.shared.evaluation.evaluation import evaluated
from edge_sdk.methods.shared.evaluation.reports import Progress
from edge_sdk.nodes.configuration.settings import from_mapping
from edge_sdk.plugins import entries_of
from tests.methods import contract
from tests.methods.problems import DEVICES, HASTY, LAYOUT, LOSSY, USUAL, play, state, told

SMALL = dict(eta_l=0.05, batch=16, local_epochs=1, weight_decay=1e-2)


def ditto(device, w, own):
    s, v = device.settings, w if own is None else own
    return device.sgd(w), device.sgd(v, epochs=s.personal_epochs, near=w, pull=s.nearness)


def momentum(aggregator, w, mean, memory):
    step = mean - w + (0.0 if memory is None else aggregator.settings.beta * memory)
    return w + step, step


def tuned(device, w, own):
    return device.sgd(w, epochs=1)


OWN = {
    "ditto": method("own-ditto", local=ditto, settings={"nearness": 0.7, "personal_epochs": 3}),
    "momentum": method("own-momentum", server=momentum, settings={"beta": 0.9}),
    "tuned": method("own-tuned", personal=tuned),
    "nothing": method("own-nothing"),
}


def model(net):
    return lowrank.unpack(LAYOUT, state(net, "aggregator").model)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", OWN)
def test_contract(name, check):
    one = evaluated(OWN[name], every=3)
    check(one, one.settings(**SMALL))


@pytest.mark.parametrize(("faults", "policies"), [(USUAL, {}), (LOSSY, HASTY)], ids=["all", "some"])
def test_ditto_written_again_is_ditto_to_the_bit(faults, policies):
    """Also what its devices tell of each round."""
    ours, said = play(OWN["ditto"], OWN["ditto"].settings(**SMALL), 8, faults=faults, policies=policies)
    theirs, heard = play(
        DITTO, DittoSettings(**SMALL, nearness=0.7, personal_epochs=3), 8, faults=faults, policies=policies
    )
    assert np.array_equal(model(ours), model(theirs))
    for d in DEVICES:
        v, known = state(ours, d).own, state(theirs, d).v
        assert (v is None and known is None) or np.array_equal(v, known)
    assert [m.sums for m in told(said, Progress)] == [m.sums for m in told(heard, Progress)]
    assert not np.array_equal(state(ours, "d0").own, model(ours))


def test_without_functions_it_is_fedavg_to_the_bit():
    ours, _ = play(OWN["nothing"], OWN["nothing"].settings(**SMALL, participation=0.5), 6)
    theirs, _ = play(FEDAVG, FedavgSettings(**SMALL, participation=0.5), 6)
    assert np.array_equal(model(ours), model(theirs))


def test_a_server_remembers():
    one = OWN["momentum"]
    with_memory, _ = play(one, one.settings(**SMALL), 3)
    without, _ = play(one, one.settings(**SMALL, beta=0.0), 3)
    assert np.abs(model(with_memory) - model(without)).max() > 1e-3
    first, _ = play(one, one.settings(**SMALL), 1)
    plain, _ = play(OWN["nothing"], OWN["nothing"].settings(**SMALL), 1)
    assert np.abs(model(first) - model(plain)).max() < 1e-12


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"local": lambda device: 0}, "local takes 1 arguments; expected 2 or 3"),
        ({"server": lambda a, w: w}, "server takes 2 arguments; expected 3 or 4"),
        ({"personal": lambda device, w: w}, "personal takes 2 arguments; expected 3,"),
    ],
)
def test_functions_of_other_arguments_are_refused(given, words):
    with pytest.raises(UsageError, match=words):
        method("mine", **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"local": lambda device, w: None},
            rf"local returned a NoneType object \(\); expected floats \({LAYOUT.size},\)",
        ),
        ({"local": lambda device, w: w[:3]}, r"local returned a ndarray float64 \(3,\)"),
        ({"local": lambda device, w, own: w}, "local returned a ndarray; expected upload, own"),
        ({"server": lambda a, w, mean, memory: w}, "server returned a ndarray; expected w, memory"),
        ({"server": lambda a, w, mean: mean * np.nan}, "server returned a model with numbers that are not finite"),
        ({"local": lambda device, w: device.sdg(w)}, r"local failed with AttributeError: .*\(.*test_own.py, line \d+"),
        ({"server": lambda a, w, mean: w[:3] + mean}, r"server failed with ValueError: .*\(.*test_own.py, line \d+"),
    ],
)
def test_results_of_another_kind_are_refused(given, words):
    one = method("mine", **given)
    with pytest.raises(UsageError, match=f"method mine: {words}"):
        play(one, one.settings(**SMALL), 2)


def test_a_setting_of_its_own_has_the_type_of_its_default():
    with pytest.raises(UsageError, match="eta_l"):
        OWN["ditto"].settings(eta_l=-1.0)
    assert method("mine", settings={"local_epochs": 9}).settings().local_epochs == 9


class Entry:
    """An entry point of another package."""

    value, module, dist = "theirs:METHOD", "theirs", None

    def __init__(self, name, found):
        self.name, self.found = name, found

    def load(self):
        return self.found


@pytest.fixture
def installed(monkeypatch):
    """What entry points there are."""

    def install(*entries):
        monkeypatch.setattr(
            "importlib.metadata.entry_points", lambda group: entries if group == "auscult.methods" else ()
        )
        entries_of.cache_clear()
        return Catalogue(METHODS.places)

    yield install
    entries_of.cache_clear()


def test_methods_of_other_packages_have_names_as_ours(installed):
    found = installed(Entry("theirs", method("theirs")))
    assert "theirs" in found and found["theirs"].name == "theirs" and "theirs" in [*found]
    assert "fedavg" in found and len(found) == len(METHODS.places) + 1


def test_other_packages_replace_no_method_of_ours(installed):
    found = installed(Entry("fedavg", method("theirs")))
    assert found["fedavg"] is FEDAVG and len(found) == len(METHODS.places)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("theirs", 7), "method theirs, theirs:METHOD of a package without a name: .* expected a Method"),
        (Entry("theirs", method("other")), "theirs:METHOD .* calls itself other"),
    ],
)
def test_entry_points_that_are_no_methods_are_refused(installed, entry, words):
    with pytest.raises(UsageError, match=words):
        installed(entry)["theirs"]


@pytest.mark.parametrize("name", ["fedavg", "Mine", "", "a b", "theirs"])
def test_names_that_cannot_be_used(installed, name):
    with pytest.raises(UsageError, match="method"):
        installed(Entry("theirs", method("theirs"))).add(method(name))


def test_what_is_left_out_is_fedavgs_also_what_is_recommended():
    """Else a copy of FedAvg would make two passes where FedAvg makes five, and lose against it."""
    assert OWN["nothing"].recommended["local_epochs"] == FEDAVG.recommended["local_epochs"]
    assert "local_epochs" not in method("own-two", settings={"local_epochs": 2}).recommended


@pytest.mark.parametrize(
    ("key", "words"), [("eta", r"would hide settings\.eta\(round\)"), ("learning rate", "expected a name of letters")]
)
def test_settings_whose_names_cannot_be_used_are_refused_when_the_method_is_made(key, words):
    with pytest.raises(UsageError, match=f"method mine: a setting '{key}'.* ?{words}"):
        method("mine", settings={key: 0.1})


def test_near_and_pull_go_together():
    with pytest.raises(UsageError, match="give near, what the result is held near, and pull"):
        one = method("own-near", local=lambda device, w: device.sgd(w, near=w))
        play(evaluated(one), one.settings(**SMALL), 1)


def test_a_setting_is_of_the_type_of_its_default_and_the_error_says_so() -> None:
    whole = method("own-whole", settings={"strength": 0})
    with pytest.raises(UsageError, match=r"strength = 0\.5: expected a whole number; by its default 0 .* with 0\.0 it"):
        from_mapping(whole.settings, {"strength": 0.5}, "settings")
    assert from_mapping(whole.settings, {"strength": 3}, "settings").strength == 3
    given = {"strength": np.float32(0.5), "often": np.int64(2), "eta_l": 1}
    made = from_mapping(method("own-numbers", settings=given).settings, {"strength": 1}, "settings")
    assert (made.strength, made.often, made.eta_l) == (1.0, 2, 1.0)
    assert all(type(value) is float for value in (made.strength, made.eta_l))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"strength": None}, "strength = None: a default is a number, a text, True or False"),
        ({"strength": [1, 2]}, r"strength = \[1, 2\]: a default is"),
        ({"local_epochs": 2.5}, "local_epochs = 2.5: expected int"),
        ({"weighting": 1}, "weighting = 1: expected str"),
    ],
)
def test_a_default_of_another_type_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        method("own-wrong", settings=given)
