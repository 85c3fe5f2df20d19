"""benchmarks/poisoned.py and the attacks of those who know the rules, on the generated images of test_robust.py."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import attacks, poisoned
from benchmarks.attacks import TOGETHER, furthest, invented
from tests.benchmarks.test_robust import images, run

MOVES = np.random.default_rng(4).normal(size=(8, 30)) + 1.0
TRAINED = np.random.default_rng(5).normal(size=30)


def gaps(moves: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.square(moves - at).sum(1)


@pytest.mark.parametrize("attack", ["min-max", "quiet door"])
def test_the_furthest_movement_that_is_no_further_than_honest_ones_are_apart(attack: str) -> None:
    limit = max(gaps(MOVES, m).max() for m in MOVES)
    assert gaps(MOVES, invented(attack, MOVES, TRAINED)).max() == pytest.approx(limit, rel=1e-6)


def test_the_furthest_movement_by_the_sum_of_distances() -> None:
    limit = max(gaps(MOVES, m).sum() for m in MOVES)
    assert gaps(MOVES, invented("min-sum", MOVES, TRAINED)).sum() == pytest.approx(limit, rel=1e-6)
    assert furthest(MOVES, MOVES.mean(0), -MOVES.std(0), sums=True) > 0


def test_movements_by_their_formulas() -> None:
    mean, spread = MOVES.mean(0), MOVES.std(0)
    assert np.allclose(invented("little", MOVES, TRAINED), mean - 1.5 * spread)
    assert np.allclose(invented("product", MOVES, TRAINED), -mean / 2)
    ways = [invented("drift", moves, TRAINED) - moves.mean(0) for moves in (MOVES, MOVES - 9)]
    assert np.linalg.norm(ways[0]) == pytest.approx(np.linalg.norm(mean))
    assert np.allclose(*(way / np.linalg.norm(way) for way in ways)), "not the same direction in all rounds"


@pytest.mark.parametrize("attack", TOGETHER)
def test_attackers_together_change_what_a_run_ends_with(attack: str) -> None:
    assert run(attack, 0.2, "none") != run("nobody", 0.2, "none")


def test_a_rule_keeps_what_scaling_destroys_of_fedslr() -> None:
    more = {"method": "fedslr", "settings": {**poisoned.robust.TRAINING, **poisoned.SETTINGS["fedslr"]}}
    honest, plain, ruled = (
        run(attack, share, rule, **more)[0]
        for attack, share, rule in (("nobody", 0, "none"), ("scaling", 0.2, "none"), ("scaling", 0.2, "trimmed-mean"))
    )
    assert honest - ruled < 5 < honest - plain, (honest, plain, ruled)


def test_the_last_line_keeps_the_model_before_where_a_run_was_spoilt(capsys: pytest.CaptureFixture[str]) -> None:
    bench = poisoned.Bench(images(12000), 0, 5)
    good = bench.run("fedavg", "none", "nobody", 0.0)
    spoilt = bench.run("fedavg", "none", "scaling", 0.2)
    assert good.run == good.kept > 80
    assert spoilt.run < 60 and spoilt.kept > good.run - 5, "the model before was not kept"
    assert 40 < bench.alone() <= 100


def test_a_hospital_that_lies_as_a_whole_is_one_of_five_to_a_rule_over_hospitals() -> None:
    bench = poisoned.Bench(images(12000), 0, 5, whole=True)
    honest = bench.run("fedslr", "none", "nobody", 0.0).run
    assert len(bench.bad(0.2)) == 10 and bench.bad(0.2) == frozenset(bench.fleet.tree["h0"])
    assert bench.run("fedslr", "none", "scaling", 0.2).run < honest - 5
    assert bench.run("fedslr", "median", "scaling", 0.2).run > honest - 5


def test_a_bad_hospital_without_honest_devices_attacks_by_what_its_own_have_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = list[int]()
    monkeypatch.setattr(attacks, "invented", lambda attack, moves, trained: known.append(len(moves)) or 0 * trained)
    poisoned.Bench(images(12000), 0, 1, whole=True).run("fedslr", "none", "product", 0.2)
    assert {*known} == {10}


def test_a_cell_and_its_row() -> None:
    cell = poisoned.mean_of([poisoned.Cell(80.0, 90.0, 10.0), poisoned.Cell(90.0, 90.0, 30.0)])
    assert (
        poisoned.written(cell, "backdoor") == "85.0 → 90.0 (20)" and poisoned.written(cell, "little") == "85.0 → 90.0"
    )
    rows = [*poisoned.rows_of(poisoned.parse(["x", "--methods", "fedslr", "--attacks", "little", "drift"]))]
    assert rows[0] == ("fedslr", "nobody", 0.0) and len(rows) == 5
    assert {*attacks.ATTACKS} >= {*poisoned.ATTACKS}
