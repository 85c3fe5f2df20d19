"""A hospital that comes during a run with integers, leaves and returns: it is brought to the reference each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edge_sdk.contract.method import DOWN, Method
from tests.methods.integers.test_integers import CALM, SUPPORTED, aggregator, around, model_of
from tests.methods.problems import TREE, play

SHORT = ("fedslr", "augfl")
ROUNDS, AWAY = 14, {*range(3), 6, 7, 8}
"""Closes of the aggregator in all, and those before which the hospital h1 is none of its own."""


def changing(method: Method) -> tuple[Method, list[set[str]]]:
    """The method with an aggregator to which h1 comes and from which it goes, and who has answered in each round."""
    closes, answered = [0], [set[str]()]

    def planned(env: Any) -> Any:
        gone = {"h1"} if closes[0] in AWAY else set()
        sizes = {h: n for h, n in env.sizes.items() if h not in gone}
        return replace(env, sizes=sizes, here=tuple(h for h in env.here if h not in gone))

    def named(env: Any, step: Any) -> Any:
        return step[0], [replace(s, to=env.here) if s.to == DOWN else s for s in step[1]]

    def start(env: Any) -> Any:
        return named(planned(env), method.aggregator.start(planned(env)))

    def receive(env: Any, s: Any, sender: str, m: Any) -> Any:
        env = planned(env)
        if sender in env.sizes or sender not in TREE:
            answered[-1].add(sender)
            return named(env, method.aggregator.receive(env, s, sender, m))
        return s, []

    def close(env: Any, s: Any) -> Any:
        step = method.aggregator.close(planned(env), s)
        closes[0] += 1
        answered.append(set())
        return named(planned(env), step)

    return replace(method, aggregator=replace(method.aggregator, start=start, receive=receive, close=close)), answered


@pytest.mark.parametrize("name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.long) for n in SUPPORTED])
def test_a_hospital_that_comes_is_brought_to_the_reference(name: str) -> None:
    method, settings = around(name, participation=1.0)
    method, answered = changing(method)
    net, _ = play(method, settings, ROUNDS, faults=CALM)
    assert [("h1" in names) for names in answered[:3]] == [False] * 3
    assert any("h1" in names for names in answered[4:6]) and any("h1" in names for names in answered[10:])
    h1, cloud = (net.nodes[node].record.state for node in ("h1", "aggregator"))
    assert np.isfinite(model_of(aggregator(net).inner)).all()
    assert h1.reference.version == cloud.reference.version
    assert np.array_equal(h1.reference.model, cloud.reference.model)
