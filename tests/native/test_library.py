"""The library in onnxruntime: its places in the table of entries, whose kernels run, and what these refuse."""

from __future__ import annotations

import ctypes
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from edge_sdk.model.bundle import BundleError
from edge_sdk.model.sessions.native import write_probe
from edge_sdk.model.sessions.onnx_session import OnnxSession
from edge_sdk.model.sessions.operator_probe import check_operators
from tests.native.libraries import find_compiler
from tests.native.products import check_close, make_graph, multiply, run_product

VERSION = 17  # as runtime_api.h asks for
LISTENER = "void* base; void* RegisterCustomOps(void* options, void* given) { base = given; return 0; }"


ENTRIES = {"RegisterCustomOps", "auscult_native_set", "auscult_native_read", "auscult_native_apply"}


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The entries of the installed onnxruntime, as a library is handed them."""
    folder = tmp_path_factory.mktemp("listener")
    (folder / "listener.cc").write_text('extern "C" {' + LISTENER + "}")
    library = folder / "listener.so"
    subprocess.run([find_compiler(), "-shared", "-fPIC", str(folder / "listener.cc"), "-o", str(library)], check=True)
    options = ort.SessionOptions()  # which keeps it loaded
    options.register_custom_ops_library(str(library))
    base = ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "base").value
    get_api, get_version = (ctypes.c_void_p * 2).from_address(base)
    assert ctypes.CFUNCTYPE(ctypes.c_char_p)(get_version)().decode() == ort.__version__
    api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)(VERSION)
    return (ctypes.c_void_p * 275).from_address(api)


def entry(table: Any, place: int, *kinds: Any, returns: Any = ctypes.c_void_p) -> Any:
    return ctypes.CFUNCTYPE(returns, *kinds)(table[place])


def test_a_status_says_what_it_was_made_of(table: Any):
    status = entry(table, 0, ctypes.c_int, ctypes.c_char_p)(1, b"some words")
    assert entry(table, 1, ctypes.c_void_p, returns=ctypes.c_int)(status) == 1
    assert entry(table, 2, ctypes.c_void_p, returns=ctypes.c_char_p)(status) == b"some words"
    entry(table, 93, ctypes.c_void_p, returns=None)(status)


def test_a_shape_has_the_rank_and_the_sizes_that_were_set(table: Any):
    made = ctypes.c_void_p()
    assert not entry(table, 57, ctypes.POINTER(ctypes.c_void_p))(made)
    sizes, rank, found = (ctypes.c_int64 * 3)(2, 0, 2**40), ctypes.c_size_t(), (ctypes.c_int64 * 3)()
    assert not entry(table, 59, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t)(made, sizes, 3)
    assert not entry(table, 61, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t))(made, rank)
    assert not entry(table, 62, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t)(made, found, 3)
    assert rank.value == 3 and list(found) == [2, 0, 2**40]
    entry(table, 99, ctypes.c_void_p, returns=None)(made)


def test_a_domain_is_made_and_given_back(table: Any):
    made = ctypes.c_void_p()
    assert not entry(table, 26, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p))(b"some.domain", made)
    entry(table, 101, ctypes.c_void_p, returns=None)(made)


def test_an_older_onnxruntime_is_refused_in_words(table: Any, best: str):
    """A runtime that does not know the version gives no table for it, and the first version's to say so with."""
    first = ctypes.addressof(table)
    get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda version: first if version == 1 else None)
    base = (ctypes.c_void_p * 2)(ctypes.cast(get, ctypes.c_void_p), None)
    register = ctypes.CDLL(best).RegisterCustomOps
    register.restype, register.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)
    status = register(ctypes.addressof(base), ctypes.addressof(base))
    said = entry(table, 2, ctypes.c_void_p, returns=ctypes.c_char_p)(status)
    assert said == b"auscult-native needs onnxruntime 1.17 or newer"
    entry(table, 93, ctypes.c_void_p, returns=None)(status)
    assert register(None, None) is None


def test_nothing_but_the_entries_is_exported(best: str):
    done = subprocess.run(["nm", "-D", "--defined-only", best], capture_output=True, text=True, check=True)
    assert {line.split()[-1] for line in done.stdout.splitlines()} == ENTRIES


# -- whose kernels run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
def test_the_kernels_are_those_of_the_library(best: str, operator: str):
    """They refuse in words of their own."""
    words = "the inner sizes of A and B differ"
    with pytest.raises(BundleError, match=words):
        run_product(best, operator, zeros(2, 3), zeros(4, 5))
    with pytest.raises(BundleError) as own:
        run_product("", operator, zeros(2, 3), zeros(4, 5))
    assert words not in str(own.value)


def test_what_onnxruntime_fuses_stays_its_own(best: str):
    """A transpose in front of a product goes into FusedMatMul, which is onnxruntime's; so do other fused operators."""
    nodes = [
        helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "b"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Conv", ["x", "w"], ["v"]),
        helper.make_node("Relu", ["v"], ["y"]),
        helper.make_node("Gemm", ["g", "h"], ["k"]),
        helper.make_node("Relu", ["k"], ["z"]),
    ]
    shapes = {"a": ("n", 3, 4), "b": ("n", "k", 5), "x": ("n", 2, 6), "w": (3, 2, 3), "g": ("m", 4), "h": (4, 2)}
    ins = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("r", "y", "z")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ins, outs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    session = OnnxSession("fused", model.SerializeToString(), 1, library=best)
    rng = np.random.default_rng(0)
    sizes = {"n": 2, "k": 3, "m": 3}
    feeds = {
        name: rng.standard_normal([sizes.get(d, d) for d in shape]).astype(np.float32)  # type: ignore[call-overload]
        for name, shape in shapes.items()
    }
    r, y, z = session.run(feeds)
    np.testing.assert_allclose(r, np.maximum(feeds["a"].swapaxes(1, 2) @ feeds["b"], 0), atol=1e-5)
    np.testing.assert_allclose(z, np.maximum(feeds["g"] @ feeds["h"], 0), atol=1e-5)
    assert y.shape == (2, 3, 4)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "arrays", "words"),
    [
        ("MatMul", [zeros(2, 3), zeros(2, 3)], "the inner sizes of A and B differ"),
        ("MatMul", [zeros(3), zeros(4)], "the inner sizes of A and B differ"),
        ("MatMul", [zeros(2, 3), zeros()], "A and B have one axis at least"),
        ("MatMul", [zeros(), zeros(3)], "A and B have one axis at least"),
        ("MatMul", [zeros(2, 1, 3), zeros(3, 3, 1)], "the outer sizes of A and B differ"),
        ("MatMul", [zeros(0, 1, 3), zeros(2, 3, 1)], "the outer sizes of A and B differ"),
        ("MatMul", [zeros(*[1] * 17), zeros(1)], "more than 16 axes"),
        ("MatMul", [zeros(2**40, 0), zeros(0, 2**40)], "more numbers than can be counted"),
        ("MatMul", [zeros(2**31, 1, 1, 0), zeros(1, 2**31, 0, 1)], "more numbers than can be counted"),
        ("Gemm", [zeros(2**40, 0), zeros(0, 2**40)], "more numbers than can be counted"),
        ("Gemm", [zeros(3), zeros(3, 2)], "A and B have two axes"),
        ("Gemm", [zeros(1, 2, 3), zeros(3, 2)], "A and B have two axes"),
        ("Gemm", [zeros(2, 3), zeros(3, 4), zeros(3)], "C does not fit A and B"),
        ("Gemm", [zeros(2, 3), zeros(3, 4), zeros(3, 4)], "C does not fit A and B"),
        ("Gemm", [zeros(2, 3), zeros(3, 4), zeros(1, 2, 4)], "C does not fit A and B"),
        ("Gemm", [zeros(2, 3), zeros(3, 4), zeros(0)], "C does not fit A and B"),
    ],
)
def test_shapes_that_do_not_go_together(best: str, operator: str, arrays: list[Any], words: str):
    with pytest.raises(BundleError, match=words):
        run_product(best, operator, *arrays)


def test_a_result_that_no_memory_holds(best: str):
    with pytest.raises(BundleError, match=r"onnxruntime failed in graph"):
        run_product(best, "MatMul", zeros(2**30, 0), zeros(0, 2**30))


def test_an_input_that_is_left_out(best: str):
    node = helper.make_node("Gemm", ["a", "b", ""], ["y"])
    ins = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ab"]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = helper.make_model(helper.make_graph([node], "g", ins, outs), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    session = OnnxSession("g", model.SerializeToString(), 1, library=best)
    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    assert np.array_equal(session.run({"a": a, "b": b})[0], a @ b)


def test_beta_0_leaves_c_alone(best: str):
    c = np.full((2, 4), np.nan, np.float32)
    assert not run_product(best, "Gemm", zeros(2, 3), zeros(3, 4), c, beta=0.0).any()


@pytest.mark.parametrize("attribute", [{"alpha": 2}, {"beta": 3}, {"transA": 1.0}, {"alpha": "2"}, {"transB": "1"}])
def test_an_attribute_of_another_type(best: str, attribute: dict[str, Any]):
    with pytest.raises(BundleError, match="an attribute is not of its type"):
        OnnxSession("g", make_graph("Gemm", 3, **attribute), 1, library=best)


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.DOUBLE])
def test_products_of_another_type_are_refused_when_a_session_is_made(best: str, kind: int):
    with pytest.raises(BundleError, match="refuses graph"):
        OnnxSession("g", make_graph("MatMul", 2, kind), 1, library=best)


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.FLOAT])
def test_a_session_may_keep_onnxruntimes_products(library: str, kind: int):
    """Of any type, in its bits; operators of the domain are there as before."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, shape).astype(helper.tensor_dtype_to_np_dtype(kind)) for shape in ((7, 300), (300, 5)))
    given, graph = {"a": a / 7 if kind == TensorProto.FLOAT else a, "b": b}, make_graph("MatMul", 2, kind)
    mixed, plain = OnnxSession("g", graph, 1, library=library, products=False), OnnxSession("g", graph, 1)
    np.testing.assert_array_equal(mixed.run(given)[0], plain.run(given)[0])
    check_operators(library, products=False)


def test_a_graph_that_no_model_checked(best: str):
    """Bytes that are no graph are refused as without the library."""
    with pytest.raises(BundleError, match="refuses graph"):
        OnnxSession("g", b"no graph at all", 1, library=best)


# -- many at once ------------------------------------------------------------------------------------------------------


def test_sessions_are_made_and_run_by_many_threads(best: str):
    graph, rng = make_graph("MatMul", 2), np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((130, 300), (300, 120)))

    def one(_: int) -> Any:
        return OnnxSession("g", graph, 2, library=best).run({"a": a, "b": b})[0]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(32)))
    assert len({each.tobytes() for each in found}) == 1
    check_close(found[0], *multiply(a, b))


def test_the_probes_graph_is_onnx() -> None:
    model = onnx.load_from_string(write_probe())
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Gemm"]
    assert model.opset_import[0].version == 17
