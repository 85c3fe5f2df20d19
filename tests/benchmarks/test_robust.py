"""benchmarks/robust.py on some generated images: who is bad, what they send, and that its table is of real runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import attacks, robust
from benchmarks.robust import Images, Options
from edge_sdk.methods.robust.settings import RULES

PROTOTYPES = np.random.default_rng(2).random((10, 14, 14)).astype(np.float32)


def images(count: int = 6000) -> Images:
    """Ten patterns with noise: what a network of two layers learns in a few rounds."""
    random = np.random.default_rng(1)
    y = random.integers(0, 10, count)
    noise = random.normal(0, 0.3, (count, 14, 14)).astype(np.float32)
    return Images(np.clip(PROTOTYPES[y] + noise, 0, 1), y)


FLEET = robust.deal(images(), "iid", 0, validation=False, each=20)
SHORT = Options(rounds=6, settings=robust.TRAINING)


def run(attack: str, share: float, rule: str, **more: Any) -> tuple[float, float]:
    return robust.run_once(FLEET, attack, share, replace(SHORT, rule=rule, **more))


def test_the_gradient_is_that_of_the_loss() -> None:
    layout = robust.make_layout(14)
    theta = robust.first_model(layout, 0).astype(np.float64)
    loss = robust.Loss(layout, FLEET.judged.some(slice(0, 20)))
    _, gradient = loss(theta)
    random = np.random.default_rng(0)
    for _ in range(5):
        way = random.normal(size=layout.size)
        slope = (loss(theta + 1e-6 * way)[0] - loss(theta - 1e-6 * way)[0]) / 2e-6
        assert np.isclose(slope, gradient @ way, rtol=1e-4)


def test_bad_devices_are_drawn_evenly_and_as_many_as_asked() -> None:
    for share, each in ((0.02, {0, 1}), (0.1, {1}), (0.3, {3})):
        bad = robust.bad_devices(FLEET, share, 4)
        assert len(bad) == round(50 * share)
        assert {sum(d.startswith(f"h{h}-") for d in bad) for h in range(5)} == each
    assert robust.bad_devices(FLEET, 0.3, 4) == robust.bad_devices(FLEET, 0.3, 4) != robust.bad_devices(FLEET, 0.3, 5)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_keeps_what_scaling_destroys(rule: str) -> None:
    honest = run("nobody", 0.0, rule)[0]
    assert honest > 90, "the patterns are not learned, so nothing can be destroyed"
    found = run("scaling", 0.2, rule, robust={"share": 0.3})[0]
    assert found < 40 if rule == "none" else found > 60


def test_a_backdoor_works_and_a_rule_closes_it() -> None:
    plain, median = run("backdoor", 0.3, "none"), run("backdoor", 0.3, "median")
    assert plain[1] > 40 > 10 > median[1] and median[0] > 90


def test_what_bad_devices_send() -> None:
    w, trained = np.zeros(4), np.array([1.0, 2.0, 0.0, 2.0])
    random = np.random.default_rng(0)
    assert np.array_equal(attacks.change_of("sign flip", w, random)(trained), -trained)
    assert np.array_equal(attacks.change_of("scaling", w, random)(trained), -10 * trained)
    assert np.array_equal(attacks.change_of("label flip", w, random)(trained), trained)
    assert np.isclose(np.linalg.norm(attacks.change_of("garbage", trained, random)(w)), 3.0)
    x, y = attacks.poison_samples("backdoor", FLEET.judged.x, FLEET.judged.y, 1)
    changed = (x != FLEET.judged.x).any((1, 2))
    assert (y[changed] == attacks.TARGET).all() and 0.4 < changed.mean() < 0.6
    assert (attacks.poison_samples("label flip", x, y, 1)[1] == 9 - y).all()


def test_the_same_seed_gives_the_same_figures() -> None:
    assert run("garbage", 0.1, "clip") == run("garbage", 0.1, "clip") != run("garbage", 0.1, "clip", seed=1)


def test_the_table_has_a_row_for_each_share(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "x --rounds 1 --samples 10 --attacks backdoor --shares 0.1 --rules none clip"
    options = robust.parse(asked.split())
    found = robust.measure(images(), options)
    lines = robust.make_table(found, options.rules).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| nobody", "| backdoor"]
    assert lines[0] == "| attack | bad devices | none | clip |" and "(" in lines[3] and "(" not in lines[2]
