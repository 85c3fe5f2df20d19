"""The version of this package."""

from __future__ import annotations

DISTRIBUTIONS = ("auscult", "auscult-edge")
"""The whole, and what devices and hospitals need of it (hardware/provision/edge). A machine has one of them."""


def find_version() -> str:
    """Version of the installed package, or that it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow to load, and most commands do not ask

    for name in DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "(not installed: run from its sources)"
