"""The choice of kernels: native products where they are installed, right, and not turned off; else what is said."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import BundleError
from edge_sdk.model.model import Model
from edge_sdk.model.sessions import native
from edge_sdk.model.sessions.kernels import KernelChoice, choose, list_choices
from tests.native.libraries import compile_library
from tests.native.products import make_graph

SHIPPED = sorted((Path(__file__).parents[2] / "models" / "shipped").glob("*.bundle"))
WRIST = next(path for path in SHIPPED if path.stem == "wrist")
PRODUCT = """
  const char* how = std::getenv("WRONG_PRODUCTS");
  double sign = !how || (*how == 'w' && p.columns == 70) ? 1 : *how == 'n' ? 0.0 / 0.0 : -1;
  for (long i = 0; i < p.rows; i++)
    for (long j = first; j < last; j++) {
      double sum = 0;
      for (long k = 0; k < p.depth; k++)
        sum += (double)p.a[i * p.a_row + k * p.a_column] * p.b[k * p.b_row + j * p.b_column];
      p.c[i * p.columns + j] = sign * p.alpha * sum + (p.bias ? p.bias[j] : 0);
    }
"""


def use(library: object, patch: pytest.MonkeyPatch) -> None:
    """Lets a file be found in place of the installed library."""
    for name in ("find_library", "find_measured_library"):
        patch.setattr(f"edge_sdk.model.sessions.kernels.{name}", lambda: str(library))
    patch.setattr("edge_sdk.model.sessions.kernels.has_fast_products", lambda: True)


# -- where it is right -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_golden_vectors_of_shipped_bundles_pass(library: str, path: Path, monkeypatch: pytest.MonkeyPatch):
    use(library, monkeypatch)
    model = Model(path, kernels="native")
    assert (model.kernels, model.fallback) == ("native", "")
    assert model.choice.library == library


def test_auto_takes_it(best: str):
    model = Model(WRIST)
    assert (model.kernels, model.fallback, model.choice) == ("native", "", KernelChoice(best))
    assert native.describe_library().startswith("auscult-native ")


def test_auto_leaves_out_what_was_not_measured(best: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "MEASURED", frozenset({"another"}))
    model = Model(WRIST)
    assert (model.kernels, model.fallback) == ("portable", "")
    assert Model(WRIST, kernels="native").choice == KernelChoice(best)


def test_products_that_were_slower_are_taken_only_by_name(best: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "FAST_PRODUCTS", frozenset({"another"}))
    assert Model(WRIST).choice == KernelChoice()
    assert Model(WRIST, kernels="native").choice == KernelChoice(best)
    monkeypatch.setattr("edge_sdk.model.sessions.kernels.find_measured_library", lambda: "lib")
    assert list_choices(Named("predict", native=True), "auto")[0] == KernelChoice("lib", native=True, products=False)


@pytest.mark.parametrize("text", ["raise ImportError('broken')", "def find_library(): return 'lib'"])
def test_a_package_that_is_broken_is_told_and_portable_kernels_never_look_at_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.delitem(sys.modules, "auscult_native_of_another_kind", raising=False)
    (tmp_path / "auscult_native_of_another_kind.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(native, "PACKAGE", "auscult_native_of_another_kind")
    assert Model(WRIST, kernels="portable").choice == KernelChoice() and not caplog.text
    assert Model(WRIST).choice == KernelChoice() and "is not used" in caplog.text
    with pytest.raises(BundleError, match="there are no native products here"):
        Model(WRIST, kernels="native")


def test_native_graphs_keep_onnxruntimes_products_where_the_librarys_are_wrong(monkeypatch: pytest.MonkeyPatch):
    def refuse(library: str) -> None:
        raise BundleError("wrong products")

    use("lib", monkeypatch)
    monkeypatch.setattr("edge_sdk.model.sessions.kernels.check_library", refuse)
    monkeypatch.setattr("edge_sdk.model.sessions.operator_probe.check_operators", lambda library, products: None)
    monkeypatch.setattr("edge_sdk.model.sessions.native_optimiser.use_native_steps", lambda library: None)
    model: Any = Named("predict", native=True)
    choose(model, "auto", check=True)
    assert model.choice == KernelChoice("lib", native=True, products=False) and model.fallback == "wrong products"


def test_auto_leaves_out_small_models(best: str, monkeypatch: pytest.MonkeyPatch):
    count = Model(WRIST).theta0.size
    for enough, kind in ((count, "native"), (count + 1, "portable")):
        monkeypatch.setattr("edge_sdk.model.sessions.kernels.ENOUGH", enough)
        assert Model(WRIST).kernels == kind
    assert Model(WRIST, kernels="native").choice == KernelChoice(best)


def test_gradients_are_those_of_the_portable_kernels(library: str, monkeypatch: pytest.MonkeyPatch):
    use(library, monkeypatch)
    fast, plain = Model(WRIST, kernels="native"), Model(WRIST, kernels="portable")
    rng = np.random.default_rng(0)
    for count in (1, 3, 8, 17, 32):
        x = rng.standard_normal((count, *fast.input_shape)).astype(np.float32)
        y = rng.integers(0, fast.classes, count)
        (loss, grad), (want, slope) = fast.loss_grad(fast.theta0, x, y), plain.loss_grad(plain.theta0, x, y)
        assert loss == pytest.approx(want, rel=1e-5)
        assert np.linalg.norm(grad - slope) <= 1e-5 * np.linalg.norm(slope)


# -- where it is not ---------------------------------------------------------------------------------------------------


def test_nothing_is_said_of_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(native, "PACKAGE", "auscult_native_that_nobody_has")
    with caplog.at_level(logging.WARNING):
        model = Model(WRIST)
    assert (model.kernels, model.fallback, caplog.text, native.describe_library()) == ("portable", "", "", "")
    with pytest.raises(BundleError, match="there are no native products here: pip install"):
        Model(WRIST, kernels="native")


def test_a_variable_turns_it_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AUSCULT_NATIVE", "0")
    assert (Model(WRIST).kernels, Model(WRIST).fallback) == ("portable", "")
    with pytest.raises(BundleError, match="AUSCULT_NATIVE=0"):
        Model(WRIST, kernels="native")


def test_portable_and_blocked_never_use_it(best: str):
    assert Model(WRIST, kernels="portable").choice == KernelChoice()
    with pytest.raises(BundleError, match="has no blocked graphs"):
        Model(WRIST, kernels="blocked")
    with pytest.raises(UsageError, match="kernels = 'fast', expected auto, native, blocked or portable"):
        Model(WRIST, kernels="fast")


def expect_fallback(words: str, caplog: pytest.LogCaptureFixture) -> None:
    """Checks that `auto` falls back and says why, and that `native` fails."""
    with caplog.at_level(logging.WARNING):
        model = Model(WRIST)
    assert model.kernels == "portable"
    assert words in model.fallback and "wrist: portable kernels are used" in caplog.text.lower()
    model.predict(model.theta0, np.zeros((1, *model.input_shape), np.float32))
    with pytest.raises(BundleError, match=words):
        Model(WRIST, kernels="native")


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF", b"no library"])
def test_a_file_that_is_no_library(content: bytes | None, tmp_path: Path, monkeypatch, caplog):
    path = tmp_path / "broken.so"
    if content is not None:
        path.write_bytes(content)
    use(path, monkeypatch)
    expect_fallback("refuses graph 'probe of products'", caplog)


def test_a_library_of_another_processor(best: str, tmp_path: Path, monkeypatch, caplog):
    path = Path(shutil.copy(best, tmp_path / "other.so"))
    data = bytearray(path.read_bytes())
    data[18:20] = b"\xf3\x00"  # e_machine of the ELF header: RISC-V
    path.write_bytes(data)
    use(path, monkeypatch)
    expect_fallback("refuses graph 'probe of products'", caplog)


def test_an_instruction_set_that_is_not_there(best: str, tmp_path: Path, monkeypatch, caplog):
    monkeypatch.setenv("AUSCULT_NATIVE_SET", "avx1024")
    use(shutil.copy(best, tmp_path / "copy.so"), monkeypatch)
    expect_fallback("AUSCULT_NATIVE_SET names an instruction set that is not there", caplog)


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose products are right, or as wrong as WRONG_PRODUCTS says; compiled once, as that takes seconds."""
    return compile_library(tmp_path_factory.mktemp("products"), PRODUCT)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("sign", "the products of auscult-native are wrong on this machine"),
        ("no number", "the products of auscult-native are wrong on this machine"),
        ("where the probe does not look", "the golden vectors fail"),
    ],
)
def test_an_error_is_found_by_the_probe_or_by_the_golden_vectors(
    how: str, words: str, products: Path, tmp_path: Path, monkeypatch, caplog
):
    monkeypatch.setenv("WRONG_PRODUCTS", how)
    use(shutil.copy(products, tmp_path), monkeypatch)
    expect_fallback(words, caplog)


def test_a_library_that_is_right_but_not_ours(products: Path, tmp_path: Path, monkeypatch):
    use(shutil.copy(products, tmp_path), monkeypatch)
    assert Model(WRIST).kernels == "native"


def test_without_the_golden_vectors_it_is_not_used(best: str):
    model = Model(WRIST, check=False)
    assert model.kernels == "portable"
    assert model.fallback == "native kernels are only used after the golden vectors have passed"


# -- one graph that cannot have them -----------------------------------------------------------------------------------


def test_a_graph_with_a_product_of_integers(best: str, caplog: pytest.LogCaptureFixture):
    integers, (a, b) = make_graph("MatMul", 2, TensorProto.INT64), (np.full(s, 2, np.int64) for s in ((2, 3), (3, 1)))
    model = Model(WRIST)
    with caplog.at_level(logging.WARNING):
        session = model.open("integers", integers)
    assert session.run({"a": a, "b": b})[0].tolist() == [[12], [12]]
    assert "onnxruntime's own products are used in integers" in caplog.text
    with pytest.raises(BundleError, match="refuses graph 'integers'"):
        Model(WRIST, kernels="native").open("integers", integers)


# -- order -------------------------------------------------------------------------------------------------------------


class Named:
    """A model of ten parameters, as far as the order of choices depends on it."""

    name, fallback, choice = "m", "", KernelChoice()

    def __init__(self, *graphs: str, native: bool = False) -> None:
        layout, entry = type("Layout", (), {"size": 10}), {"native": True} if native else {}
        self.bundle: Any = type("B", (), {"manifest": {"graphs": dict.fromkeys(graphs, entry)}, "layout": layout})()

    def use(self, choice: KernelChoice, strict: bool) -> None:
        self.choice = choice

    def probe(self) -> None: ...
    def check(self) -> None: ...


@pytest.mark.parametrize(
    ("kind", "blocked", "wanted"),
    [
        ("auto", True, [("lib", True), ("lib", False), ("", True), ("", False)]),
        ("auto", False, [("lib", False), ("", False)]),
        ("native", True, [("lib", True), ("lib", False)]),
        ("native", False, [("lib", False)]),
        ("blocked", True, [("", True)]),
        ("portable", True, [("", False)]),
        ("portable", False, [("", False)]),
    ],
)
def test_the_order_in_which_kernels_are_tried(kind: str, blocked: bool, wanted: list[Any], monkeypatch):
    use("lib", monkeypatch)
    model: Any = Named("predict", *["probe+blocked"] * blocked)
    assert list_choices(model, kind) == [KernelChoice(*each) for each in wanted]


@pytest.mark.parametrize("enough", [10, 11])
@pytest.mark.parametrize("kind", ["auto", "native"])
@pytest.mark.parametrize("blocked", [False, True])
def test_native_graphs_come_first_whatever_the_size(kind: str, blocked: bool, enough: int, monkeypatch):
    """And products alone after them, of themselves only for large models."""
    use("lib", monkeypatch)
    monkeypatch.setattr("edge_sdk.model.sessions.kernels.ENOUGH", enough)
    model: Any = Named("predict", *["probe+blocked"] * blocked, native=True)
    graphs = [True, False] if blocked else [False]
    ways = [True, False] if enough == 10 else [False]
    wanted = [KernelChoice("lib", each, native=True, products=way) for way in ways for each in graphs]
    wanted += [KernelChoice("lib", each) for each in graphs] if kind == "native" or enough == 10 else []
    wanted += [KernelChoice("", each) for each in graphs] if kind == "auto" else []
    assert list_choices(model, kind) == wanted


@pytest.mark.parametrize("kind", ["blocked", "portable"])
def test_others_never_run_native_graphs(kind: str, monkeypatch):
    use("lib", monkeypatch)
    model: Any = Named("predict", "probe+blocked", native=True)
    assert not [choice for choice in list_choices(model, kind) if choice.library or choice.native]


def test_without_a_library_nothing_of_it_is_tried(monkeypatch):
    use("", monkeypatch)
    model: Any = Named("predict", native=True)
    assert list_choices(model, "auto") == [KernelChoice()]
