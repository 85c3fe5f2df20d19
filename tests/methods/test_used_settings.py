"""Each setting of a method is used, or refused: one that is taken and does nothing would be a silent fallback."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from edge_sdk.contract.method import Method
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS, fedavg
from edge_sdk.methods.scaffold import SCAFFOLD
from tests.methods.problems import SIZES, play
from tests.methods.test_contract import settings_of

ONLY_WITH_OTHERS: Mapping[str, frozenset[str]] = {
    "fedbcd": frozenset({"ready", "graph"}),  # cloud
    "fedbcd-i": frozenset({"ready", "graph", "offline_every", "offline_share", "offline_limit"}),
    "hsgd": frozenset({"f0", "delta", "target", "printed", "pretraining_eta"}),  # strategies
    "augfl": frozenset({"gradient_bound", "hessian_lipschitz"}),
    "scaffold": frozenset({"local_epochs"}),  # local_steps = 0
}
"""Method -> settings that nobody reads in a run with those of the contract test."""
OTHERS: Mapping[type, tuple[Any, ...]] = {
    bool: (True,),
    int: (1,),
    float: (0.5,),
    type(None): (0.5,),
    str: ("l1", "uniform", "h0~h1"),
}
"""Type of a setting -> values that are no default."""


def watched(settings: Any, used: set[str]) -> Any:
    """The same settings, which note what is read of them."""

    class Watched(type(settings)):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            used.add(name)
            return object.__getattribute__(self, name)

    made = object.__new__(Watched)
    vars(made).update(vars(settings))
    return made


def is_refused(settings: Any, name: str) -> bool:
    """True if no other value of a setting goes with the others."""
    for value in OTHERS.get(type(getattr(settings, name)), ()):
        with suppress(UsageError):
            replace(settings, **{name: value})
            return False
    return True


def unused(method: Method) -> set[str]:
    """Settings that are neither read in a run, with what belongs to it, nor refused."""
    settings, used = settings_of(method), set[str]()
    if "fine_tune_epochs" in method.recommended:
        settings = replace(settings, fine_tune_epochs=1)
    seen = watched(settings, used)
    net, _ = play(method, seen, 2)
    shown = method.show(net.nodes["aggregator"].env, net.nodes["aggregator"].record.state)
    device = net.nodes["d0"]
    method.models(device.env, device.record.state, shown)
    method.warnings(seen, SIZES)
    return {f.name for f in fields(method.settings) if f.name not in used and not is_refused(settings, f.name)}


@pytest.mark.parametrize("name", METHODS)
def test_no_setting_of_a_method_does_nothing(name: str) -> None:
    assert unused(METHODS[name]) == {*ONLY_WITH_OTHERS.get(name, ())}


def test_settings_that_are_inherited_and_forgotten_are_seen() -> None:
    """As those of FedAvg would be in a method that takes its settings over with steps and a mean of its own."""

    @dataclass(frozen=True, kw_only=True)
    class TooMany(SCAFFOLD.settings):  # type: ignore[name-defined,misc]
        weighting: str = "samples"
        proximal: float = 0.0

    assert unused(replace(SCAFFOLD, settings=TooMany)) == {"weighting", "proximal", "local_epochs"}
    assert not unused(fedavg.FEDAVG)
