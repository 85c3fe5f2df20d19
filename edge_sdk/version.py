"""The version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def find_version() -> str:
    """Version of the installed package, or that it is not installed."""
    try:
        return version("auscult")
    except PackageNotFoundError:
        return "(not installed: run from its sources)"
