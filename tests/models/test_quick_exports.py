"""What tests/exports.py keeps of torch: graphs are those of torch as it is, and its tables are left as they were."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import exported_program

from edge_sdk.models.frontend.tracing.export import export_forward
from edge_sdk.models.ir.specification.layout import lay_out_parameters
from tests.exports import REPLACED

NETS = {
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    "recurrent": lambda: nn.GRU(8, 6, batch_first=True),
    "convolutions": lambda: nn.Sequential(nn.Conv1d(5, 6, 3, padding="same"), nn.GroupNorm(2, 6), nn.GELU()),
}


class Pooled(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        return (h[0] if isinstance(h, tuple) else h).mean(1)


def written(name: str) -> bytes:
    torch.manual_seed(0)
    net = Pooled(NETS[name]()).eval()
    forward = export_forward(net, lay_out_parameters(net), ["x"], [torch.randn(37, 5, 8)])
    return forward.model.graph.SerializeToString()


def tables() -> dict[object, dict[object, object]]:
    """The table of each operator that torch decomposes."""
    found = exported_program._collect_all_valid_cia_ops()
    return {op: dict(op.py_kernels) for op in found}


@pytest.mark.parametrize("name", NETS)
def test_graphs_are_those_of_torch_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name for _, name, _ in REPLACED}
    if not {"_override_composite_implicit_decomp", "decompose_with_registry", "try_rewrite"} <= names:
        pytest.skip("this version of torch is used as it is")
    for where, what, before in REPLACED:
        monkeypatch.setattr(where, what, before)
    as_it_is = written(name)
    monkeypatch.undo()
    assert [written(name), written(name)] == [as_it_is, as_it_is]  # the first may make tables, the second has them


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
