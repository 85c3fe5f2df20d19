"""Skips for machines whose onnxruntime has other blocks of channels than blocked graphs have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from edge_sdk.models.ir.errors import CompileError


@contextmanager
def skip_other_layouts() -> Iterator[None]:
    """Skips the test if the compiler says that blocked graphs cannot be checked on this machine."""
    try:
        yield
    except CompileError as error:
        if "another blocked layout" in str(error):
            pytest.skip(f"this machine has another layout: {error}")
        raise
