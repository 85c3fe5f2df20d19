"""Constructs of foreign networks: each compiles, with torch's gradient at random inputs, kinks, ties and zeros."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edge_sdk.models.gate.operators.calls import check_calls
from tests.models.module_check import Net, export_net, measure_exported

INDEX = torch.tensor([[0, 2, 5], [1, 2, 2]])


def as_plane(h):
    return h.reshape(-1, 1, 2, 3)


def attend(h, **given):
    z = h.reshape(-1, 3, 2)
    return F.scaled_dot_product_attention(z, torch.tanh(z), z, **given).flatten(1)


def assign(h):
    out = h.clone()
    out[:, 1:3] = h[:, 3:5] * 2
    return out


class Powered(nn.Module):
    """Generalised mean with a trained exponent."""

    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        return x.clamp(min=0.1).pow(self.p)


class Windows(nn.Module):
    """Columns of a convolution's result: the value that is read has the name of one that unfold is written with."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 2, padding=1)

    def forward(self, x):
        return F.unfold(self.conv(x.reshape(-1, 1, 2, 3)), 2, padding=1, stride=2).flatten(1)[:, :6]


class Plain(nn.Module):
    """nn.RNN, which is written step by step."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(2, 3, batch_first=True)

    def forward(self, x):
        return self.rnn(x.reshape(-1, 3, 2))[0][:, -2:].flatten(1)


class Table(nn.Module):
    """A table of parameters that is read at fixed places, as relative positions are."""

    def __init__(self, rows, places):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, 6))
        self.register_buffer("index", torch.randint(0, rows, (places,)))

    def forward(self, x):
        return x * self.table[self.index].sum(0)


FUNCTIONS = {
    "selu": F.selu,
    "celu": lambda h: F.celu(h, 0.7),
    "logsumexp": lambda h: h * h.logsumexp(1, keepdim=True),
    "prod": lambda h: h * h.prod(1, keepdim=True),
    "sign": lambda h: torch.sign(h) + h,
    "floor, ceil and round": lambda h: torch.floor(h) + torch.ceil(h) + torch.round(h) + h,
    "cumsum": lambda h: h.cumsum(1),
    "cumsum from the end": lambda h: h.flip(1).cumsum(1),
    "sort": lambda h: h.sort(1)[0],
    "stable sort": lambda h: h.sort(dim=1, stable=True)[0] * h + h.sort(dim=1, stable=True, descending=True)[0],
    "sort down": lambda h: h.sort(1, descending=True)[0],
    "indexed by a table": lambda h: h[:, INDEX].flatten(1) * h,
    "gather": lambda h: torch.gather(h, 1, (torch.arange(6) % 4).expand(h.shape[0], 6)),
    "powers of numbers": lambda h: torch.pow(1.5, h),
    "tan, atan, sinh and cosh": lambda h: torch.tan(h) + torch.atan(h) + torch.sinh(h) * torch.cosh(h),
    "triangle": lambda h: (h.reshape(-1, 2, 3).tril() + h.reshape(-1, 2, 3).triu(1)).flatten(1) * h,
    "pixel shuffle": lambda h: F.pixel_shuffle(h[:, :4].reshape(-1, 4, 1, 1), 2).flatten(1).repeat(1, 2)[:, :6] * h,
    "scatter": lambda h: torch.zeros_like(h).scatter(1, torch.arange(5, -1, -1).expand(h.shape[0], 6), h) * h,
    "windows by strides": lambda h: h.as_strided((h.shape[0], 3, 2), (6, 2, 1)).mean(2).repeat(1, 2) * h,
    "windows that overlap": lambda h: h.as_strided((h.shape[0], 3, 4), (6, 1, 1)).amax(2).repeat(1, 2) * h,
    "fixed numbers in forward": lambda h: h.index_select(1, torch.tensor([0, 3, 3, 1, 5, 0])) * torch.tensor(0.5),
    "windows as columns": lambda h: F.unfold(as_plane(h), 2, padding=1, stride=2).flatten(1)[:, :6] * h,
    "columns put back": lambda h: F.fold(as_plane(h).reshape(-1, 6, 1), (3, 2), (3, 2)).flatten(1) * h,
    "columns that overlap": lambda h: F.fold(F.unfold(as_plane(h), 2, padding=1), (2, 3), 2, padding=1).flatten(1) * h,
    "assigned to slices": assign,
    "variance and mean": lambda h: torch.var_mean(h, 1, keepdim=True)[0] * (h - torch.var_mean(h, 1, keepdim=True)[1]),
    "between two tensors": lambda h: torch.clamp(h, 0.5 * h.flip(1), torch.relu(h.flip(1))),
    "on one side of a tensor": lambda h: h.clamp(min=h.flip(1)) * torch.clip(h, max=h.roll(1, 1)) + h.clip(h, h.abs()),
    "area below uneven steps": lambda h: h * torch.trapezoid(h, torch.arange(6.0), dim=1)[:, None],
    "slopes": lambda h: torch.gradient(h, dim=1)[0] + torch.gradient(h, spacing=0.5, dim=1, edge_order=2)[0],
    "elements along an axis": lambda h: torch.take_along_dim(h, h.argsort(dim=1, stable=True), 1) * h,
    "rows of another size along an axis": lambda h: h[:, None].take_along_dim(INDEX[None], 2).flatten(1) * h,
    "several matrices": lambda h: torch.linalg.multi_dot([h, torch.arange(36.0).reshape(6, 6).sin(), torch.eye(6)]),
    "truth values in products": lambda h: torch.bmm((h > 0).float()[:, None], h[..., None])[:, 0] * F.rms_norm(h, (6,)),
    "a fixed slope": lambda h: F.prelu(h, torch.tensor([0.1])),
    "frequencies": lambda h: h * (torch.fft.fft(h).abs() * torch.fft.fftfreq(6, 0.1)).sum(1, keepdim=True),
    "turned matrices": lambda h: (h.reshape(-1, 2, 3).mT @ h.reshape(-1, 2, 3)).flatten(1)[:, :6] + h @ torch.eye(6).mH,
    "attention without heads": lambda h: attend(h) + attend(h, is_causal=True),
    "truth values as bytes": lambda h: (1 - (h > 0).byte()) * h,
    "a range of mixed bounds": lambda h: h / torch.arange(-1, 5.0).add(0.5),
    "log density": lambda h: torch.distributions.Normal(h, h.exp()).log_prob(h.flip(1)),
    "l1 norm": lambda h: h * h.norm(p=1, dim=1, keepdim=True),
}
MODULES = {
    "trained exponent": Powered,
    "recurrence step by step": lambda: Plain(),
    "small table": lambda: Table(7, 5),
    "windows of what a convolution makes": lambda: Windows(),
    "large table": lambda: Table(300, 400),
}


def check(net, shape):
    """Parity of the whole net in float64, and of each call alone."""
    torch.manual_seed(1)
    net, inputs, forward = export_net(net, shape)
    assert measure_exported(net, inputs, forward) <= 1e-6
    check_calls(forward)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    torch.manual_seed(0)
    check(Net(FUNCTIONS[name]), (8,))


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    torch.manual_seed(0)
    check(Net(None, extra=MODULES[name]()), (8,))


class Images(nn.Module):
    """A convolution, a layer, and a linear layer on the means of channels."""

    def __init__(self, layer, channels=3):
        super().__init__()
        self.first, self.layer, self.last = nn.Conv2d(2, channels, 3), layer, nn.Linear(channels, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.layer(self.first(x))).mean((2, 3)))


class Function(nn.Module):
    """A function as a layer."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


LAYERS = {
    "max pool, ceil": nn.MaxPool2d(3, 2, ceil_mode=True),
    "max pool, ceil and padded": nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    "max pool of pairs, ceil": nn.MaxPool2d(2, ceil_mode=True),
    "average pool, ceil": nn.AvgPool2d(3, 2, ceil_mode=True),
    "average pool, ceil and padded": nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
    "average pool, padding not counted": nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "linear": Function(lambda x: F.interpolate(x, size=(9, 11), mode="bilinear")),
    "linear, corners": nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
    "linear, smaller": Function(lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear")),
    "cubic": Function(lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic")),
    "nearest, no whole factor": Function(lambda x: F.interpolate(x, size=(9, 7), mode="nearest")),
    "adaptive, no divisor": nn.AdaptiveAvgPool2d((3, 2)),
    "adaptive maximum": nn.AdaptiveMaxPool2d((4, 7)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_images(name):
    torch.manual_seed(0)
    check(Images(LAYERS[name]), (2, 10, 9))


class ChannelsLast(nn.Module):
    """A mean over the plane of an image whose channels lie last in memory, as in ConvNeXt."""

    def __init__(self):
        super().__init__()
        self.first, self.mix = nn.Conv2d(2, 4, 3), nn.Linear(4, 6)
        self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(6, 3)

    def forward(self, x):
        h = self.mix(self.first(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.last(self.pool(torch.tanh(h)).flatten(1))


def test_a_mean_where_channels_lie_last():
    torch.manual_seed(0)
    check(ChannelsLast(), (2, 6, 5))


class Twice(nn.Module):
    """One layer under two names, and a weight that another layer has, too."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 6), nn.Linear(6, 6)
        self.again, self.tied, self.last = self.b, nn.Linear(6, 8), nn.Linear(8, 3)
        self.tied.weight = nn.Parameter(self.a.weight.detach().T.clone())
        self.mirror = nn.Linear(8, 8)
        self.mirror.weight = nn.Parameter(torch.eye(8))
        self.copy = nn.Linear(8, 8)
        self.copy.weight = self.mirror.weight

    def forward(self, x):
        h = torch.tanh(self.again(torch.tanh(self.b(self.a(x)))))
        return self.last(self.copy(torch.tanh(self.mirror(self.tied(h)))))


def test_a_module_registered_twice_and_a_tied_weight():
    torch.manual_seed(0)
    check(Twice(), (8,))
