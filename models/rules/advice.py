"""Advice for error messages: what to use instead of an operator without a gradient rule."""

from __future__ import annotations

ADVICE = {
    "adaptive_max_pool2d": "use sizes that divide the input's, or MaxPool2d",
    "adaptive_max_pool1d": "use sizes that divide the input's, or MaxPool1d",
    "STFT": "there are no complex numbers behind a trained layer; compute the spectrum before the first one",
    "stft": "there are no complex numbers; compute the spectrum before the model",
    "If": "data-dependent branches cannot be differentiated; use torch.where",
    "Loop": "use GRU, LSTM or a fixed number of layers",
    "LpNormalization": "divide by torch.linalg.vector_norm",
}
