"""What an aggregator is made with: the examples in the docstrings."""

from __future__ import annotations

import doctest

from aggregator import options


def test_the_examples_are_right() -> None:
    assert doctest.testmod(options) == doctest.TestResults(failed=0, attempted=3)
