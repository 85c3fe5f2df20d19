"""Advice for error messages: what to use instead of an operator without a gradient rule."""

from __future__ import annotations

ADVICE = {
    "Round": "rounding has no useful gradient; leave it out of the trained part",
    "Floor": "rounding has no useful gradient; leave it out of the trained part",
    "Ceil": "rounding has no useful gradient; leave it out of the trained part",
    "Sign": "its gradient is zero everywhere; use tanh",
    "TopK": "use max pooling or softmax attention",
    "CumSum": "use a matrix product with a triangular matrix of ones",
    "Dropout": "set p = 0: devices regularise with weight decay or a proximal step",
    "If": "data-dependent branches cannot be differentiated; use torch.where",
    "Loop": "use GRU, LSTM or a fixed number of layers",
    "RNN": "use GRU or LSTM",
    "LpNormalization": "divide by torch.linalg.vector_norm",
    "Resize": "only nearest-neighbour upsampling by whole factors has a rule",
}
