"""A hospital that leaves for good after it has answered, where the aggregator adds up by a rule: its answer counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_sdk.methods import METHODS
from edge_sdk.methods.robust.method import robust
from edge_sdk.methods.robust.settings import Robust
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.uploads import VectorSum
from tests.methods.problems import THETA0, envs_of
from tests.methods.test_contract import settings_of

SIZES = {"h0": 3, "h1": 2, "h2": 1}
STAY = {"h0": 3, "h2": 1}


def closed(method: Any, name: str, kind: Any) -> Any:
    """The aggregator's model and state after a round in which h1 has answered and left."""
    env = envs_of(method, settings_of(METHODS[name]), 3)["aggregator"]
    env = replace(env, me="aggregator", sizes=SIZES, here=tuple(SIZES))
    s, _ = method.aggregator.start(env)
    for place, (hospital, devices) in enumerate(SIZES.items()):
        s, _ = method.aggregator.receive(env, s, hospital, kind(THETA0 + 0.1 * place, float(devices), devices))
    s, _ = method.aggregator.close(replace(env, sizes=STAY, here=tuple(STAY)), s)
    return method.models(env, None, method.show(env, s))["global"], s


@pytest.mark.parametrize("rule", ["clip", "median"])
@pytest.mark.parametrize(("name", "kind"), [("fedavg", Sum), ("feddyn", VectorSum)])
def test_what_a_hospital_has_sent_before_it_left_counts(name: str, kind: Any, rule: str) -> None:
    """Once the aggregator could not close the round: of a hospital that is no more it took one device at most. The rule
    here leaves nobody out."""
    found, s = closed(robust(METHODS[name], Robust(hospitals=rule, keep=1e9, factor=1e9)), name, kind)
    assert not s.uploads and not s.sizes
    assert np.allclose(found, closed(METHODS[name], name, kind)[0], rtol=1e-6)
