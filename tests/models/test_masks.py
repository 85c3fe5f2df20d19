"""Attention whose mask hides everything: torch's result is 0 there, with a gradient of 0, and so is the bundle's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.bundle.compile import make_example
from edge_sdk.models.derive.targets import Source, write_loss_grad
from edge_sdk.models.frontend.decomposition import decompose
from edge_sdk.models.frontend.modules.randomness import find_draws
from edge_sdk.models.frontend.tracing import dropout
from edge_sdk.models.frontend.tracing.export import export_forward
from edge_sdk.models.gate.graphs.gate import Drops, Truth, check_semantics
from edge_sdk.models.ir.errors import ParityError
from edge_sdk.models.ir.specification.layout import flatten, lay_out_parameters
from edge_sdk.models.ir.specification.spec import DataInput
from tests.models.module_check import export_net, measure_exported


class Words(nn.Module):
    """Attention of words to words, of which index 0 is hidden; a subclass says how."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(5, 4), nn.Linear(4, 3)

    def attend(self, h, seen):
        return F.scaled_dot_product_attention(h, h, h, attn_mask=seen)

    def forward(self, ids):
        h = self.words(ids)
        return self.head((h + self.attend(h[:, None], (ids != 0)[:, None, None, :])[:, 0]).mean(1))


class Numbers(Words):
    """The mask as numbers that are added, one row of scores for each query."""

    def attend(self, h, seen):
        hidden = torch.zeros(seen.shape).masked_fill(~seen, float("-inf")).to(h)
        return F.scaled_dot_product_attention(h, h, h, attn_mask=hidden.expand(-1, -1, seen.shape[-1], -1), scale=0.7)


class Dropping(Words):
    def attend(self, h, seen):
        return F.scaled_dot_product_attention(h, h, h, attn_mask=seen, dropout_p=0.5 if self.training else 0.0)


class DroppingNumbers(Words):
    def attend(self, h, seen):
        hidden = torch.zeros(seen.shape).masked_fill(~seen, float("-inf")).to(h)
        return F.scaled_dot_product_attention(h, h, h, attn_mask=hidden, dropout_p=0.5 if self.training else 0.0)


class Encoder(nn.Module):
    """Torch's own encoder layer with hidden steps."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(5, 4), nn.Linear(4, 3)
        self.layer = nn.TransformerEncoderLayer(4, 2, 4, 0.0, batch_first=True, norm_first=True)

    def forward(self, ids):
        return self.head(self.layer(self.words(ids), src_key_padding_mask=ids == 0).mean(1))


KINDS = {"truth values": Words, "numbers": Numbers, "encoder": Encoder}


@pytest.mark.parametrize("name", KINDS)
def test_a_mask_that_hides_everything(name):
    torch.manual_seed(0)
    assert measure_exported(*export_net(KINDS[name](), (3,), below=5)) <= 1e-9


@pytest.mark.parametrize("name", KINDS)
def test_the_exporters_own_attention_is_caught(monkeypatch, name):
    """Its softmax over nothing is no number, in the gradient at least."""
    torch.manual_seed(0)
    monkeypatch.setattr(decompose, "has_mask", lambda node: False)
    with pytest.raises(ParityError, match="empty and full masks"):
        measure_exported(*export_net(KINDS[name](), (16,), below=5))


def measure_dropping(net):
    """The float64 error of attention with dropout that is kept."""
    torch.manual_seed(0)
    net, given = net.eval(), [DataInput("ids", (3,), 5)]
    examples, slots = [make_example(given[0])], lay_out_parameters(net)
    draws = find_draws(net, examples)
    forward = export_forward(net, slots, ["ids"], examples, dropout="keep")
    target = write_loss_grad(Source(forward, {"theta": slots}), "cross_entropy")
    truth = Truth(net, given, "cross_entropy", drops=Drops(tuple(draws), forward.sites))
    theta = flatten(dict(net.named_parameters()), slots).float().double().numpy()
    return check_semantics(target, slots, truth, {"theta": theta}, (-3,))


@pytest.mark.parametrize("net", [Dropping, DroppingNumbers])
def test_with_dropout(net):
    assert measure_dropping(net()) <= 1e-9


def test_with_dropout_and_rows_as_they_are_is_caught(monkeypatch):
    monkeypatch.setattr(dropout.MaskWriter, "settle_bias", lambda self, bias, like: (bias, None))
    with pytest.raises(ParityError, match="error nan"):
        measure_dropping(DroppingNumbers())


def test_torchs_result_without_gradients_is_the_one_with():
    """Torch's encoder layers are no numbers where a mask hides everything, but only while no gradient is wanted."""
    net = Encoder().eval()
    truth = Truth(net, [DataInput("ids", (3,), 5)], "cross_entropy")
    ids = torch.tensor([[1, 2, 3], [0, 0, 0]])
    got = truth.predict({"ids": ids})
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, net.double()(ids).detach().numpy())
