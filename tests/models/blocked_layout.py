"""Skips for machines whose onnxruntime has no blocked layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from edge_sdk.models.ir.errors import CompileError


@contextmanager
def skip_without_blocks() -> Iterator[None]:
    """Skips the test if the compiler says that there is no blocked layout on this machine."""
    try:
        yield
    except CompileError as error:
        if "no blocked layout" in str(error):
            pytest.skip(str(error))
        raise
