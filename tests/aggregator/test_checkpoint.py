"""Checkpoints hold numbers and never code; features are what goes into the last layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from aggregator.private_model.checkpoint import ModelOutputs, Watcher, load_named, read_checkpoint
from aggregator.private_model.crd import CrdOptions
from edge_sdk.errors import UsageError


class Command:
    def __reduce__(self):
        return (print, ("run",))


def test_checkpoints_cannot_run_code(tmp_path, capsys):
    torch.save({"state": {"a": torch.ones(1)}, "more": Command()}, tmp_path / "bad.pt")
    with pytest.raises(UsageError, match="without running code"):
        read_checkpoint(tmp_path / "bad.pt")
    assert capsys.readouterr().out == ""
    torch.save({"epoch": 3, "model": {"module.a": torch.ones(2)}}, tmp_path / "public.pt")
    tensors, more = read_checkpoint(tmp_path / "public.pt")
    assert list(tensors) == ["a"] and more["epoch"] == 3
    (tmp_path / "text.pt").write_text("no")
    with pytest.raises(UsageError, match="without running code"):
        read_checkpoint(tmp_path / "text.pt")


def test_features_are_seen_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 5)

        def forward(self, x):
            return self.a(self.a(x))

    with pytest.raises(UsageError, match="run 2 times"):
        Watcher(Twice())(torch.zeros(1, 5))
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    assert torch.equal(Watcher(net, "0")(torch.ones(1, 5)).features, torch.ones(1, 5))
    assert load_named("collections:OrderedDict") is __import__("collections").OrderedDict
    assert isinstance(Watcher(net)(torch.ones(3, 5))[torch.tensor([0, 2])], ModelOutputs)
    assert replace(CrdOptions(), dim=2).dim == 2
