"""Convolutions of 3 x 3 taps on small planes by Winograd's products: 16 where the definition has 36.

With tiles of 2 x 2 outputs, and matrices that act on the tile of 4 x 4 inputs d, on the taps g and on the products,
    y = A' [(G g G') (B' d B)] A
where the product in the middle is entry by entry (A. Lavin, S. Gray: "Fast Algorithms for Convolutional Neural
Networks", CVPR 2016, F(2x2, 3x3)). Summed over channels, it is a matrix product for each of the 16 entries. On a small
plane all tiles are transformed by one product with a constant matrix, which knows the padding and where tiles lie, and
puts entries first; so nothing has to be moved between the products. With x (B C, P), w (O C, 9), T tiles, and constants
S (16 T, P), R (16 T, Q), K (16, 9):

    V = S x'     (16 T, B C), read as (16, T B, C)               gx = gV' S
    U = K w'     (16, O C), read as (16, O, C)                   gw = gU' K
    M = V U'     of each entry, (16, T B, O)                     gV = gM U,  gU = gM' V
    y = M' R     (B O, Q), of M read as (16 T, B O)              gM = R gy'

The matrices have the entries 0, 1, 1/2 and 1/4 up to their signs, so that transforms round little: in float32 the error
is about that of the convolution. But it is that of the largest values around: where each product is 0, because a tap or
what it sees is, the convolution is exactly 0 and the sum of these products is 0 but for rounding, and a ReLU behind it
would let through what it stops at 0. So only convolutions are rewritten whose results go straight into a norm that
takes the mean of whole planes away: behind it 0 is a number like any other, and rounding counts beside a whole plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np
import numpy.typing as npt

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads
from edge_sdk.models.ir.shapes import Dim, Shape, as_number, as_numbers, multiply
from edge_sdk.models.passes.convolutions.batch_norm import is_running
from edge_sdk.models.rules.windows.convolution import sum_channels
from edge_sdk.models.rules.windows.weight_gradient import wait_for
from edge_sdk.models.rules.windows.window import Window, read_window

Matrix = npt.NDArray[np.float64]
Sizes = tuple[int, ...]

INPUTS: Matrix = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64)
TAPS: Matrix = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float64)
OUTPUTS: Matrix = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64)
"""B', G and A' of one axis."""
TILE, ENTRIES = 2, 16
MOST_BESIDE_PORTABLE, MOST_BESIDE_BLOCKED = 1.15, 0.95
"""Multiplications of the products, as a share of the convolution's, up to which they were faster than the portable
convolution and than that in the blocked layout."""
FEWEST_POSITIONS = 9
"""Of planes that have fewer, convolutions are products over all samples (few_positions.py), which move no weights."""
SAMPLES = 8
"""Of a step, for which weights are transformed once, unless the bundle's steps are smaller."""
CACHED, SLOWER = 1 << 18, 3
"""Entries of all weights above which their transform waits for memory, and the factor that this costs."""


@dataclass(frozen=True)
class Layer:
    """A convolution, and the constants of its products.

    Attributes:
        sx, sw, sy: shapes of x, w and y.
        tiles: T.
        into, taps, out: S, K and R.
    """

    sx: Shape
    sw: Sizes
    sy: Shape
    tiles: int
    into: str
    taps: str
    out: str

    @property
    def batch(self) -> Dim:
        return self.sx[0]


def use_winograd(g: OnnxGraph, most: float, batch_statistics: bool, samples: int = SAMPLES) -> None:
    """Rewrite all convolutions that gain by it, in place.

    Args:
        most: what the products may cost, as a share of the convolutions.
        batch_statistics: batch normalisations will use the statistics of the batch.
        samples: of a step.
    """
    nodes = g.take_nodes()
    centred = find_centred(g, nodes, batch_statistics)
    for n in nodes:
        window = read_window(g, n, g.numbers(n.inputs[1])[2:]) if n.outputs[0] in centred else None
        if window is not None and can_use(window) and cost_of(g, n, samples) <= most:
            g.where = n.where
            write_layer(g, n, window)
        else:
            g.put_back(n)
    g.where = ""


def find_centred(g: OnnxGraph, nodes: Sequence[OnnxNode], batch_statistics: bool) -> set[str]:
    """The results of convolutions that nobody reads, perhaps reshaped, but norms that take means of planes away."""
    readers: dict[str, list[OnnxNode]] = {}
    for n in nodes:
        for name in list_reads(n) if n.op != "Shape" else ():
            readers.setdefault(name, []).append(n)

    def is_centred(value: str, positions: int) -> bool:
        read = readers.get(value, [])
        return bool(read) and all(
            takes_mean(g, n, positions, batch_statistics) or (n.op == "Reshape" and is_centred(n.outputs[0], positions))
            for n in read
        )

    made = [n.outputs[0] for n in nodes if n.op == "Conv" and not n.domain]
    return {y for y in made if is_centred(y, prod(g.sample_shape(y)[1:]))}


def takes_mean(g: OnnxGraph, n: OnnxNode, positions: int, batch_statistics: bool) -> bool:
    """True for a norm that takes a mean over all of so many positions, or more, from its first input."""
    if n.op == "LayerNormalization":
        return prod(g.numbers(n.inputs[1])) >= positions
    return n.op == "InstanceNormalization" or (batch_statistics and is_running(n))


def can_use(window: Window) -> bool:
    return window.kernel == (3, 3) and window.dense and window.group == 1


def planes_of(g: OnnxGraph, n: OnnxNode) -> tuple[Sizes, Sizes]:
    """The spatial sizes of x and of y."""
    return g.sample_shape(n.inputs[0])[1:], g.sample_shape(n.outputs[0])[1:]


def cost_of(g: OnnxGraph, n: OnnxNode, samples: int) -> float:
    return compare_costs(g.numbers(n.inputs[1]), *planes_of(g, n), samples)


def compare_costs(sw: Sizes, before: Sizes, after: Sizes, samples: int = SAMPLES) -> float:
    """Multiplications of a training step with the products, as a share of those of the convolution and its gradients.

    Args:
        sw: shape of w.
        before, after: spatial sizes of x and y.
        samples: of a step.
    """
    (outputs, inputs, *taps), tiles = sw, count_tiles(after)
    if prod(after) < FEWEST_POSITIONS:
        return inf
    plain = 3 * prod(taps) * outputs * inputs * prod(after)
    entries = 3 * ENTRIES * tiles * outputs * inputs
    transforms = ENTRIES * tiles * (3 * inputs * prod(before) + 2 * outputs * prod(after))
    weights = 3 * ENTRIES * prod(taps) * outputs * inputs / samples
    return (entries + transforms + weights * (SLOWER if ENTRIES * outputs * inputs > CACHED else 1)) / plain


def count_tiles(plane: Sizes) -> int:
    return prod(-(-size // TILE) for size in plane)


def write_layer(g: OnnxGraph, n: OnnxNode, window: Window) -> None:
    """Append the products that give what the convolution gave, with their backward pass."""
    (x, w, *bias), y = n.inputs, n.outputs[0]
    before, after = planes_of(g, n)
    layer = Layer(
        sx=g.shape(x),
        sw=g.numbers(w),
        sy=g.shape(y),
        tiles=count_tiles(after),
        into=spread_inputs(g, before, after, window.before),
        taps=g.constant(np.kron(TAPS, TAPS)),
        out=spread_outputs(g, after),
    )
    products = g.matmul(transform_inputs(g, layer, x), g.swap_last(transform_taps(g, layer, w)))
    made = g.gemm(as_rows(g, layer, products), layer.out, ta=True)
    if bias and bias[0]:
        made = g.add(g.reshape(made, layer.sy), g.reshape(bias[0], (layer.sw[0], 1, 1)))
    g.op("Reshape", made, g.ints([-1, *as_numbers(layer.sy[1:])]), shape=layer.sy, output=y)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> list[str | None]:
        gx, gw = write_adjoints(g, layer, x, w, gy, want)
        return [gx, gw, sum_channels(g, gy) if len(want) > 2 and want[2] else None]

    g.custom_gradients[y] = CustomGradient(tuple(n.inputs), backward)


def write_adjoints(
    g: OnnxGraph, layer: Layer, x: str, w: str, gy: str, want: Sequence[bool]
) -> tuple[str | None, str | None]:
    """The adjoints of x and w, where they are wanted."""
    products, gx, gw = transform(g, layer, gy, layer.out, layer.sw[0]), None, None
    if want[0]:
        entries = g.matmul(products, transform_taps(g, layer, wait(g, w, gy)))
        gx = g.reshape(g.gemm(as_rows(g, layer, entries), layer.into, ta=True), layer.sx)
    if want[1]:
        entries = g.matmul(g.swap_last(products), transform_inputs(g, layer, wait_for(g, x, gy)))
        columns = g.reshape(entries, (ENTRIES, layer.sw[0] * layer.sw[1]))
        gw = g.reshape(g.gemm(columns, layer.taps, ta=True), layer.sw)
    return gx, gw


def wait(g: OnnxGraph, w: str, gy: str) -> str:
    """w, but not before gy is known: else a runtime would keep its transform from the forward pass."""
    none = g.op("Mul", g.op("Shape", gy, start=0, end=1, shape=(1,)), g.ints([0]), shape=(1,))
    shape = g.op("Add", none, g.ints(g.numbers(w)), shape=(len(g.numbers(w)),))
    return g.op("Reshape", w, shape, shape=g.shape(w))


# -- transforms ------------------------------------------------------------------------------------------------------


def transform(g: OnnxGraph, layer: Layer, v: str, matrix: str, channels: int) -> str:
    """The entries (16, T B, channels) of all tiles of planes v (B, channels, height, width)."""
    rows = g.reshape(v, (multiply((layer.batch, channels)), prod(as_numbers(g.shape(v)[2:]))))
    made = g.gemm(matrix, rows, tb=True)
    return g.reshape(made, (ENTRIES, multiply((layer.tiles, layer.batch)), channels))


def transform_inputs(g: OnnxGraph, layer: Layer, x: str) -> str:
    return transform(g, layer, x, layer.into, layer.sw[1])


def transform_taps(g: OnnxGraph, layer: Layer, w: str) -> str:
    """The entries (16, O, C) of all taps."""
    outputs, inputs, *_ = layer.sw
    made = g.gemm(layer.taps, g.reshape(w, (outputs * inputs, 9)), tb=True)
    return g.reshape(made, (ENTRIES, outputs, inputs))


def as_rows(g: OnnxGraph, layer: Layer, entries: str) -> str:
    """Entries (16, T B, channels) as (16 T, B channels)."""
    return g.reshape(entries, (ENTRIES * layer.tiles, multiply((layer.batch, as_number(g.shape(entries)[2])))))


def spread_inputs(g: OnnxGraph, before: Sizes, after: Sizes, pads: Sizes) -> str:
    """S (16 T, P): the entries of each tile from all positions of a plane; padding has none."""
    counts = [-(-size // TILE) for size in after]
    return join_axes(g, *(spread_axis(INPUTS, *axis) for axis in zip(before, counts, pads, strict=True)))


def spread_outputs(g: OnnxGraph, after: Sizes) -> str:
    """R (16 T, Q): what each entry of each tile adds to each position; of tiles that reach beyond the plane, a part."""
    return join_axes(g, *(spread_axis(OUTPUTS.T, size, -(-size // TILE), 0) for size in after))


def spread_axis(matrix: Matrix, size: int, tiles: int, pad: int) -> Matrix:
    """(4, tiles, size): a matrix (4, positions of a tile) put where the tiles of one axis lie."""
    found = np.zeros((len(matrix), tiles, size))
    for tile in range(tiles):
        for k in range(matrix.shape[1]):
            at = TILE * tile + k - pad
            if 0 <= at < size:
                found[:, tile, at] = matrix[:, k]
    return found


def join_axes(g: OnnxGraph, tall: Matrix, wide: Matrix) -> str:
    """(16 T, P) from the matrices of both axes: multiplied when a graph is loaded, so a file has the short ones."""
    (entries, high, height), (_, across, width) = tall.shape, wide.shape
    rows = g.constant(tall.reshape(entries, 1, high, 1, height, 1))
    columns = g.constant(wide.reshape(1, entries, 1, across, 1, width))
    return g.reshape(g.mul(rows, columns), (entries * entries * high * across, height * width))
