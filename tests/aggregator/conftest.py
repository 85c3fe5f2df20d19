"""Models that all tests of this folder share. Without torch there is nothing to test here."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    import torch

    from edge_sdk.model.bundle import Bundle, parse
    from edge_sdk.models.bundle.compile import compile_module
    from edge_sdk.models.ir.specification.spec import Spec
    from tests.aggregator.private_models import CLASSES, INPUTS, Student, Teacher

    @pytest.fixture(scope="module")
    def bundle() -> Bundle:
        """The devices' model."""
        torch.manual_seed(0)
        return parse(compile_module(Student().eval(), Spec("student", input=(INPUTS,), classes=CLASSES)).data)

    @pytest.fixture(scope="module")
    def teacher() -> Teacher:
        """The pretrained model."""
        torch.manual_seed(1)
        return Teacher().eval()
