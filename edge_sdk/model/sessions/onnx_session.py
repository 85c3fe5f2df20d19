"""Graphs on stock onnxruntime: the version, the options, one arena for the process. The only file that imports it."""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from edge_sdk.model.bundle import Bundle, BundleError
from edge_sdk.model.inputs import Array

NEED_OWN_PRODUCTS = ["GemmTransposeFusion"]
"""Optimisations that ask for an attribute's default, which only onnxruntime's own description of an operator has."""
NAMES_TWICE = ("GatherSliceToSplitFusion",)
"""Optimisations with which versions before 1.22 refuse a graph that takes several slices of one value."""
OWN_PRODUCTS = "auscult.own_products"
"""Entry of a session's settings with which the library leaves products to onnxruntime, see its library.cc."""

log = logging.getLogger(__name__)


class OnnxSession:
    """One graph on onnxruntime.

    Options, as measured on small devices: extended optimisation (needed by convolutions; "all" adds nothing), arena on
    (35 % slower without) and one for all sessions of the process (each would keep what it once needed), memory pattern
    off (a third of the memory), no spinning (a device has other things to do).

    Args:
        planned: memory pattern on: what a run needs is taken at once, as an earlier run with inputs of these shapes has
            shown. A twelfth faster, where a workstation has the memory.
        library: path of the library of auscult-native, for operators of its own; "": none.
        products: with the library, its products take the place of onnxruntime's own.
    """

    def __init__(
        self, graph: str, data: bytes, threads: int, planned: bool = False, library: str = "", products: bool = True
    ) -> None:
        import onnxruntime as ort  # after check_version: the import itself crashes on some versions and boards

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.enable_cpu_mem_arena, options.enable_mem_pattern = True, planned
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.use_env_allocators", "1")
        share_arena()
        self.graph = graph
        try:
            left_out = optimisations_left_out(options, library, products)
            providers = ["CPUExecutionProvider"]
            self._session = ort.InferenceSession(data, options, providers, disabled_optimizers=left_out)
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise BundleError(f"onnxruntime {ort.__version__} refuses graph {graph!r}: {first_line(error)}") from error
        self.inputs: list[str] = [i.name for i in self._session.get_inputs()]
        self.outputs: list[str] = [o.name for o in self._session.get_outputs()]
        self._inner: Any = getattr(self._session, "_sess", self._session)

    def run(self, feeds: dict[str, Array]) -> list[Any]:
        """All outputs. It calls what onnxruntime wraps in checks of names, which take as long as a small graph's nodes;
        what is wrong with the names is said there as well."""
        try:
            found: list[Any] = self._inner.run(self.outputs, feeds, None)
            return found
        except Exception as error:  # likewise
            raise BundleError(f"onnxruntime failed in graph {self.graph!r}: {first_line(error)}") from error


def optimisations_left_out(options: Any, library: str, products: bool) -> list[str]:
    """The optimisations that a session must leave out; its options get the operators of auscult-native, if wanted.

    Args:
        library: path of it; "": none.
        products: its products take the place of onnxruntime's own.
    """
    found = list(NAMES_TWICE) if names_nodes_twice() else []
    if not library:
        return found
    if not products:
        options.add_session_config_entry(OWN_PRODUCTS, "1")
    options.register_custom_ops_library(library)
    return [*found, *NEED_OWN_PRODUCTS] if products else found


@cache
def names_nodes_twice() -> bool:
    """True for an onnxruntime that gives one name to all nodes that it makes of nodes without a name."""
    import onnxruntime as ort

    return parse_version(ort.__version__) < (1, 22)


@cache
def share_arena() -> None:
    """One arena for the process, made before the first session; if the application has made one, that is shared."""
    import onnxruntime as ort

    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    try:
        ort.create_and_register_allocator(memory, ort.OrtArenaCfg(0, -1, -1, -1))
    except Exception as error:  # onnxruntime's exceptions have no common base
        log.info("sessions keep to the arena that is there: %s", first_line(error))


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]


def check_version(bundle: Bundle) -> None:
    """The installed onnxruntime, by its metadata: importing a version that crashes would end the process."""
    wanted = bundle.manifest["runtime"]["onnxruntime"]
    try:
        installed = version("onnxruntime")
    except PackageNotFoundError:
        return  # a build under another name: the golden vectors decide
    if installed in wanted["blocked"]:
        raise BundleError(
            f"onnxruntime {installed} is known to fail; install another version, at least {wanted['minimum']}"
        )
    if parse_version(installed) < parse_version(wanted["minimum"]):
        raise BundleError(f"onnxruntime {installed} is too old for this bundle; install {wanted['minimum']} or newer")


def parse_version(text: str) -> tuple[int, ...]:
    """1.31.1 -> (1, 31, 1); what is not a number counts as 0."""
    return tuple(int(t) if t.isdigit() else 0 for t in text.split("+")[0].split("."))
