"""Notes that torch makes of sizes while it traces, and cannot read when it writes the program anew."""

from __future__ import annotations

import importlib

import pytest
import torch

from edge_sdk.models.frontend.tracing.export import leave_out_lost_guards

home = importlib.import_module("torch.export._unlift")
PATH = (torch.utils._pytree.MappingKey("x"),)


@pytest.mark.skipif(not hasattr(home, "_convert_guards_code_to_fn"), reason="this torch makes no such notes")
def test_a_note_of_a_value_that_is_no_input_is_left_out_and_others_hold():
    notes, before = ["L['x'].size()[0] == 3", "L['gone'].size()[0] == 3"], home._convert_guards_code_to_fn
    with leave_out_lost_guards():
        check = home._convert_guards_code_to_fn(notes, [PATH])
    assert home._convert_guards_code_to_fn is before
    check(torch.zeros(3))
    with pytest.raises(AssertionError, match="Guard failed"):
        check(torch.zeros(4))
    with pytest.raises(NameError):
        before(notes, [PATH])(torch.zeros(3))
