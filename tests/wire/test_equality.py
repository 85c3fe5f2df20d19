"""A few disturbed runs beside undisturbed ones; `python -m tests.wire.equality` plays many."""

from __future__ import annotations

import pytest

from edge_sdk.replay.nodes.broker import find_mosquitto
from tests.wire import equality


@pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")
@pytest.mark.parametrize(
    "method", ["fedslr:4", *(pytest.param(method, marks=pytest.mark.long) for method in ("fedslr", "fedslr:4:secret"))]
)
def test_disturbed_runs_end_as_undisturbed_ones(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """With integers: a run with error feedback, sums and a reference, all of it saved, around the method's own."""
    monkeypatch.setattr(equality, "ROUNDS", 4)
    monkeypatch.setattr(equality, "FAULTS", 3)
    equal, faults, said = equality.play_runs((method,), 1, 7)
    assert equal == 1, said
    assert faults.total() > 0
