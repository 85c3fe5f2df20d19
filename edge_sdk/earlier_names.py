"""Names that pages of an earlier release import from a package which has them no longer: they work, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def find_earlier(package: str, name: str, homes: Mapping[str, str]) -> Any:
    """What a package once had under a name, for its `__getattr__`; warns of where it is (DeprecationWarning).

    Args:
        homes: name -> module in which it is.

    Raises:
        AttributeError: the package has never had it.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    warnings.warn(f"{name} is in {homes[name]}; {package} has it until 0.5", DeprecationWarning, stacklevel=3)
    return getattr(import_module(homes[name]), name)
