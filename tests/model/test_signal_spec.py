"""What a bundle says of its signal and of its classes: read back, refused where it is wrong, absent in old bundles."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import BundleError, parse, read_bundle
from edge_sdk.model.tasks.signal_spec import SignalSpec, read_signal, write_signal
from edge_sdk.tools.bundle_commands import describe
from tests.model.bundle_files import repacked

SHIPPED = Path(__file__).parents[2] / "models" / "shipped"
SPEC = SignalSpec(("a", "b"), ("g", ""), 50.0, 8, 4, (1.0, 2.0), (0.5, 4.0))


def test_the_wrist_bundle_says_what_it_takes_and_what_it_tells_apart() -> None:
    bundle = read_bundle(SHIPPED / "wrist.bundle")
    assert bundle.signal == SignalSpec(("ax", "ay", "az"), ("g",) * 3, 32.0, 64, 32)
    assert len(bundle.class_names) == 14 and bundle.class_names[-1] == "walk"
    assert "signal ax, ay, az (g) at 32 Hz, windows of 64 samples every 32" in describe(bundle)


def test_a_bundle_of_before_loads_and_says_nothing() -> None:
    bundle = read_bundle(SHIPPED / "split-esr.bundle")
    assert bundle.signal is None and bundle.class_names == ()
    kept = read_bundle(SHIPPED / "wrist.bundle")
    old = parse(repacked(kept, {"signal": None, "class_names": None}))
    assert old.signal is None and old.class_names == ()


def test_a_signal_survives_the_manifest_and_normalises() -> None:
    assert read_signal(write_signal(SPEC), [{"shape": [2, 8]}]) == SPEC
    x = np.ones((3, 2, 8), np.float32)
    np.testing.assert_array_equal(SPEC.normalise(x)[0, :, 0], [0.0, -0.25])
    assert SignalSpec(("a",), ("",), 1.0, 8, 4).normalise(x) is x


@pytest.mark.parametrize(
    "change",
    [
        {"rate_hz": 0}, {"rate_hz": float("nan")}, {"rate_hz": "32"}, {"window": 63}, {"stride": 0}, {"stride": True},
        {"channels": ["x", "x", "y"]}, {"channels": ["x"]}, {"units": ["g"]}, {"units": "ggg"}, {"channels": 3},
        {"normalise": {"mean": [0, 0, 0], "scale": [1, 0, 1]}}, {"normalise": {"mean": [0]}}, {"speed": 3},
    ],
)  # fmt: skip
def test_a_wrong_signal_is_refused_before_anything_is_run(change: dict[str, object]) -> None:
    kept = read_bundle(SHIPPED / "wrist.bundle")
    with pytest.raises(BundleError):
        parse(repacked(kept, {"signal": {**kept.manifest["signal"], **change}}))


@pytest.mark.parametrize("names", [["a"] * 14, ["a"], "abcdefghijklmn", [1] * 14, ["\n", *"abcdefghijklm"]])
def test_wrong_class_names_are_refused(names: object) -> None:
    with pytest.raises(BundleError, match="class_names"):
        parse(repacked(read_bundle(SHIPPED / "wrist.bundle"), {"class_names": names}))


def test_the_compilers_options_make_a_signal() -> None:
    cli = pytest.importorskip("edge_sdk.models.cli", reason="the compiler needs torch")
    parser = argparse.ArgumentParser()
    cli.add_signal_options(parser)

    def read(*words: str) -> SignalSpec | None:
        return cli.read_signal_options(parser.parse_args(words), (2, 8))

    told = ("--rate", "50", "--channels", "a,b", "--mean", "1,2", "--scale", "0.5,4")
    assert read(*told, "--units", "g") == SignalSpec(("a", "b"), ("g", "g"), 50.0, 8, 4, (1.0, 2.0), (0.5, 4.0))
    assert read() is None
    for wrong in (
        ("--channels", "a,b"),
        ("--rate", "50"),
        ("--rate", "0", "--channels", "a,b"),
        (*told, "--mean", "x"),
    ):
        with pytest.raises((UsageError, cli.CompileError)):
            read(*wrong)
