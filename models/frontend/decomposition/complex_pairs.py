"""Complex numbers as pairs of real tensors, while a module is traced: ONNX has no arithmetic for them.

Functions that make complex numbers of real ones give a `ComplexPair` here, and every function of one gives pairs or
real tensors, so that the program that is written has real tensors alone. What torch's own complex functions give
decides: the gate compares the whole with the module as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from edge_sdk.models.frontend.decomposition import fourier
from edge_sdk.models.ir.errors import UnsupportedPattern

Value = Any  # a ComplexPair, a real tensor or a number


class ComplexPair:
    """A complex tensor: `real` and `imag` have its shape. Functions are looked up in FUNCTIONS by their names.

    Attributes:
        is_own: nothing else reads these tensors, so that they may be written to.
    """

    is_own = False

    def __init__(self, real: torch.Tensor, imag: torch.Tensor) -> None:
        broadcast: Any = torch.broadcast_tensors
        self.real, self.imag = broadcast(real, imag)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(name_of(function), args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "ndim", "device", "layout", "requires_grad", "is_cuda"):
            return getattr(self.real, name)
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: call(name, (self, *args), kwargs)

    @property
    def dtype(self) -> torch.dtype:
        return COMPLEX[self.real.dtype]

    @property
    def mT(self) -> ComplexPair:
        return ComplexPair(self.real.mT, self.imag.mT)

    def is_complex(self) -> bool:
        return True

    def is_floating_point(self) -> bool:
        return False

    def size(self, axis: int | None = None) -> Any:
        return self.real.size() if axis is None else self.real.size(axis)

    def dim(self) -> int:
        return len(self.real.shape)


def add_operators() -> None:
    """Give pairs Python's operators, which are looked up on the class."""
    for name in ("add", "sub", "mul", "truediv", "matmul"):
        setattr(ComplexPair, f"__{name}__", lambda a, b, name=name: call(name, (a, b), {}))
        setattr(ComplexPair, f"__r{name}__", lambda a, b, name=name: call(name, (b, a), {}))
    for name in ("neg", "abs", "getitem", "setitem", "pow"):
        setattr(ComplexPair, f"__{name}__", lambda *args, name=name: call(name, args, {}))


def name_of(function: Any) -> str:
    """The name of a torch function, as of FUNCTIONS: `mul` for torch.mul, Tensor.mul and Tensor.__mul__."""
    return str(getattr(function, "__name__", function)).strip("_")


def call(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A function of pairs.

    Raises:
        UnsupportedPattern: nobody has written it.
    """
    if name.startswith("r") and name[1:] in SWAPPED and len(args) == 2:  # Tensor.__rmul__
        name, args = name[1:], args[::-1]
    if name in PARTWISE:
        return on_parts(name, args, kwargs)
    if name not in FUNCTIONS:
        raise UnsupportedPattern(f"{name} of complex numbers", "", "write real and imaginary parts as two real tensors")
    return FUNCTIONS[name](*args, **kwargs)


def as_parts(value: Value) -> tuple[Any, Any]:
    """Real and imaginary part of a pair, a real tensor, a complex constant or a number."""
    if isinstance(value, ComplexPair):
        return value.real, value.imag
    if isinstance(value, torch.Tensor) and value.is_complex():
        both = torch.view_as_real(value)
        return both[..., 0], both[..., 1]
    return (value.real, value.imag) if isinstance(value, complex) else (value, 0.0)


def is_real(value: Value) -> bool:
    return not isinstance(value, (ComplexPair, complex)) and not (
        isinstance(value, torch.Tensor) and value.is_complex()
    )


# functions ----------------------------------------------------------------------------------------------------------
PARTWISE = frozenset(
    {"unsqueeze", "squeeze", "reshape", "view", "flatten", "unflatten", "transpose", "permute", "movedim", "select"}
    | {"swapaxes", "narrow", "getitem", "expand", "repeat", "roll", "flip", "cat", "stack", "sum", "mean", "cumsum"}
    | {"fft_fftshift", "fft_ifftshift"}
    | {"contiguous", "clone", "neg", "t", "mT", "broadcast_to", "concat", "index_select", "pad", "diagonal", "negative"}
)
SWAPPED = frozenset({"add", "sub", "mul", "div", "truediv", "matmul"})


def on_parts(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> ComplexPair:
    """A function that treats both parts alike."""
    homes: dict[str, Any] = {"pad": torch.nn.functional.pad, "getitem": torch.Tensor.__getitem__}
    homes |= {"fft_fftshift": torch.fft.fftshift, "fft_ifftshift": torch.fft.ifftshift}
    function: Any = homes.get(name) or getattr(torch.Tensor, name, None) or getattr(torch, name)
    made = [function(*(choose(a, k) for a in args), **kwargs) for k in (0, 1)]
    return ComplexPair(*made)


def choose(value: Any, part: int) -> Any:
    """One part of an argument, which may be a list of tensors."""
    if isinstance(value, ComplexPair):
        return as_parts(value)[part]
    if isinstance(value, (list, tuple)) and any(isinstance(v, ComplexPair) for v in value):
        return [v if not isinstance(v, (ComplexPair, torch.Tensor)) else fill(v)[part] for v in value]
    return value


def fill(value: Value) -> tuple[torch.Tensor, torch.Tensor]:
    """Both parts as tensors."""
    re, im = as_parts(value)
    return re, torch.zeros_like(re) if not isinstance(im, torch.Tensor) else im


def add(a: Value, b: Value, alpha: float = 1) -> ComplexPair:
    (ar, ai), (br, bi) = as_parts(a), as_parts(b)
    return make(ar + br * alpha, ai + bi * alpha)


def make(real: Any, imag: Any) -> ComplexPair:
    """A pair of a tensor and a tensor or a number."""
    real = real if isinstance(real, torch.Tensor) else torch.full_like(imag, real)
    return ComplexPair(real, imag if isinstance(imag, torch.Tensor) else torch.full_like(real, imag))


def subtract(a: Value, b: Value, alpha: float = 1) -> ComplexPair:
    return add(a, b, -alpha)


def multiply(a: Value, b: Value) -> ComplexPair:
    (ar, ai), (br, bi) = as_parts(a), as_parts(b)
    if is_real(a) or is_real(b):
        return make(ar * br, ai * br if is_real(b) else ar * bi)
    return make(ar * br - ai * bi, ar * bi + ai * br)


def divide(a: Value, b: Value) -> ComplexPair:
    br, bi = as_parts(b)
    if is_real(b):
        ar, ai = as_parts(a)
        return make(ar / br, ai / br)
    square = br * br + bi * bi
    return multiply(a, make(br / square, -bi / square))


def multiply_matrices(a: Value, b: Value) -> ComplexPair:
    return by_products(a, b, torch.matmul)


def sum_products(equation: str, *operands: Value) -> Value:
    """torch.einsum of up to two operands."""
    operands = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    if len(operands) == 1:
        return ComplexPair(*(torch.einsum(equation, v) for v in fill(operands[0])))
    if len(operands) > 2:
        raise UnsupportedPattern("einsum of three complex tensors", "", "nest two of two")
    return by_products(operands[0], operands[1], lambda a, b: torch.einsum(equation, a, b))


def by_products(a: Value, b: Value, product: Callable[[Any, Any], torch.Tensor]) -> ComplexPair:
    """A product that is linear in both factors."""
    (ar, ai), (br, bi) = as_parts(a), as_parts(b)
    if is_real(a) or is_real(b):
        return ComplexPair(product(ar, br), product(ar, bi) if is_real(a) else product(ai, br))
    return ComplexPair(product(ar, br) - product(ai, bi), product(ar, bi) + product(ai, br))


def exponential(x: ComplexPair) -> ComplexPair:
    size = torch.exp(x.real)
    return ComplexPair(size * torch.cos(x.imag), size * torch.sin(x.imag))


def magnitude(x: ComplexPair) -> torch.Tensor:
    """|x|, whose gradient is 0 where x is 0, as torch's is."""
    size: torch.Tensor = torch.linalg.vector_norm(torch.stack([x.real, x.imag], -1), dim=-1)
    return size


def polar(size: torch.Tensor, angle: torch.Tensor) -> ComplexPair:
    return ComplexPair(size * torch.cos(angle), size * torch.sin(angle))


def power(x: Value, exponent: Any) -> ComplexPair:
    if exponent != 2:
        raise UnsupportedPattern(f"power {exponent} of complex numbers", "", "write it as products")
    return multiply(x, x)


def spectrum(x: Value, n: int | None, dim: int, norm: str | None, inverse: bool, half: bool) -> ComplexPair:
    """A transform along one axis."""
    moved = [v.transpose(dim, -1) for v in (fill(x) if not is_real(x) else (x,))]
    points = int(n or moved[0].shape[-1])
    scale = fourier.scale_of(norm, points, inverse)
    if len(moved) == 1 and not inverse:
        made = fourier.transform_real(moved[0], points, scale, half)
    else:
        both = (moved[0], moved[1] if len(moved) == 2 else torch.zeros_like(moved[0]))
        made = fourier.transform(both, points, scale, inverse)
    return ComplexPair(*(v.transpose(dim, -1) for v in made))


def rfft(input: torch.Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    return spectrum(input, n, dim, norm, False, True)


def fft(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    return spectrum(input, n, dim, norm, False, False)


def ifft(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    return spectrum(input, n, dim, norm, True, False)


def irfft(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> torch.Tensor:
    re, im = (v.transpose(dim, -1) for v in fill(input))
    points = int(n or 2 * (re.shape[-1] - 1))
    return fourier.invert_half((re, im), points, fourier.scale_of(norm, points, True)).transpose(dim, -1)


REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
COMPLEX = {real: kind for kind, real in REAL.items()}
CREATED = frozenset({"zeros", "ones", "empty", "new_zeros", "new_ones", "new_empty", "zeros_like", "ones_like"})
"""Functions of sizes, which make complex numbers where their type is named."""


def create(function: Callable[..., torch.Tensor], args: Sequence[Any], kwargs: dict[str, Any]) -> ComplexPair:
    """Zeros or ones of a complex type, which may be written to."""
    return own(function(*args, **{**kwargs, "dtype": REAL[kwargs["dtype"]]}))


def own(real: torch.Tensor) -> ComplexPair:
    """A pair of new real parts, and imaginary parts of 0."""
    made = ComplexPair(real, torch.zeros_like(real))
    made.is_own = True
    return made


def set_items(x: ComplexPair, at: Any, value: Value) -> None:
    """x[at] = value, for what was made to be filled.

    Raises:
        UnsupportedPattern: of what other values may be read from.
    """
    if not x.is_own:
        raise UnsupportedPattern("setitem of complex numbers that were computed", "", "join parts with torch.cat")
    x.real[at], x.imag[at] = as_parts(value)


PLANE = (-2, -1)


def over_axes(
    first: Callable[..., Any], last: Callable[..., Any], last_at_first: bool, dims: Sequence[int] | None = None
) -> Callable[..., Any]:
    """A transform along several axes, by those along one.

    Args:
        first: along all axes but the last one. last: along that. last_at_first: it comes before the others.
        dims: the axes if none are named; None: all, which would mix the samples of a batch.
    """

    def transform(input: Value, s: Any = None, dim: Sequence[int] | None = dims, norm: str | None = None) -> Any:
        if dim is None:
            raise UnsupportedPattern(
                "a transform along all axes, the batch among them", "", "name the axes: dim=(1, 2) for instance"
            )
        *others, (end, size) = list(zip(dim, s or [None] * len(dim), strict=True))
        found = last(input, size, end, norm) if last_at_first else input
        for axis, points in reversed(others):
            found = first(found, points, axis, norm)
        return found if last_at_first else last(found, size, end, norm)

    return transform


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": add, "sub": subtract, "mul": multiply, "multiply": multiply, "div": divide, "truediv": divide,
    "matmul": multiply_matrices, "bmm": multiply_matrices, "einsum": sum_products, "exp": exponential,
    "abs": magnitude, "pow": power, "square": lambda x: multiply(x, x), "to": lambda x, *rest, **more: x,
    "conj": lambda x: ComplexPair(x.real, -x.imag), "resolve_conj": lambda x: x, "real": lambda x: x.real,
    "angle": lambda x: torch.atan2(x.imag, x.real),
    "istft": lambda x, *args, **given: fourier.join_frames((x.real, x.imag), *args, **given),
    "setitem": set_items, "zeros_like": lambda x, **more: own(torch.zeros_like(x.real)),
    "imag": lambda x: x.imag, "view_as_real": lambda x: torch.stack([x.real, x.imag], -1),
    "fft_fft": fft, "fft_ifft": ifft, "fft_rfft": rfft, "fft_irfft": irfft,
    "fft_fft2": over_axes(fft, fft, True, PLANE), "fft_ifft2": over_axes(ifft, ifft, True, PLANE),
    "fft_rfft2": over_axes(fft, rfft, True, PLANE), "fft_irfft2": over_axes(ifft, irfft, False, PLANE),
    "fft_fftn": over_axes(fft, fft, True), "fft_ifftn": over_axes(ifft, ifft, True),
    "fft_rfftn": over_axes(fft, rfft, True), "fft_irfftn": over_axes(ifft, irfft, False),
}  # fmt: skip
MAKERS: dict[str, Callable[..., Any]] = {
    "view_as_complex": lambda x: ComplexPair(x[..., 0], x[..., 1]), "complex": ComplexPair, "polar": polar,
    **{name: FUNCTIONS[name] for name in FUNCTIONS if name.startswith("fft_") and "irfft" not in name},
    "stft": lambda *args, **kwargs: ComplexPair(*fourier.transform_frames(*args, **kwargs)),
}  # fmt: skip
"""Functions of real tensors that make complex ones."""
add_operators()


class ComplexMode(TorchFunctionMode):
    """Where this is entered, functions that would make complex tensors make pairs."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = name_of(function), kwargs or {}
        if any(issubclass(t, ComplexPair) for t in types):
            return call(name, args, kwargs)
        if name in MAKERS and not any(isinstance(a, torch.Tensor) and a.is_complex() for a in args):
            return MAKERS[name](*args, **kwargs)
        if name in CREATED and kwargs.get("dtype") in REAL:
            return create(function, args, kwargs)
        if any(isinstance(a, complex) for a in args):
            return call(name, args, kwargs)
        return function(*args, **kwargs)
