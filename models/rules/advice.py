"""Advice for error messages: what to use instead of an operator without a gradient rule."""

from __future__ import annotations

ADVICE = {
    "If": "data-dependent branches cannot be differentiated; use torch.where",
    "Loop": "use GRU, LSTM or a fixed number of layers",
    "embedding_bag": "use Embedding, and mean(1) or sum(1) of what it gives",
    "_embedding_bag": "use Embedding, and mean(1) or sum(1) of what it gives",
    "_embedding_bag_forward_only": "use Embedding, and mean(1) or sum(1) of what it gives",
    "searchsorted": "torch.bucketize(values, edges) finds places among edges that all samples have",
    "nanmedian": "use median, and torch.where for what is not a number",
    "GridSample": "sample images (B, C, H, W) with the modes bilinear or nearest, padded with zeros or border",
    **dict.fromkeys(
        ("Det", "linalg_inv_ex", "_linalg_svd", "_linalg_eigh", "linalg_qr", "linalg_cholesky_ex", "_linalg_solve_ex"),
        "no function that takes a matrix apart has one; use products, or Newton's iteration for an inverse",
    ),
    "LpNormalization": "divide by torch.linalg.vector_norm",
}
