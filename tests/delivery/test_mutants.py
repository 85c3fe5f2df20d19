"""Defects that are planted on purpose are noticed by the machine of `machine.py`, each within a few lives."""

from __future__ import annotations

import pytest

from tests.delivery.mutants import MUTANTS, lives_until_noticed

SOON = ("counts an answer without a debt", "takes a message a second time", "thinks that it has more than it has")
LIVES = 100


@pytest.mark.parametrize("name", [n if n in SOON else pytest.param(n, marks=pytest.mark.long) for n in MUTANTS])
def test_a_planted_defect_is_noticed(name: str) -> None:
    """Within so many lives at three seeds, lest a change of the lives hides one."""
    assert any(lives_until_noticed(MUTANTS[name], LIVES, seed)[0] for seed in range(3)), f"{name}: nobody noticed"
