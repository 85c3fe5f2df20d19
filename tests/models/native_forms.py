"""Bundles with native forms, for tests: small networks, and forms that are wrong in ways that each test chooses."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from edge_sdk.model.bundle import parse
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.derive import tensors
from edge_sdk.models.derive.native import native_form
from edge_sdk.models.derive.targets import Target
from edge_sdk.models.ir.specification.spec import Spec
from tests.models.blocked_layout import skip_without_blocks

SHAPE = (3, 8, 8)


def planes():
    """Convolutions that fit blocks, and activations whose slopes are passes over memory."""
    torch.manual_seed(6)
    body = [nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.GELU(), nn.Conv2d(16, 16, 3, 2, 1), nn.Hardswish()]
    return nn.Sequential(nn.Sequential(*body), nn.Sequential(nn.Flatten(), nn.Linear(256, 3)))


def compile_planes(progress=lambda text: None, **settings):
    """The file of `planes`, with native forms unless the settings say otherwise."""
    spec = Spec("m", SHAPE, 3, features="0", **{"native": True, **settings})
    with skip_without_blocks():
        return compile_module(planes().eval(), spec, progress, search=0).data


def bundle_of(**settings):
    return parse(compile_planes(**settings))


def with_tensors(**settings):
    """The bundle with theta's tensors one by one, as large models have them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "LEAST", 0)
        patch.setattr(tensors, "EACH", 0)
        return bundle_of(**settings)


def wrong_form(target: Target) -> Target | None:
    """A native form in which one sum of each program is a difference."""
    made = native_form(target)
    if made is None:
        return None
    g = copy.deepcopy(made.graph)
    for n in g.nodes:
        if n.op == "Elementwise":
            n.attributes["program"] = n.attributes["program"].replace("\nAdd", "\nSub", 1)
    return Target(g, made.outputs, made.slots)
