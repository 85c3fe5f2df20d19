"""Complex numbers inside a module: they become pairs of real tensors, with torch's own gradient."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_sdk.models.frontend.decomposition import complex_pairs, fourier
from edge_sdk.models.frontend.decomposition.complex_pairs import ComplexMode, ComplexPair
from edge_sdk.models.gate.references.measure import SEMANTIC_LIMIT
from edge_sdk.models.ir.errors import ParityError, UnsupportedPattern
from tests.models.module_check import Net, export_net, measure_exported


class StateSpace(nn.Module):
    """S4D as it is printed: a diagonal state space whose kernel is a sum of complex exponentials, applied by FFT."""

    def __init__(self, states=3, length=6):
        super().__init__()
        self.first, self.last = nn.Linear(8, length), nn.Linear(length, 3)
        self.c, self.log_dt = nn.Parameter(torch.randn(1, states, 2)), nn.Parameter(torch.zeros(1))
        self.log_decay, self.frequency = nn.Parameter(-torch.ones(1, states)), nn.Parameter(torch.rand(1, states))

    def forward(self, x):
        x = self.first(x).unsqueeze(1)
        length = x.shape[-1]
        a = -torch.exp(self.log_decay) + 1j * self.frequency
        steps = a * torch.exp(self.log_dt).unsqueeze(-1)
        powers = torch.exp(steps.unsqueeze(-1) * torch.arange(length))
        c = torch.view_as_complex(self.c) * (torch.exp(steps) - 1.0) / a
        kernel = 2 * torch.einsum("hn,hnl->hl", c, powers).real
        spectra = torch.fft.rfft(x, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
        return self.last(torch.fft.irfft(spectra, n=2 * length)[..., :length].squeeze(1))


def as_complex(h):
    return torch.view_as_complex(h.reshape(-1, 3, 2))


def keep_low(h):
    """The lowest frequencies, as Fourier neural operators keep them."""
    spectrum = torch.fft.rfft(h)
    kept, others = torch.zeros(h.shape[0], 4, dtype=torch.cfloat), torch.zeros_like(spectrum)
    kept[:, :2], others[:, 3] = spectrum[:, :2] * (1 + 2j), h[:, 0]
    return torch.fft.irfft(kept + others, n=6)


def mix_low(h):
    """The same with zeros that are made like the spectrum: of its type, on its device, with a size of their own."""
    spectrum = torch.fft.rfft(h)
    kept = torch.zeros(h.shape[0], 4, dtype=spectrum.dtype, device=spectrum.device)
    kept[:, :2] = spectrum[:, :2] * (1 + 2j)
    return torch.fft.irfft(kept, n=6)


FUNCTIONS = {
    "low frequencies": keep_low,
    "low frequencies, by type": mix_low,
    "frames": lambda h: torch.istft(torch.stft(h, 4, 2, window=h.new_ones(4), return_complex=True), 4, 2, length=6) * h,
    "shifts": lambda h: torch.fft.ifft(torch.fft.fftshift(torch.fft.fft(h), dim=-1)).real,
    "spectrum": lambda h: torch.fft.rfft(h).abs().repeat(1, 2)[:, :6],
    "filter": lambda h: torch.fft.irfft(torch.fft.rfft(h, n=9) * torch.fft.rfft(torch.arange(6.0), n=9), n=9)[:, :6],
    "mixing of tokens": lambda h: torch.fft.fft2(h.reshape(-1, 2, 3)).real.flatten(1),
    "rotation": lambda h: torch.view_as_real(as_complex(h) * torch.polar(torch.ones(3), torch.arange(3.0))).flatten(1),
    "quotient": lambda h: torch.view_as_real((1 + as_complex(h)) / (3 - 1j * as_complex(h).conj())).flatten(1),
}


def export(name):
    torch.manual_seed(0)
    return export_net(StateSpace() if name == "state space" else Net(FUNCTIONS[name]), (8,))


@pytest.mark.parametrize("name", ["state space", *FUNCTIONS])
def test_gradients_are_torchs(name):
    """The exporter rounds a spectrum of fixed numbers to float32, hence the limit of the gate."""
    assert measure_exported(*export(name)) <= SEMANTIC_LIMIT


def test_a_wrong_sign_of_the_product_is_caught(monkeypatch):
    def wrong(a, b):
        (ar, ai), (br, bi) = complex_pairs.as_parts(a), complex_pairs.as_parts(b)
        return complex_pairs.make(ar * br + ai * bi, ar * bi + ai * br)

    monkeypatch.setitem(complex_pairs.FUNCTIONS, "mul", wrong)
    with pytest.raises(ParityError, match="float64"):
        measure_exported(*export("rotation"))


def both(x):
    """A complex array as torch has it, and as a pair."""
    whole = torch.from_numpy(x)
    return whole, ComplexPair(whole.real.clone(), whole.imag.clone())


def same(got, want):
    got = torch.complex(got.real, got.imag) if isinstance(got, ComplexPair) else got
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize(("size", "n"), [(8, None), (7, None), (8, 5), (6, 12)])
def test_transforms_are_torchs(size, n, norm):
    rng = np.random.default_rng(size)
    real = torch.from_numpy(rng.standard_normal((2, size, 3)))
    whole, pair = both(rng.standard_normal((2, size, 3)) + 1j * rng.standard_normal((2, size, 3)))
    given = {"n": n, "dim": 1, "norm": norm}
    same(complex_pairs.rfft(real, **given), torch.fft.rfft(real, **given))
    same(complex_pairs.fft(real, **given), torch.fft.fft(real, **given))
    same(complex_pairs.fft(pair, **given), torch.fft.fft(whole, **given))
    same(complex_pairs.ifft(pair, **given), torch.fft.ifft(whole, **given))
    same(complex_pairs.irfft(pair, **given), torch.fft.irfft(whole, **given))
    same(complex_pairs.FUNCTIONS["fft_fft2"](pair, norm=norm), torch.fft.fft2(whole, norm=norm))
    same(complex_pairs.FUNCTIONS["fft_rfft2"](real, norm=norm), torch.fft.rfft2(real, norm=norm))
    same(complex_pairs.FUNCTIONS["fft_irfft2"](pair, norm=norm), torch.fft.irfft2(whole, norm=norm))


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("window", "center", "length"), [(6, True, None), (8, True, 13), (8, False, 12)])
def test_signals_of_frames_are_torchs(window, center, length, normalized):
    whole = torch.randn(2, 3, 5, 6, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    given = {"hop_length": 2, "window": torch.rand(window, dtype=torch.float64) + 0.5, "center": center}
    given |= {"normalized": normalized, "length": length}
    want = torch.istft(whole.flatten(0, 1), 8, win_length=window, **given).unflatten(0, (2, 3))
    same(fourier.join_frames((whole.real, whole.imag), 8, win_length=window, **given), want)


def test_frames_that_are_not_a_real_signals_are_refused():
    parts = torch.ones(5, 3), torch.zeros(5, 3)
    for given in ({"onesided": False}, {"win_length": 4}, {"length": 99}):
        with pytest.raises(UnsupportedPattern, match=r"istft of .*; give the frames of stft"):
            fourier.join_frames(parts, 8, **given)


ARITHMETIC = {
    "sums": lambda a, b: 2 + a - b * 0.5 - 1j,
    "quotients": lambda a, b: (a / b) / 2,
    "matrices": lambda a, b: a @ b.mT,
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "parts": lambda a, b: torch.cat([a[:, :1], b.real.to(b.real.dtype) * a], 1).unsqueeze(0).flip(1).sum(2),
    "powers": lambda a, b: a**2 - (-b).square() + torch.exp(a),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_torchs(name):
    rng = np.random.default_rng(1)
    pairs = [both(rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3))) for _ in range(2)]
    want = ARITHMETIC[name](*(whole for whole, _ in pairs))
    with ComplexMode():
        got = ARITHMETIC[name](*(pair for _, pair in pairs))
    same(got, want)


def test_a_transform_that_is_too_long_says_what_to_do():
    with pytest.raises(UnsupportedPattern, match="use up to 2048, or windows"):
        fourier.turn(2, 2, 5000)


def test_what_other_values_may_be_read_from_is_not_written_to():
    x = torch.randn(2, 6)
    with ComplexMode(), pytest.raises(UnsupportedPattern, match=r"that were computed; join parts with torch\.cat"):
        torch.fft.rfft(x)[:, :2] = 0
