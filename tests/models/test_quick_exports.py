"""What exports leave out, and what tests/exports.py keeps of torch: graphs are those of torch as it is, and its tables
are left as they were."""

from __future__ import annotations

import contextlib
import importlib

import onnx
import pytest
import torch
from torch import nn
from torch.export import exported_program
from torch.fx.experimental import proxy_tensor

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.tracing import export
from edge_sdk.models.frontend.tracing.export import export_forward
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from edge_sdk.models.ir.specification.spec import Spec
from tests.exports import REPLACED, WRITTEN
from tests.models.module_check import measure_error

NETS = {
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    "recurrent": lambda: nn.GRU(8, 6, batch_first=True),
    "cells": lambda: Cells(),
    "same": lambda: Same(),
    "mixed": lambda: Mixed(),
    "convolutions": lambda: nn.Sequential(nn.Conv1d(5, 6, 3, padding="same"), nn.GroupNorm(2, 6), nn.GELU()),
}


class Cells(nn.Module):
    """A loop of recurrent cells, in which a traced program has a size for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, steps = x.new_zeros(x.shape[0], 6), []
        for step in range(x.shape[1]):
            h = self.cell(x[:, step], h)
            steps.append(h)
        return torch.stack(steps, 1)


class Same(nn.Module):
    """A function that ONNX lacks, and that does nothing here: torch leaves it out when it takes a program apart."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.square(x).to(x.dtype)


class Mixed(nn.Module):
    """Functions of numbers of several types, which torch converts: before the function, and some after it, too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places, places_x = torch.arange(x.shape[1], device=x.device), (x > 0).sum(2)
        h = x * 2 + places[:, None] / 3 - places_x[:, :, None] ** 2
        return torch.where(h > places_x[:, :, None], h, places[:, None] + True) + x.double().sum(2, True).float()


class Pooled(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        return (h[0] if isinstance(h, tuple) else h).mean(1)


def written(name: str) -> bytes:
    torch.manual_seed(0)
    WRITTEN.clear()
    net = Pooled(NETS[name]()).eval()
    forward = export_forward(net, lay_out_parameters(net), ["x"], [torch.randn(37, 5, 8)])
    return renumber(forward.model.graph).SerializeToString()


def renumber(graph: onnx.GraphProto) -> onnx.GraphProto:
    """The graph without torch's numbers in the names of its values, and its constants in the order of their use: both
    depend on sizes, too, that nobody reads."""
    names = {value.name: value.name for value in (*graph.input, *graph.output)}
    used = dict.fromkeys(name for node in graph.node for name in (*node.input, *node.output))
    names |= {name: f"v{number:05}" for number, name in enumerate(used) if name not in names}
    constants = sorted(graph.initializer, key=lambda tensor: names[tensor.name])
    del graph.initializer[:]
    graph.initializer.extend(constants)
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
    for node in graph.node:
        node.input[:], node.output[:] = ([names.get(name, name) for name in many] for many in (node.input, node.output))
        node.name = ""
        del node.metadata_props[:]
    del graph.value_info[:], graph.metadata_props[:]
    return graph


def tables() -> dict[object, dict[object, object]]:
    """The table of each operator that torch decomposes."""
    found = exported_program._collect_all_valid_cia_ops()
    return {op: dict(op.py_kernels) for op in found}


@pytest.mark.parametrize("name", NETS)
def test_graphs_are_those_of_torch_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name for _, name, _ in REPLACED}
    if not {"_override_composite_implicit_decomp", "decompose_with_registry"} <= names:
        pytest.skip("this version of torch is used as it is")
    for where, what, before in REPLACED:
        monkeypatch.setattr(where, what, before)
    for leanly in ("export_leanly", "trace_leanly"):
        monkeypatch.setattr(export, leanly, contextlib.nullcontext)
    as_it_is = written(name)
    monkeypatch.undo()
    assert [written(name), written(name)] == [as_it_is, as_it_is]  # the first may make tables, the second has them


def test_a_program_is_written_once_and_another_constant_is_another_program() -> None:
    class Shifted(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.body, self.by = nn.Linear(8, 3), torch.tensor([by, 1.0, 2.0])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) + self.by.clone()

    def write(by: float) -> onnx.ModelProto:
        torch.manual_seed(0)
        net = Shifted(by).eval()
        return export_forward(net, lay_out_parameters(net), ["x"], [torch.randn(37, 8)]).model

    WRITTEN.clear()
    first, again, other = write(0.5), write(0.5), write(0.25)
    assert len(WRITTEN) == 2 and first == again and first is not again and other != first


class Twice(nn.Module):
    """A value that is flattened twice, and one that two pairs of bounds hold: rules name their constants after it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(12, 3), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x.flatten(1)) * self.b(x.flatten(1))
        return h.clamp(max=0.1).relu() + h.clamp(max=0.2).relu()


def test_two_constants_of_one_name_are_both_there() -> None:
    assert measure_error(Twice(), (3, 4)) < 1e-9


def test_tables_of_operators_are_left_as_they_were() -> None:
    written("convolutions")
    before = tables()
    written("convolutions")
    assert tables() == before
    with (
        pytest.raises(ZeroDivisionError),
        exported_program._override_composite_implicit_decomp({op: lambda *given: NotImplemented for op in before}),
    ):
        assert tables() != before
        raise ZeroDivisionError
    assert tables() == before


def test_a_new_operator_is_listed() -> None:
    written("convolutions")
    with torch.library._scoped_library("auscult_tests", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        assert "auscult_tests::twice" in {op.name() for op in exported_program._collect_all_valid_cia_ops()}


def test_a_program_whose_functions_stay_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    home, calls = importlib.import_module("torch.onnx._internal.exporter._fx_passes"), []
    real = home.decompose_with_registry
    monkeypatch.setattr(home, "decompose_with_registry", lambda *given: calls.append(1) or real(*given))
    written("cells")
    assert not calls
    written("same")
    assert calls


def test_sizes_that_nobody_reads_are_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the functions that torch notes while it takes a loop of cells apart."""
    noted = []
    create = proxy_tensor.PythonKeyTracer.create_node
    monkeypatch.setattr(
        proxy_tensor.PythonKeyTracer, "create_node", lambda *given, **more: noted.append(1) or create(*given, **more)
    )
    written("cells")
    leanly, noted[:] = len(noted), []
    monkeypatch.setattr(export, "export_leanly", contextlib.nullcontext)
    written("cells")
    assert leanly < len(noted) / 2


def test_a_compilation_computes_on_one_thread_and_leaves_torch_as_it_was() -> None:
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        spec = Spec("small", (4,), 3)
        compile_module(nn.Sequential(nn.Linear(4, 3)).eval(), spec, lambda text: seen.append(torch.get_num_threads()))
        assert {*seen} == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
