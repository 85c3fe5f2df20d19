"""What `help()` says of all that `import edge_sdk` offers: an example that is right, each parameter, each method."""

from __future__ import annotations

import doctest
import inspect
import os
import sys
from functools import cached_property
from pathlib import Path
from types import FunctionType

import pytest

import edge_sdk

pytest.importorskip("torch", reason="an example compiles a network")


@pytest.mark.usefixtures("warm_runs")
@pytest.mark.parametrize("name", edge_sdk.__all__)
def test_an_example_of_a_public_name(
    name: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "XDG_CACHE_HOME", str(home))
    found = getattr(edge_sdk, name)
    where = type(found) if name == "METHODS" else found
    module = sys.modules[where.__module__]
    tests = doctest.DocTestFinder(recurse=False).find(where, name, module, globs=dict(vars(module)))
    assert sum(len(test.examples) for test in tests) > 0, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test, out=sys.stdout.write)
    assert runner.failures == 0, capsys.readouterr().out


WRITTEN = FunctionType | property | classmethod | staticmethod | cached_property
"""What of a class somebody has written, beside its fields."""


def parameters_of(found: object) -> list[str]:
    """Names of what it is called with, but for those of a class of the library's own or of Python's."""
    named = () if isinstance(found, type) and issubclass(found, BaseException) else inspect.signature(found).parameters  # type: ignore[arg-type]
    return [name for name in named if not name.startswith("_") and name not in ("args", "kwargs")]


@pytest.mark.parametrize("name", edge_sdk.__all__)
def test_help_has_each_parameter_and_each_method(name: str) -> None:
    found = getattr(edge_sdk, name)
    kind = found if callable(found) else type(found)
    told = inspect.getdoc(kind) or ""
    assert not [one for one in parameters_of(found) if one not in told] if callable(found) else told
    if isinstance(kind, type):
        members = {each: inspect.getattr_static(kind, each) for each in dir(kind) if not each.startswith("_")}
        assert not [each for each, value in members.items() if isinstance(value, WRITTEN) and not inspect.getdoc(value)]
