"""What the aggregator tells of the size of its model, and of what travels down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aggregator.aggregator import Aggregator
from aggregator.run_command import describe_model
from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.methods.companions.messages import SharedModel
from edge_sdk.methods.fedal.messages import Shown
from edge_sdk.methods.fedslr.messages import FedslrModel
from edge_sdk.methods.scaffold import ModelAndControl
from edge_sdk.methods.settling.method import Chosen
from edge_sdk.methods.shared.training.partial import SharedPart

LAYOUT = layout_of(("body.weight", (8, 10), "linear"), ("head.weight", (3, 8), "linear"), ("head.bias", (3,), "bias"))
RANKS = (1, lowrank.DENSE)
PACKED = lowrank.Packed(RANKS, np.zeros(lowrank.floats(LAYOUT, RANKS), np.float32))
THETA = np.zeros(LAYOUT.size, np.float32)
LOW_RANK = 8 + 10 + 24 + 3


def aggregator_with(shown: Any, theta: Any = THETA) -> Any:
    found = SimpleNamespace(bundle=SimpleNamespace(layout=LAYOUT), newest=shown, global_model=lambda: theta)
    found.show = lambda: shown
    return found


@pytest.mark.parametrize(
    ("shown", "sent"),
    [
        (FedslrModel(PACKED, 3, 0, {}), LOW_RANK),
        (Chosen(FedslrModel(PACKED, 3, 0, {}), 1, 1), LOW_RANK),
        (SharedModel(3, PACKED.ranks, PACKED.values), LOW_RANK),
        (SharedPart(np.zeros(80, np.float32), 3, 0), 80),
        (Chosen(SharedPart(np.zeros(80, np.float32), 3, 0)), 80),
        (ModelAndControl(3, 0, {}, 0, THETA, THETA), 2 * LAYOUT.size),
    ],
    ids=["fedslr", "fedslr that settles", "companions", "fedper", "fedper that settles", "scaffold"],
)
def test_what_travels_down_is_counted_as_it_travels(shown: Any, sent: int) -> None:
    aggregator = aggregator_with(shown)
    assert describe_model(aggregator)["parameters_sent"] == sent
    assert describe_model(aggregator)["parameters"] == LAYOUT.size
    assert Aggregator.describe_shown(aggregator)["sent_parameters"] == sent


def test_ranks_are_told_also_where_a_run_settles() -> None:
    found = describe_model(aggregator_with(Chosen(FedslrModel(PACKED, 3, 0, {}), 1, 1)))
    assert found["full_ranks"] == {"body.weight": 8, "head.weight": 3}
    assert {*found["ranks"]} == {"body.weight", "head.weight"}


def test_where_no_model_travels_none_is_counted() -> None:
    aggregator = aggregator_with(Shown(3), None)
    assert describe_model(aggregator)["parameters_sent"] == 0
    assert Aggregator.describe_shown(aggregator)["sent_parameters"] is None
