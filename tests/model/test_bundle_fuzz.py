"""Manifests with right hashes and wrong contents: a BundleError, or a bundle that works; never another exception."""

import copy
import random
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import BundleError, parse, read_bundle
from edge_sdk.model.model import Model
from tests.model.bundle_files import assembled, repacked

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
JUNK = (None, True, -1, 0, 3, 1.5, 1 << 40, "", "x", "../x", [], [1], {}, {"a": 1}, [[["B"]]], "B", ["B", "B"])


def places(value, path=()):
    """Paths of all values inside JSON."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*path, key))


def spoiled(manifest, rng):
    """A copy with one value replaced or taken out."""
    out = copy.deepcopy({k: v for k, v in manifest.items() if k != "parts"})
    path = rng.choice([p for p in places(out) if p])
    inside = out
    for key in path[:-1]:
        inside = inside[key]
    if isinstance(inside, dict) and rng.random() < 0.2:
        del inside[path[-1]]
    else:
        inside[path[-1]] = rng.choice(JUNK)
    return out, path


@pytest.fixture(scope="module")
def kept():
    return read_bundle(BUNDLE)


@pytest.mark.parametrize("seed", range(200))
def test_spoiled_manifests(kept, seed):
    rng = random.Random(seed)
    manifest, path = spoiled(kept.manifest, rng)
    text = {k: bytes(v) for k, v in kept.parts.items()}
    try:
        bundle = parse(assembled(manifest, text))
        if rng.random() < 0.3:
            Model(bundle)
    except (BundleError, UsageError) as error:
        assert str(error), path


@pytest.mark.parametrize("shape", [[], [0, 3, 64]])
def test_golden_vectors_that_are_no_batch_are_refused(kept, shape):
    manifest = copy.deepcopy({k: v for k, v in kept.manifest.items() if k != "parts"})
    manifest["golden"]["arrays"][0]["shape"] = shape
    bundle = parse(assembled(manifest, {k: bytes(v) for k, v in kept.parts.items()}))
    with pytest.raises(BundleError, match=r"golden vectors: in\.\w+ has shape .*, expected a batch"):
        Model(bundle).check()


@pytest.mark.parametrize("seed", range(100))
def test_damaged_graphs_with_right_hashes(kept, seed):
    rng = random.Random(seed)
    graph = bytearray(kept.parts["predict.onnx"])
    for _ in range(rng.randint(1, 8)):
        graph[rng.randrange(len(graph))] = rng.randrange(256)
    try:
        parse(repacked(kept, predict__onnx=bytes(graph)))
    except BundleError as error:
        assert "predict" in str(error)
