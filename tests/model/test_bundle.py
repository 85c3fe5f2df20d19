"""Bundles that are not right in every byte are refused, with a reason, and nothing of them is run."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.model import bundle as b
from edge_sdk.model.bundle import BundleError, parse, read_bundle
from tests.model.bundle_files import assembled, repacked

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"


@pytest.fixture(scope="module")
def raw():
    return BUNDLE.read_bytes()


@pytest.fixture(scope="module")
def kept():
    return read_bundle(BUNDLE)


def test_a_good_bundle_is_read(kept):
    assert kept.layout.size == kept.theta0.size == 77_518
    assert kept.theta0.dtype == np.float32 and kept.theta0.flags.writeable
    assert kept.report["parity"]["float64"] <= 1e-6


def test_the_identity_leaves_out_the_report(kept):
    assert parse(repacked(kept, report__json=b"{}")).sha256 == kept.sha256
    assert parse(repacked(kept, {"name": "other"})).sha256 != kept.sha256


@pytest.mark.parametrize("table", [["noise"], {"noise": -1}, {"noise": "much"}, {"noise": True}, {"noise": 1e999}])
def test_augmentation_that_is_none_is_refused(kept, table):
    with pytest.raises(BundleError, match="augment"):
        parse(repacked(kept, {"augment": table}))


def test_every_truncation_is_refused(raw):
    for size in [*range(0, 3000, 7), *range(3000, len(raw), 5003), len(raw) - 1]:
        with pytest.raises(BundleError):
            parse(raw[:size])


def test_every_damaged_byte_is_refused(raw):
    for at in [*range(0, 60), *range(60, len(raw), 4999)]:
        damaged = bytearray(raw)
        damaged[at] ^= 0x10
        with pytest.raises(BundleError):
            parse(bytes(damaged))


def test_more_than_the_parts_is_refused(raw):
    with pytest.raises(BundleError, match="1 bytes after the last part"):
        parse(raw + b"x")


def test_a_newer_format_says_so(raw):
    with pytest.raises(BundleError, match="format version 2, this release reads version 1"):
        parse(raw[:8] + (2).to_bytes(4, "little") + raw[12:])


def test_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch, raw):
    path = tmp_path / "big.bundle"
    path.write_bytes(raw)
    monkeypatch.setattr(b, "MAX_FILE", 1000)
    with pytest.raises(BundleError, match=r"big.bundle: 3\d\d,\d+ bytes, a bundle has at most 1,000"):
        read_bundle(path)
    monkeypatch.setattr(b, "MAX_FILE", 512 << 20)
    with pytest.raises(BundleError, match="cannot be read"):
        read_bundle(tmp_path / "missing.bundle")


def test_a_manifest_that_promises_more_than_there_is(raw):
    head = b.HEADER.pack(b.MAGIC, 1, 1 << 31, b"\0" * 32)
    with pytest.raises(BundleError, match="a manifest of 2,147,483,648 bytes"):
        parse(head + raw[48:])


@pytest.mark.parametrize("name", ["../theta0", "a/b", "a\\b", "", "x" * 200, "a\nb"])
def test_names_that_could_be_paths_are_refused(kept, name):
    with pytest.raises(BundleError, match="is no name of a part"):
        parse(assembled(kept.manifest, {**{k: bytes(v) for k, v in kept.parts.items()}, name: b""}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters": 5}, "layout.json has 77,518 numbers, the manifest says 5"),
        ({"parameters": -1}, "parameters = '-1', expected a count"),
        ({"classes": "many"}, "classes = 'many'"),
        ({"max_batch": 0}, "start at 1"),
        ({"loss": "hinge"}, "loss = 'hinge', expected one of"),
        ({"name": 3}, "name = '3', expected 1 to 200 printable characters"),
        ({"name": ""}, "name = '', expected 1 to 200 printable characters"),
        ({"name": "x" * 201}, "name = 'x{50}', expected 1 to 200 printable characters"),
        ({"name": "a\0b"}, "expected 1 to 200 printable characters"),
        ({"name": "a\ud800"}, "expected 1 to 200 printable characters"),
        ({"graphs": []}, "graphs must be a JSON object"),
        ({"graphs": {"other": {}}}, "graph 'other' has no part"),
        ({"runtime": {}}, "runtime.onnxruntime"),
        ({"golden": {}}, "malformed: KeyError"),
        ({"golden": {"arrays": [{"name": "x", "dtype": "object", "shape": [1], "offset": 0}]}}, "dtype 'object'"),
        ({"golden": {"arrays": [{"name": "x", "dtype": "float32", "shape": [1 << 28] * 2, "offset": 0}]}}, "outside"),
        ({"golden": {"arrays": [{"name": "x", "dtype": "float32", "shape": [1] * 99, "offset": 0}]}}, "is no shape"),
    ],
)
def test_wrong_manifests_name_the_field(kept, change, words):
    with pytest.raises(BundleError, match=words):
        parse(repacked(kept, change))


def test_nested_json_does_not_end_the_process(kept):
    text = b"[" * 100_000
    head = b.HEADER.pack(b.MAGIC, 1, len(text), hashlib.sha256(text).digest())
    with pytest.raises(BundleError):
        parse(head + text)
    with pytest.raises(BundleError, match="malformed"):
        parse(repacked(kept, layout__json=text))


@pytest.mark.parametrize("key", ["offset", "shape"])
def test_a_layout_with_an_infinite_number_is_refused(kept, key):
    """JSON of Python knows Infinity, and no integer is it: that was an error that nobody expected of a bundle."""
    layout = json.loads(bytes(kept.parts["layout.json"]))
    layout[0][key] = [float("inf")] if key == "shape" else float("inf")
    with pytest.raises(BundleError, match="malformed: OverflowError"):
        parse(repacked(kept, layout__json=json.dumps(layout).encode()))


@pytest.mark.parametrize("text", [b"nope", b"\xff", b"[" * 100_000, b"[]", b""])
def test_a_report_that_is_none_is_refused_with_its_bundle(kept, text):
    """It is no part of the identity, and whoever looked at it later was ended by it."""
    with pytest.raises(BundleError, match=r"malformed|report\.json must be"):
        parse(repacked(kept, report__json=text))


def test_theta0_must_be_finite_and_whole(kept):
    theta = kept.theta0
    theta[7] = np.nan
    with pytest.raises(BundleError, match="not finite"):
        parse(repacked(kept, theta0=theta.tobytes()))
    with pytest.raises(BundleError, match="theta0 has 308 bytes"):
        parse(repacked(kept, theta0=theta.tobytes()[:308]))


@pytest.mark.parametrize("damage", [b"\xff" * 40, b"\x3a\xff\xff\xff\xff\x7f", b"\x80" * 20])
def test_graphs_that_are_no_onnx_files_are_refused(kept, damage):
    with pytest.raises(BundleError, match="graph 'predict' is no ONNX file"):
        parse(repacked(kept, predict__onnx=damage))
