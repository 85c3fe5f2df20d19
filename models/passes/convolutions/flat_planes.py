"""Convolutions along the first axis of narrow images, as convolutions along one axis of the whole plane.

Sensors are often the second axis of an image whose first is time, with kernels of k x 1 taps (DeepConvLSTM). Then
onnxruntime copies the columns of its products in rows as short as the image is wide. In memory the planes are rows of
height times width numbers, in which the taps lie a width apart: the same products, of columns copied in long rows,

    y = conv(x, w)  =  flat_conv(x, w, dilation = dilation times width, padding = padding times width)

bit for bit. With 5 x 1 taps it took this share of the time, by the width: 2 0.3, 3 0.5, 9 0.6 (16 channels) to 0.75 (64
channels), and from 16 on no less; the adjoint of x gains about half of that. A ReLU behind it stays next to the
convolution, so that onnxruntime makes them one operator. The weight gradient is that of the convolution.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edge_sdk.models.ir.graph import CustomGradient, OnnxGraph
from edge_sdk.models.ir.nodes import OnnxNode
from edge_sdk.models.ir.proto import list_reads
from edge_sdk.models.ir.shapes import reshape_sizes
from edge_sdk.models.rules.windows.convolution import sum_channels
from edge_sdk.models.rules.windows.weight_gradient import write_weight_adjoint
from edge_sdk.models.rules.windows.window import Window, read_window

WIDEST = 15


def flatten_planes(g: OnnxGraph, keep: Collection[str]) -> None:
    """Rewrite all convolutions that gain by it, in place. For graphs that will be differentiated.

    Args:
        keep: values that others refer to by name.
    """
    nodes = g.take_nodes()
    units = find_units(nodes, keep)
    flat: dict[str, str] = {}
    for n in nodes:
        g.where = n.where
        window = read_window(g, n, g.numbers(n.inputs[1])[2:]) if n.op == "Conv" and not n.domain else None
        if window is not None and gains(g, n, window):
            flat[n.outputs[0]] = write_flat(g, n, window)
            if n.outputs[0] not in units:
                restore(g, flat[n.outputs[0]], n.outputs[0])
        elif n.op == "Relu" and n.inputs[0] in flat and n.inputs[0] in units:
            restore(g, g.unary("Relu", flat[n.inputs[0]]), n.outputs[0])
        else:
            g.put_back(n)
    g.where = ""


def find_units(nodes: Sequence[OnnxNode], keep: Collection[str]) -> set[str]:
    """Values that only a ReLU reads."""
    readers: dict[str, list[str]] = {}
    for n in nodes:
        for name in list_reads(n):
            readers.setdefault(name, []).append(n.op)
    return {name for name, read in readers.items() if read == ["Relu"] and name not in keep}


def gains(g: OnnxGraph, n: OnnxNode, window: Window) -> bool:
    """True for a convolution that goes along the first axis of narrow images, one position at a time."""
    if len(window.kernel) != 2 or n.outputs[0] in g.custom_gradients:
        return False
    along = window.kernel[0] > 1 == window.kernel[1] and window.stride == (1, 1) and window.group == 1
    return along and window.before[1] == window.after[1] == 0 and 2 <= g.sample_shape(n.inputs[0])[2] <= WIDEST


def write_flat(g: OnnxGraph, n: OnnxNode, window: Window) -> str:
    """Append the convolution of flat planes; its result (B, O, 1, positions)."""
    (x, w, *bias), sy = n.inputs, g.shape(n.outputs[0])
    batch, (channels, height, width) = g.shape(x)[0], g.sample_shape(x)
    outputs, inputs, taps, _ = g.numbers(w)
    apart, pads = window.dilation[0] * width, [0, window.before[0] * width, 0, window.after[0] * width]
    row = (outputs, inputs, 1, taps)
    image = g.reshape(x, (batch, channels, 1, height * width))
    made = (batch, outputs, 1, g.sample_shape(n.outputs[0])[1] * width)
    y = g.op("Conv", image, g.reshape(w, row), *bias, shape=made, dilations=[1, apart], pads=pads)

    def backward(g: OnnxGraph, gy: str, want: Sequence[bool]) -> list[str | None]:
        gx = gw = None
        if want[0]:
            flat = g.op("ConvTranspose", gy, g.reshape(w, row), shape=g.shape(image), dilations=[1, apart], pads=pads)
            gx = g.reshape(flat, g.shape(x))
        if want[1]:
            gw = write_weight_adjoint(g, x, g.reshape(gy, sy), window, g.numbers(w))
        return [gx, gw, sum_channels(g, gy) if len(want) > 2 and want[2] else None]

    g.custom_gradients[y] = CustomGradient(tuple(n.inputs), backward)
    return y


def restore(g: OnnxGraph, flat: str, name: str) -> None:
    """Append a flat value as images again, under the name that it has."""
    shape = g.shape(name)
    g.op("Reshape", flat, g.ints(reshape_sizes(shape)), shape=shape, output=name)
