"""What a bundle shows, and how a bad one is refused, from the command line."""

import argparse
from pathlib import Path

import pytest

from edge_sdk.model.bundle import BundleError
from edge_sdk.tools.bundle_commands import add_parsers

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers(required=True))
    options = parser.parse_args([str(a) for a in arguments])
    return options.do(options)


def test_inspect_shows_layers_graphs_and_what_it_costs_here(capsys):
    assert run("inspect", BUNDLE) == 0
    out = capsys.readouterr().out
    for words in (
        "77,518 parameters",
        "310 of parameters and statistics",
        "loaded in",
        "body.0.weight",
        "conv",
        "32x3x5",
        "loss_grad@head",
        "float64 1e-",
        "peak memory",
    ):
        assert words in out


def test_verify_runs_the_golden_vectors(capsys):
    assert run("verify", BUNDLE) == 0
    assert "golden vectors pass" in capsys.readouterr().out


def test_verify_refuses_a_damaged_file(tmp_path):
    bad = tmp_path / "bad.bundle"
    raw = bytearray(BUNDLE.read_bytes())
    raw[100_000] ^= 1
    bad.write_bytes(raw)
    with pytest.raises(BundleError, match=r"bad\.bundle: part 'theta0' is damaged"):
        run("verify", bad)
