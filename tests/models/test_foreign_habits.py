"""What modules of other people do, each in small: it compiles, and a device loads it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.decomposition.decompose_choices import quantile
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec


class Masked(nn.Module):
    """Causal attention with a buffer of -inf."""

    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 3)
        self.register_buffer("mask", torch.full((5, 5), float("-inf")).triu(1))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.head(((q @ k.transpose(1, 2) / 8**0.5 + self.mask).softmax(-1) @ v).mean(1))


class Encoder(nn.Module):
    """torch's encoder with a causal mask of numbers, and its decoder with one of truth values."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)
        self.head = nn.Linear(8, 3)
        self.register_buffer("hidden", torch.ones(5, 5, dtype=torch.bool).triu(1))
        self.register_buffer("mask", torch.zeros(5, 5).masked_fill(self.hidden, -1e9))

    def forward(self, x):
        h = self.encoder(x, mask=self.mask)
        return self.head(self.decoder(x, h, tgt_mask=self.hidden).mean(1))


class Choosing(nn.Module):
    """The largest, the smallest, the middle and a quantile of an axis on which torch's sort is not stable."""

    def __init__(self, size: int):
        super().__init__()
        self.body, self.head = nn.Linear(8, size), nn.Linear(6, 3)

    def forward(self, x):
        h = self.body(x.flatten(1)[:, :8])
        largest, smallest = h.topk(3).values, h.topk(1, largest=False).values
        return self.head(torch.cat([largest, smallest, h.median(1, True).values, h.quantile(0.25, 1, True)], 1))


class Neighbours(nn.Module):
    """Features of the nearest neighbours, by places alone."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 4), nn.Linear(4, 3)

    def forward(self, x):
        near = torch.cdist(x, x).topk(3, largest=False).indices
        h = self.body(x).unsqueeze(1).expand(-1, 5, -1, -1)
        return self.head(h.gather(2, near.unsqueeze(-1).expand(-1, -1, -1, 4)).amax((1, 2)))


class Spectrum(nn.Module):
    """A transform along both axes of a sample, and back."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(40, 3)

    def forward(self, x):
        h = self.body(x)
        z = torch.fft.rfftn(torch.fft.fftn(h, dim=(1, 2)).real, dim=(1, 2), norm="ortho")
        return self.head((h + torch.fft.irfftn(z, s=(5, 8), dim=(1, 2), norm="ortho")).flatten(1))


class LastStep(nn.Module):
    """What a loop gives at the last step that counts, another one for each sample; counted from the end, too."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.GRU(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        h, _ = self.body(x)
        length = (x[..., 0] > 0).sum(1)
        rows = torch.arange(x.shape[0], device=x.device)
        return self.head(h[rows, length - 1] + h[rows, length.clamp(max=4)])


class StandardisedWeights(nn.Module):
    """A convolution whose weights `F.batch_norm` standardises, as in networks without norms."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Conv1d(8, 4, 3), nn.Linear(4, 3)
        self.gain = nn.Parameter(torch.ones(4))

    def forward(self, x):
        w = self.body.weight
        flat = F.batch_norm(w.reshape(1, 4, -1), None, None, weight=self.gain, training=True, momentum=0.0)
        return self.head(F.relu(F.conv1d(x.transpose(1, 2), flat.reshape_as(w), self.body.bias)).mean(-1))


class Windowed(nn.Module):
    """A spectrum whose window is made in forward, and numbers in even steps."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 32), nn.Linear(9, 3)

    def forward(self, x):
        z = torch.stft(self.body(x).flatten(1), 16, 8, window=torch.hann_window(16), return_complex=True)
        return self.head((z.abs() + 1e-6).log().mean(-1) * torch.linspace(0.1, 1, 9, dtype=x.dtype))


class Between(nn.Module):
    """Quantiles that lie between two of 40 elements, by each rule."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(5, 3)

    def forward(self, x):
        z, rules = self.body(x).flatten(1), ("linear", "lower", "higher", "midpoint", "nearest")
        return self.head(torch.stack([z.quantile(0.3, -1, interpolation=rule) for rule in rules], 1))


class Power(nn.Module):
    """The root of a mean square, or of 0 below a least one; at 0 torch has no gradient of it."""

    def __init__(self, least: float):
        super().__init__()
        self.head, self.gain, self.least = nn.Linear(8, 3), nn.Parameter(torch.ones(8)), least

    def forward(self, x):
        power = (x * self.gain).square().mean(1)
        return self.head((power * (power >= self.least)).sqrt())


class Centres(nn.Module):
    """Distances from centres that are made in forward."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 2), nn.Linear(20, 3)

    def forward(self, x):
        centres = torch.linspace(-1, 1, 8).reshape(4, 2)
        return self.head(torch.cdist(self.body(x), centres).flatten(1))


class Turned(nn.Module):
    """An image at the places of an affine map that is learned, as a spatial transformer reads it."""

    def __init__(self):
        super().__init__()
        self.place, self.head = nn.Linear(40, 6), nn.Linear(40, 3)

    def forward(self, x):
        theta = self.place(x.flatten(1)).reshape(-1, 2, 3)
        grid = F.affine_grid(theta, [x.shape[0], 1, 5, 8], align_corners=False)
        return self.head(F.grid_sample(x.unsqueeze(1), grid, align_corners=False).flatten(1))


class Rotary(nn.Module):
    """Attention whose queries and keys are turned by angles that are made in forward, and cast there and back."""

    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 3)

    def turn(self, x):
        rates = 1.0 / 10000 ** (torch.arange(0, 8, 2, device=x.device).float() / 8)
        angles = torch.outer(torch.arange(x.shape[1], device=x.device).float(), rates)
        angles = torch.cat([angles, angles], -1)
        half = torch.cat([-x[..., 4:], x[..., :4]], -1)
        return (x.float() * angles.cos() + half.float() * angles.sin()).type_as(x)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.head(F.scaled_dot_product_attention(self.turn(q), self.turn(k), v).mean(1))


class Overwritten(nn.Module):
    """Writes over what autograd needs: torch cannot differentiate it either."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(40, 3)

    def forward(self, x):
        h = self.body(x).exp()
        h.add_(1.0)
        return self.head(h.flatten(1))


class Precise(nn.Module):
    """Running sums in double precision, and back."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x).double().cumsum(1).float().mean(1))


HABITS = {
    "double precision inside": Precise,
    "a buffer of -inf": Masked,
    "masks of numbers and of truth values": Encoder,
    "choices among 17": lambda: Choosing(17),
    "choices among 41": lambda: Choosing(41),
    "nearest neighbours": Neighbours,
    "a spectrum of two axes": Spectrum,
    "the last step": LastStep,
    "standardised weights": StandardisedWeights,
    "a window made in forward": Windowed,
    "quantiles between elements": Between,
    "distances from centres made in forward": Centres,
    "an image at the places of a map": Turned,
}


@pytest.mark.parametrize("habit", HABITS)
def test_it_compiles_and_a_device_trains_it(habit):
    torch.manual_seed(1)
    made = compile_module(HABITS[habit]().eval(), Spec("net", (5, 8), dropout="off"), search=2)
    assert made.errors["float64"] < 1e-6
    model = Model(parse(made.data))
    x = np.random.default_rng(0).standard_normal((4, 5, 8)).astype(np.float32)
    assert np.isfinite(model.loss_grad(model.theta0, x, np.arange(4) % 3)[1]).all()


def test_what_torch_cannot_differentiate_is_refused_in_a_sentence():
    with pytest.raises(CompileError, match=r"torch itself cannot differentiate it .*inplace"):
        compile_module(Overwritten().eval(), Spec("net", (5, 8)))


@pytest.mark.parametrize("rule", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_quantiles_are_torchs(size, rule):
    x = torch.randn(4, size, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[0, size // 2, 0] = float("nan")
    for q in (0.0, 0.1, 0.25, 0.3, 0.5, 1.0):
        found, want = (f(x, q, 1, interpolation=rule) for f in (quantile, torch.quantile))
        assert torch.allclose(found, want, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_where_torch_has_no_gradient_nothing_is_compared_and_it_is_said():
    said = []
    compile_module(Power(0.0).eval(), Spec("net", (5, 8)), progress=said.append)
    assert any("constant samples of weight 0" in line and "nothing was compared" in line for line in said)


def test_a_module_without_a_gradient_at_ordinary_inputs_is_refused():
    with pytest.raises(CompileError, match=r"not finite \(normal inputs\); keep roots"):
        compile_module(Power(9.0).eval(), Spec("net", (5, 8)))


def test_a_module_whose_output_is_no_number_is_refused():
    net = Power(0.0).eval()
    nn.init.constant_(net.gain, float("nan"))
    with pytest.raises(CompileError, match="output is not finite"):
        compile_module(net, Spec("net", (5, 8)))


def test_angles_made_in_forward_are_torchs_own():
    """An attention that has saturated would show other last bits as an error of the gradient."""
    torch.manual_seed(1)
    assert compile_module(Rotary().eval(), Spec("net", (32, 8)), search=2).errors["float64"] < 1e-11
