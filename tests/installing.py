"""Packages of other people, installed in a folder for one test: what they offer, and their modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge_sdk.plugins import entries_of

Install = Callable[[str, Mapping[str, str], Mapping[str, str]], None]


@contextmanager
def installing(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package in a folder, which is made: name, kind -> lines, file -> text. In the end all
    that was loaded from there is forgotten."""
    site.mkdir()
    before = {*sys.modules}
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", f"{site}:{':'.join(filter(None, sys.path))}")
    entries_of.cache_clear()

    def put(package: str, offered: Mapping[str, str], files: Mapping[str, str]) -> None:
        about = site / f"{package.replace('-', '_')}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("".join(f"[auscult.{k}s]\n{lines}\n" for k, lines in offered.items()))
        for name, text in files.items():
            (site / name).write_text(text)
        entries_of.cache_clear()

    yield put
    entries_of.cache_clear()
    for name in {*sys.modules} - before:
        if getattr(sys.modules[name], "__file__", None) and str(site) in str(sys.modules[name].__file__):
            del sys.modules[name]
