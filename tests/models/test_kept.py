"""What is alike, and which counts are tried: by their definitions."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.models.frontend.kept.counts import COUNTS, find_counts
from edge_sdk.models.frontend.kept.python_state import refuse_python_state
from edge_sdk.models.frontend.kept.snapshots import is_alike
from edge_sdk.models.ir.errors import UnsupportedPattern


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.after = 0, 512

    def forward(self, x):
        return x if self.calls < self.after else x / 137


def test_counts_are_tried_at_near_and_between_the_numbers_of_a_modules_code():
    found = {*find_counts(Late())}
    assert {*COUNTS} <= found
    for number in (137, 512, 2 * 137, 2 * 512, 137 * 137, 137 * 512, 512 * 512):
        assert {number - 2, number - 1, number, number + 1} <= found


def test_arrays_and_numbers_are_alike_to_the_bit():
    for a, b in ((np.arange(3), np.arange(3)), (torch.ones(2), torch.ones(2)), (2.0, 2.0), ("a", "a")):
        assert is_alike(a, b) and is_alike(a, a)
    others = ((np.arange(3), np.ones(3, int)), (np.arange(1), np.arange(2)), (torch.ones(2), torch.zeros(2)), (1, 1.0))
    assert not any(is_alike(a, b) for a, b in others)
    assert is_alike(float("nan"), float("nan")) and is_alike(torch.tensor(torch.nan), torch.tensor(torch.nan))


class Alarmed(nn.Module):
    """Notes large inputs, which examples seldom are, in a list."""

    def __init__(self):
        super().__init__()
        self.head, self.alarms = nn.Linear(3, 2), []

    def forward(self, x):
        if x.abs().max() > 10:
            self.alarms.append(1)
        return self.head(x) * (1 + len(self.alarms))


def test_what_only_large_inputs_change_is_seen():
    with pytest.raises(UnsupportedPattern, match=r"self\.alarms in Python changes"):
        refuse_python_state(Alarmed(), [torch.ones(2, 3)], ["x"], "", "off")
