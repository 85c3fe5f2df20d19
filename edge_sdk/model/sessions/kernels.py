"""The choice of kernels: which graphs of a bundle a machine runs, and with whose products.

Portable graphs on stock onnxruntime are the truth; what is faster is tried before them, and taken if its probe and the
golden vectors pass.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import BLOCKED_SUFFIX, Bundle, BundleError
from edge_sdk.model.forms import has_native_graphs
from edge_sdk.model.sessions.native import (
    check_library,
    describe_library,
    find_library,
    find_measured_library,
    has_fast_products,
)

KINDS = ("auto", "native", "blocked", "portable")
ENOUGH = 2**19
"""Parameters from which on the library's products are taken, with native graphs and without: smaller models are no
faster, and calls of a library's kernels take longer. Native graphs, which have fewer kernels to call, are taken
whatever their size, small ones with onnxruntime's products."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KernelChoice:
    """One way to run a bundle's graphs.

    Attributes:
        library: path of the library of auscult-native; "": none.
        blocked: the blocked graphs are run where the bundle has them.
        native: graphs are run in their native form where the bundle has it; only with a library.
        products: the library's products take the place of onnxruntime's; means nothing without one.
    """

    library: str = ""
    blocked: bool = False
    native: bool = False
    products: bool = True

    @property
    def kind(self) -> str:
        """Its name, one of `KINDS`."""
        return "native" if self.library else "blocked" if self.blocked else "portable"

    def describe(self) -> str:
        """The kernels in words, e.g. "native kernels (auscult-native 0.1.0, avx512) on native blocked graphs"."""
        if not self.library:
            return f"{self.kind} kernels"
        graphs = f"{'native ' if self.native else ''}{'blocked' if self.blocked else 'portable'} graphs"
        products = "" if self.products else ", with onnxruntime's products"
        return f"native kernels ({describe_library()}) on {graphs}{products}"


class Choosing(Protocol):
    """A model, as far as the choice needs it."""

    bundle: Bundle
    choice: KernelChoice
    fallback: str

    @property
    def name(self) -> str: ...
    def use(self, choice: KernelChoice, strict: bool) -> None: ...
    def probe(self) -> None: ...
    def check(self) -> None: ...


def choose(model: Choosing, kind: str, check: bool) -> None:
    """Has a model use the first choice that passes its checks here; `fallback` and the log say why not one before.

    Args:
        kind: one of `KINDS`.
        check: run the golden vectors; without them, only portable kernels are used.

    Raises:
        BundleError: no choice of this kind passes.
    """
    choices, reasons = list_choices(model, kind), list[str]()
    for choice in choices:
        try:
            check_choice(model, choice, check)
        except BundleError as error:
            if choice == choices[-1]:
                raise
            reasons.append(str(error))
        else:
            model.use(choice, strict=kind == "native")
            if choice.library:
                from edge_sdk.model.sessions.native_optimiser import use_native_steps  # where the package is installed

                use_native_steps(choice.library)
            break
    if reasons:
        model.fallback = "; ".join(dict.fromkeys(reasons))
        log.warning("%s: %s are used: %s", model.name, model.choice.describe(), model.fallback)


def check_choice(model: Choosing, choice: KernelChoice, check: bool) -> None:
    model.use(choice, strict=True)
    if choice != KernelChoice() and not check:
        what = "native kernels" if choice.library else "blocked graphs"
        raise BundleError(f"{what} are only used after the golden vectors have passed")
    if choice.library and choice.products:
        check_library(choice.library)
    if choice.native:
        from edge_sdk.model.sessions.operator_probe import check_operators

        check_operators(choice.library, choice.products)
    if choice.blocked:
        model.probe()
    if check:
        model.check()


def takes_products(parameters: int) -> bool:
    """True if a model of this size is to have the library's products here, where it is installed."""
    return parameters >= ENOUGH and has_fast_products()


def list_choices(model: Choosing, kind: str) -> list[KernelChoice]:
    """The choices of a kind, best first.

    Raises:
        UsageError: there is no such kind.
        BundleError: what it insists on is not there.
    """
    if kind not in KINDS:
        raise UsageError(f"kernels = {kind!r}, expected {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    graphs = [True, False] if f"probe{BLOCKED_SUFFIX}" in model.bundle.manifest["graphs"] else [False]
    if kind == "blocked" and not graphs[0]:
        raise BundleError(f"{model.name} has no blocked graphs; compile it with --blocked")
    formed = has_native_graphs(model.bundle.manifest)
    products = kind in ("auto", "native") and takes_products(model.bundle.layout.size)
    wanted = kind == "auto" and (formed or products)
    library = find_library() if kind == "native" else find_measured_library() if wanted else ""
    if kind == "native" and not library:
        raise BundleError("there are no native products here: pip install 'auscult[native]', and not AUSCULT_NATIVE=0")
    ways = ([True] if products else []) + [False] if library and formed else []
    native = [KernelChoice(library, blocked, True, way) for way in ways for blocked in graphs]
    alone = library and (products or kind == "native")
    native += [KernelChoice(library, blocked) for blocked in graphs] if alone else []
    own = [KernelChoice("", blocked) for blocked in graphs]
    return {"auto": native + own, "native": native, "blocked": own[:1], "portable": own[-1:]}[kind]
