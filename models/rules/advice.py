"""Advice for error messages: what to use instead of an operator without a gradient rule."""

from __future__ import annotations

ADVICE = {
    "If": "data-dependent branches cannot be differentiated; use torch.where",
    "Loop": "use GRU, LSTM or a fixed number of layers",
    "RNN": "use GRU or LSTM",
    "LpNormalization": "divide by torch.linalg.vector_norm",
}
