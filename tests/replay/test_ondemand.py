"""Bundles that are compiled for a replay: kept for later, and only as long as the compiler is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.replay.planning import bundles as ondemand
from edge_sdk.replay.tuning.worker import find_kernels

WRIST = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
APART = [sys.executable, "-m", "edge_sdk.models", "compile"]
SIZES = ["--input", "30", "--classes", "2"]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled_apart: None) -> list[list[str]]:
    """Commands that were run; each writes a file. The compiler's source is tmp_path/models."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        commands.append(command)
        Path(command[-1]).write_bytes(b"bundle")
        return SimpleNamespace(returncode=0)

    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "rules.py").write_text("a = 1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(ondemand, "find_compiler", lambda: tmp_path / "models")
    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_it_is_compiled_once(compiler: list[list[str]]) -> None:
    said: list[str] = []
    first = ondemand.compile_network("mlp", SIZES, 0, said.append)
    assert first.read_bytes() == b"bundle" and ondemand.compile_network("mlp", SIZES, 0, said.append) == first
    assert len(compiler) == len(said) == 1 and compiler[0][:-2] == [*APART, "mlp", "--seed", "0", *SIZES]
    assert list(first.parent.iterdir()) == [first]


def test_anew_for_another_seed_size_or_compiler(compiler: list[list[str]], tmp_path: Path) -> None:
    paths = {ondemand.compile_network("mlp", SIZES, seed, print) for seed in (0, 1)}
    paths.add(ondemand.compile_network("mlp", [*SIZES[:-1], "3"], 0, print))
    (tmp_path / "models" / "rules.py").write_text("a = 2")
    paths.add(ondemand.compile_network("mlp", SIZES, 0, print))
    assert len(paths) == len(compiler) == 4


def test_a_compiler_that_fails_or_is_missing(compiler: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(returncode=2, stderr="UnsupportedOperator: what", stdout="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UsageError, match="UnsupportedOperator: what"):
        ondemand.compile_network("mlp", SIZES, 0, print)
    monkeypatch.setattr(ondemand, "find_compiler", lambda: None)
    with pytest.raises(UsageError, match=r"without torch: pip install 'auscult\[replay\]'"):
        ondemand.compile_network("mlp", SIZES, 0, print)


def test_where_there_is_no_torch_the_least_that_is_enough_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert ondemand.find_compiler() is None
    with pytest.raises(UsageError, match=r"^torch is missing here: pip install 'auscult\[replay\]'$"):
        find_kernels()


def test_a_network_of_the_zoo_can_be_named(compiler: list[list[str]], tmp_path: Path) -> None:
    cohort = SimpleNamespace(shapes={"x": (784,)}, classes=("a", "b"), task=None, unit="")
    ondemand.find_named_bundle("mnist:x.npz", Path("lenet"), cohort, 7, print)  # type: ignore[arg-type]
    assert compiler[0][3:-2] == ["compile", "lenet", "--seed", "7", "--input", "1,28,28", "--classes", "2"]
    mine = tmp_path / "lenet"
    mine.write_bytes(b"mine")
    for named in (mine, Path("missing.bundle"), Path("somewhere/lenet")):
        assert ondemand.find_named_bundle("mnist:x.npz", named, cohort, 7, print) == named.resolve()  # type: ignore[arg-type]
    cohort.shapes = {"x.device": (392,), "x.hospital": (392,)}
    with pytest.raises(UsageError, match="split model"):
        ondemand.find_named_bundle("mnist:x.npz", Path("lenet"), cohort, 7, print)  # type: ignore[arg-type]


def test_the_shipped_network_where_more_classes_do_no_harm(compiler: list[list[str]], tmp_path: Path) -> None:
    """It knows 14 classes, and the data have 12: enough for a shared model, not for devices that compare outputs."""
    shipped = tmp_path / "models" / "shipped"
    shipped.mkdir()
    (shipped / "wrist.bundle").write_bytes(WRIST.read_bytes())
    cohort: Any = SimpleNamespace(
        shapes={"x": (3, 64)},
        classes=tuple("abcdefghijkl"),
        reshape=False,
        task=None,
        unit="",
        channels=(),
        units=(),
        rate_hz=0.0,
    )  # fmt: skip
    found = ondemand.choose_bundles("traces", [], cohort, 0, print, several=False)
    assert found == (shipped / "wrist.bundle",) and compiler == []
    with pytest.raises(UsageError):  # what the stand-in for the compiler has written is no bundle
        ondemand.choose_bundles("traces", [], cohort, 0, print, several=True)
    assert compiler[0][3:-2] == ["compile", "wrist", "--seed", "0", "--input", "3,64", "--classes", "12"]
