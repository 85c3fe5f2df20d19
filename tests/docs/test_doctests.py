"""The examples in the docstrings of all that `import edge_sdk` offers: there is one each, and it is right."""

from __future__ import annotations

import doctest
import os
import sys
from pathlib import Path

import pytest

import edge_sdk
from tests.warm import begin_warm

pytest.importorskip("torch", reason="an example compiles a network")


@pytest.mark.parametrize("name", edge_sdk.__all__)
def test_an_example_of_a_public_name(
    name: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edge_sdk.research.runs.processes.begin", begin_warm)
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
