"""Small bundles that predict values or sets of labels, and replays of them: what tests of both have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.model.tasks.task import OutputTask


def compile_layers(path: Path, name: str, loss: str, task: OutputTask, hidden: int = 0) -> Path:
    """Writes a bundle: 3 inputs, so many hidden units (0: none), the outputs of the task."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    head = nn.Linear(hidden or 3, task.outputs)
    net = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), head) if hidden else head
    return save_bundle(path, net, name, (3,), loss, task)


def write_with_bundle(
    folder: Path, write: Callable[..., object], minutes: float, shape: tuple[int, int], loss: str, task: OutputTask
) -> Path:
    """Generates the traces of 3 devices, and in their folder a bundle for windows of this shape, `flat.bundle`."""
    from torch import nn

    write(folder, devices=3, minutes=minutes)
    net = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1], task.outputs))
    save_bundle(folder / "flat.bundle", net, "flat", shape, loss, task)
    return folder


def save_bundle(path: Path, net: object, name: str, shape: tuple[int, ...], loss: str, task: OutputTask) -> Path:
    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.specification.spec import Spec

    compile_module(net.eval(), Spec(name, shape, loss=loss, task=task)).save(path)  # type: ignore[attr-defined]
    return path


def check_refused(
    folder: Path, out: Path, more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a replay of such a folder with these options says so before any process is started."""
    method = () if "--method" in more else ("--method", "fedavg")
    fixed = ("replay", str(folder), "--bundle", str(folder / "flat.bundle"), "--hospitals", "1", "--plain", *method)
    assert main([*fixed, "--out", str(out), *more]) == 2
    assert words in capsys.readouterr().err
    assert not list(out.glob("logs/*"))


def check_same_bytes(write: Callable[..., object], folder: Path, name: str) -> None:
    """Checks that the first device's trace does not depend on how many there are."""
    write(folder / "a", devices=1, minutes=1)
    write(folder / "b", devices=2, minutes=1)
    assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()
