"""Dropout that is switched on in evaluation, too: `F.dropout(x)` without `training=self.training`."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import TrainModeExport
from edge_sdk.models.ir.specification.spec import Spec


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return F.dropout(self.layer(x), 0.5)


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), Block(), nn.Linear(4, 3)).eval()


def test_without_a_word_it_is_refused():
    with pytest.raises(TrainModeExport, match=r"^1: Block\(p=0.5\) .*--dropout keep .*--dropout off"):
        compile_module(make(), Spec("m", (4,)))


@pytest.mark.parametrize("dropout", ["off", "keep"])
def test_either_switch_will_do(dropout, tmp_path):
    net = make()
    compile_module(net, Spec("m", (4,), dropout=dropout)).save(tmp_path / "m.bundle")
    model = Model(tmp_path / "m.bundle")
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    want = net[2](net[1].layer(net[0](torch.from_numpy(x)))).detach().numpy()
    np.testing.assert_allclose(model.predict(model.theta0, x), want, atol=1e-5)
    assert bool(model.drop_sites) == (dropout == "keep")
