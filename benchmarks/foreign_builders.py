"""Builders of networks of other libraries that one call does not make, or that take or return several tensors."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn


def find(path: str) -> Any:
    """What a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def placed(net: str, input_shape: tuple[int, ...], places: tuple[Any, ...], **given: Any) -> nn.Module:
    """A network whose first arguments are given by their places."""
    made: nn.Module = find(net)(input_shape, *places, **given).float()  # SA_HAR has a layer of float64
    return made


def convtran() -> nn.Module:
    """ConvTran of a window of six channels, as its configuration has it by default."""
    config = {"Data_shape": (1, 6, 64), "emb_size": 16, "num_heads": 4, "dim_ff": 32, "dropout": 0.01}
    made: nn.Module = find("Models.model.ConvTran")(config | {"Fix_pos_encode": "tAPE", "Rel_pos_encode": "eRPE"}, 5)
    return made


class Series(nn.Module):
    """A network of Time-Series-Library, given the series alone: no marks of the time, no series of a decoder."""

    def __init__(self, net: nn.Module, length: int, classify: bool) -> None:
        super().__init__()
        self.net, self.length, self.classify = net, length, classify

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        marks = torch.ones(x.shape[0], self.length) if self.classify else None
        made: torch.Tensor = self.net(x, marks, None, None)
        return made


def time_series(name: str, task_name: str, **given: Any) -> nn.Module:
    """A small network of Time-Series-Library for 64 samples of six channels."""
    options = {
        "seq_len": 64, "label_len": 32, "pred_len": 16, "enc_in": 6, "dec_in": 6, "c_out": 6, "d_model": 16, "d_ff": 32,
        "n_heads": 4, "e_layers": 2, "d_layers": 1, "factor": 3, "dropout": 0.1, "embed": "timeF", "freq": "h",
        "activation": "gelu", "num_class": 5, "features": "M", "use_norm": 1, "patch_len": 8, "top_k": 2,
        "num_kernels": 2, "moving_avg": 5, "expand": 2, "d_conv": 4, "task_name": task_name, **given,
    }  # fmt: skip
    net = importlib.import_module(f"models.{name}").Model(SimpleNamespace(**options))
    return Series(net, 64, task_name == "classification")


def hugging(name: str, **config: Any) -> nn.Module:
    """A network of transformers, of its configuration's class."""
    library = importlib.import_module("transformers")
    made = getattr(library, name)
    net: nn.Module = made(made.config_class(**config))
    return net


class Pooled(nn.Module):
    """A network of steps (B, T, in) -> (B, T, out), its mean over steps and a linear layer of five classes."""

    def __init__(self, net: nn.Module, width: int, order: bool = False) -> None:
        super().__init__()
        self.net, self.head, self.axis = net, nn.Linear(width, 5), 2 if order else 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.net(x)
        steps: torch.Tensor = made[0] if isinstance(made, tuple) else made
        made_classes: torch.Tensor = self.head(steps.mean(self.axis))
        return made_classes


def pooled(net: str, output_dims: int, **given: Any) -> nn.Module:
    """An encoder of series and five classes."""
    return Pooled(find(net)(output_dims=output_dims, **given), output_dims)


class Electrodes(nn.Module):
    """LaBraM with the names of its electrodes, which it wants beside each batch."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"n_outputs": 3, "n_times": 400, "sfreq": 200, "num_layers": 2, "drop_path_prob": 0.1}
        self.net = find("braindecode.models.Labram")(n_chans=4, **sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.net(x, ch_names=["FP1", "FP2", "O1", "O2"])
        return made


def s4d() -> nn.Module:
    """One layer S4D of 16 channels and five classes."""
    return Pooled(find("models.s4.s4d.S4D")(16, d_state=8, dropout=0.1), 16, order=True)


def xlstm(slstm_at: list[int]) -> nn.Module:
    """Two blocks of xLSTM behind a linear layer: matrix memories, but for those at some places."""
    library = importlib.import_module("xlstm")
    matrix = library.mLSTMBlockConfig(mlstm=library.mLSTMLayerConfig(num_heads=2, conv1d_kernel_size=4))
    scalar = library.sLSTMBlockConfig(
        slstm=library.sLSTMLayerConfig(backend="vanilla", num_heads=2, conv1d_kernel_size=4),
        feedforward=library.FeedForwardConfig(proj_factor=1.3, act_fn="gelu"),
    )
    config = library.xLSTMBlockStackConfig(
        mlstm_block=matrix,
        slstm_block=scalar if slstm_at else None,
        context_length=64,
        num_blocks=2,
        embedding_dim=16,
        slstm_at=slstm_at,
    )
    return Pooled(nn.Sequential(nn.Linear(6, 16), library.xLSTMBlockStack(config)), 16)


def pykan() -> nn.Module:
    """A KAN of pykan as its README has it, which keeps no activations."""
    made: nn.Module = find("kan.KAN")(width=[4, 5, 3], grid=5, k=3, seed=0, auto_save=False, symbolic_enabled=False)
    made.speed()
    return made
