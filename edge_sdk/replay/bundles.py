"""A bundle for a replay: the one that is named, the one that ships, or one that is compiled now and kept for later."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.kernels.split import input_shapes
from edge_sdk.replay.cohort import Cohort, Shapes, fits

NETWORKS = {"mnist": "lenet", "cifar10": "lenet", "esr": "signal"}
"""Of the zoo, for data sets; tables get an MLP."""

SPLIT_NETWORKS = {"mnist": "split-images"}
"""Of those that do not ship."""

INPUTS = {"mnist": (1, 28, 28), "esr": (1, 178)}
"""Of these networks, where it is not the shape of a sample."""


def bundle_for(data: str, bundle: Path | None, cohort: Cohort, seed: int, say: Callable[[str], None]) -> Path:
    """The bundle that was named, or the default for these data.

    Raises:
        UsageError: it does not fit the data, or none can be compiled here.
    """
    if bundle is not None:
        path = named_bundle(data, bundle, cohort, seed, say)
        check_fit(path, cohort)
        return path
    name = data.partition(":")[0]
    if not cohort.reshape:
        return for_traces(cohort, seed, say)
    if "x" not in cohort.shapes:
        return shipped_bundle(f"split-{name}.bundle") or compiled(SPLIT_NETWORKS[name], [], seed, say)
    return compiled(NETWORKS.get(name, "mlp"), sized(input_of(data, cohort), cohort), seed, say)


def input_of(data: str, cohort: Cohort) -> Sequence[int]:
    return INPUTS.get(data.partition(":")[0], cohort.shapes["x"])


def named_bundle(data: str, named: Path, cohort: Cohort, seed: int, say: Callable[[str], None]) -> Path:
    """A file or, where there is none and a plain word was said, a network of the zoo, compiled for these data."""
    if named.exists() or named.suffix or len(named.parts) > 1:
        return named.resolve()
    if "x" not in cohort.shapes:
        raise UsageError(f"--bundle {named}: there is no such file; these data are divided, which needs a split model")
    return compiled(str(named), sized(input_of(data, cohort), cohort), seed, say)


def for_traces(cohort: Cohort, seed: int, say: Callable[[str], None]) -> Path:
    shipped = shipped_bundle("wrist.bundle")
    if shipped is not None:
        with contextlib.suppress(UsageError):
            check_fit(shipped, cohort)
            return shipped
    return compiled("wrist", sized(cohort.shapes["x"], cohort), seed, say)


def sized(shape: Sequence[int], cohort: Cohort) -> list[str]:
    """Options of the compiler."""
    return ["--input", ",".join(map(str, shape)), "--classes", str(len(cohort.classes))]


def bundles_for(
    data: str, named: Sequence[Path], cohort: Cohort, seed: int, say: Callable[[str], None], several: bool
) -> tuple[Path, ...]:
    """One bundle for all devices or, where models may differ, those among which they are dealt out.

    Raises:
        UsageError: one does not fit, or there are several for a method that trains one model.
    """
    if not several:
        if len(named) > 1:
            raise UsageError(f"--bundle is named {len(named)} times: this method trains one model on all devices")
        return (bundle_for(data, named[0] if named else None, cohort, seed, say),)
    found = tuple(named_bundle(data, path, cohort, seed, say) for path in named) or (
        bundle_for(data, None, cohort, seed, say),
    )
    for path in found:
        check_fit(path, cohort, exactly=True)
    return found


def check_fit(path: Path, cohort: Cohort, exactly: bool = False) -> None:
    """Raises UsageError if these samples cannot be given to this model, or it knows fewer classes.

    Args:
        exactly: it may not know more classes either.
    """
    bundle = read_bundle(path)
    found, known = input_shapes(bundle), int(bundle.manifest["classes"])
    enough = known == len(cohort.classes) if exactly else known >= len(cohort.classes)
    if not fits(cohort.shapes, found, cohort.reshape) or not enough:
        wanted = f"{spoken(cohort.shapes)} and {len(cohort.classes)}"
        raise UsageError(f"{path}: input {spoken(found)} and classes {known}; these data need {wanted}")


def spoken(shapes: Shapes) -> str:
    return ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in shapes.items())


def shipped_bundle(name: str) -> Path | None:
    """A bundle that comes with the `models` package, if that is installed."""
    package = compiler()
    path = package / "shipped" / name if package is not None else None
    return path if path is not None and path.is_file() else None


def compiler() -> Path | None:
    """Where the `models` package is. Found by its path: nothing is imported."""
    spec = importlib.util.find_spec("models")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


# Compiling ------------------------------------------------------------------------------------------------------
def compiled(network: str, sizes: Sequence[str], seed: int, say: Callable[[str], None]) -> Path:
    """A network of the zoo, from the cache if it has been compiled by the same compiler before."""
    package = compiler()
    if package is None:
        raise UsageError("no model can be compiled here: pip install 'auscult[aggregator]', or name one with --bundle")
    options = [network, "--seed", str(seed), *sizes]
    path = cache() / f"{network}-{digest(package, options)}.bundle"
    if path.is_file():
        return path
    say(f"compiling {' '.join(options)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    command = [sys.executable, "-m", "models", "compile", *options, "-o", str(part)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"no model could be compiled for these data:\n{done.stderr.strip() or done.stdout.strip()}")
    os.replace(part, path)
    return path


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "auscult" / "bundles"


def digest(package: Path, options: Sequence[str]) -> str:
    """Of everything that the file depends on: what is asked for, the compiler, and the torch that draws theta0."""
    found = hashlib.sha256("\0".join(options).encode())
    for library in ("torch", "onnx", "onnxscript", "onnxruntime"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.update(f"{library} {importlib.metadata.version(library)}".encode())
    for source in sorted(package.rglob("*.py")):
        found.update(source.read_bytes())
    return found.hexdigest()[:20]
