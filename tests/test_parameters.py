"""Constructors and functions fit a hand: eight parameters at most. What belongs together is one object."""

from __future__ import annotations

import ast

from tests.health import MOST_PARAMETERS, PRODUCT, calls_by_position, constructors_of, count_parameters, files_of
from tests.health import functions_of as public_functions_of

LONGER = {
    "edge_sdk/research/runs/simulate.py: simulate": "what a notebook types, with the names of the command's options",
    "models/frontend/decomposition/fourier.py: transform_frames": "stands in for torch.stft and takes its arguments",
}
"""Functions with more, each with its reason."""
FILES = files_of(*PRODUCT)


def test_no_constructor_has_more_than_eight_parameters() -> None:
    assert not {who: count for count, who in constructors_of(FILES) if count > MOST_PARAMETERS}


def test_no_public_function_has_more_than_eight_parameters_without_a_reason() -> None:
    assert {who for count, who in public_functions_of(FILES) if count > MOST_PARAMETERS} == {*LONGER}


def test_no_class_is_made_of_more_than_eight_arguments_by_position() -> None:
    assert not {who: count for count, who in calls_by_position(FILES) if count > MOST_PARAMETERS}


def test_self_and_what_has_no_name_are_not_counted() -> None:
    [method] = ast.parse("def make(self, a, /, b, *rest, c=1, **more): ...").body
    assert isinstance(method, ast.FunctionDef) and count_parameters(method) == 3
