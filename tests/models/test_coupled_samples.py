"""Samples that change each other's gradients, in a batch that devices divide: refused, with the layer."""

import pytest
import torch
from torch import nn

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec


class Weighing(nn.Module):
    """Gives each sample's gradient a weight by its first value, of which `share` makes the factor."""

    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, h):
        mask = (h[:, :1].detach() > 0) + 0.5
        weight = self.share(mask, h)
        return h.detach() + weight * (h - h.detach())


class Dropping(nn.Module):
    """Drops whole samples, and divides by how many are left."""

    def forward(self, h):
        if not self.training:
            return h
        kept = torch.bernoulli(torch.full((h.shape[0], 1), 0.8))
        return h * kept / kept.mean().clamp_min(1e-3)


class Copies(nn.Module):
    """Means of three copies with dropout, whose rows lie behind each other."""

    def __init__(self):
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, h):
        made = self.head(self.drop(h.repeat(3, 1))).log_softmax(-1)
        return made.view(3, -1, 3).logsumexp(0)


SHARES = {
    "mean": lambda mask, h: mask / mask.mean(),
    "largest": lambda mask, h: mask / h.detach().abs().max(),
    "only beyond 10": lambda mask, h: 1 + (h.detach() > 10).to(h.dtype).mean(),
    "size": lambda mask, h: mask / h.shape[0],
    "order": lambda mask, h: mask + h.detach()[:, :1].argsort(0),
}


@pytest.mark.parametrize("dropout", ["off", "keep"])
@pytest.mark.parametrize("share", SHARES)
def test_a_weight_by_the_other_samples_is_refused(share, dropout):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.1), Weighing(SHARES[share]), nn.Linear(6, 3)).eval()
    named = r" \(2: (mean|max) over the samples\)" if share not in ("size", "order") else ""
    words = rf"^the gradient of a sample changes by \S+ with the other samples of its batch{named}; "
    with pytest.raises(UnsupportedPattern, match=words):
        compile_module(net, Spec("net", (6,), dropout=dropout), search=0)


def test_a_weight_by_the_other_samples_masks_is_refused():
    net = nn.Sequential(nn.Linear(6, 6), Dropping(), nn.Linear(6, 3)).eval()
    with pytest.raises(UnsupportedPattern, match="the gradient of a sample changes by"):
        compile_module(net, Spec("net", (6,), dropout="keep"), search=0)


def test_a_result_by_the_other_samples_is_refused_with_its_layer():
    class Centred(nn.Module):
        def forward(self, h):
            return h - h.detach().mean(0)

    net = nn.Sequential(nn.Linear(6, 6), Centred(), nn.Linear(6, 3)).eval()
    with pytest.raises(UnsupportedPattern, match=r"the output for a sample changes by .* \(1: mean over the samples\)"):
        compile_module(net, Spec("net", (6,)), search=0)


def test_a_weight_of_each_sample_alone_and_copies_compile():
    net = nn.Sequential(
        nn.Linear(6, 6), Weighing(lambda mask, h: mask / (1 + h.detach().abs().amax(1, True))), Copies()
    )
    assert compile_module(net.eval(), Spec("net", (6,), dropout="keep"), search=0).errors["float64"] < 1e-6
