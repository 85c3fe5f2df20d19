"""A session whose graph reads theta where it lies."""

from __future__ import annotations

from typing import Any

from edge_sdk.model.bundle import Bundle, BundleError
from edge_sdk.model.forms import has_native, native_part
from edge_sdk.model.inputs import Array
from edge_sdk.model.sessions.kernels import KernelChoice
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.model.theta_tensors import TENSORS, ThetaTensors, read_tensors, tensor_part


class TensorSession(OnnxSession):
    """A graph that takes the tensors of theta one by one, called as one that takes theta.

    Args:
        graph: its name, in errors. data: the graph. tensors: its inputs that are tensors of theta.
        library, products: as of OnnxSession.

    Raises:
        BundleError: onnxruntime refuses the graph, or it has no such inputs.
    """

    def __init__(
        self, graph: str, data: bytes, threads: int, tensors: ThetaTensors, library: str = "", products: bool = True
    ) -> None:
        super().__init__(graph, data, threads, library=library, products=products)
        self.tensors, names = tensors, {one.name for one in tensors.each}
        if missing := names - {*self.inputs}:
            raise BundleError(f"graph {graph!r} has no input {min(missing)!r}, which the manifest lists")
        self.inputs = ["theta", *(name for name in self.inputs if name not in names)]

    def run(self, feeds: dict[str, Array]) -> list[Any]:
        """All outputs, for feeds with theta (n,) as a whole. Nothing of theta is kept.

        Raises:
            BundleError: theta has another size, or onnxruntime failed.
        """
        theta = feeds["theta"]
        if theta.shape != (self.tensors.size,):
            raise BundleError(f"graph {self.graph!r}: theta {theta.shape}, expected ({self.tensors.size},)")
        return super().run({k: v for k, v in feeds.items() if k != "theta"} | self.tensors.cut(theta))


def choose_form(bundle: Bundle, graph: str, native: bool = False) -> tuple[bytes, ThetaTensors | None]:
    """A graph in its fastest form, and the tensors of theta that this takes; None: theta as a whole.

    Args:
        native: the native form is one of them, where the bundle has it.
    """
    entry = bundle.manifest["graphs"][graph]
    tensors = read_tensors(graph, entry, bundle.layout) if TENSORS in entry else None
    part = f"{graph}.onnx" if tensors is None else tensor_part(graph)
    return bytes(bundle.parts[native_part(graph) if native and has_native(entry) else part]), tensors


def open_session(
    graph: str, data: bytes, threads: int, choice: KernelChoice, tensors: ThetaTensors | None, planned: bool
) -> OnnxSession:
    """A session for a graph in either form, with the kernels of a choice; other arguments as of the two classes."""
    if tensors is not None:
        return TensorSession(graph, data, threads, tensors, choice.library, choice.products)
    return OnnxSession(graph, data, threads, planned, choice.library, choice.products)
