"""The race of simulators: our part of it is played to its end, on the network and clients that it says."""

from __future__ import annotations

import argparse
import json

import pytest

pytest.importorskip("torch", reason="ranks and kernels need it")

from benchmarks import simulate


@pytest.mark.parametrize("calls", ["epoch", "cohort"])
def test_our_part_of_the_race_prints_its_rate(tmp_path, capsys, calls):
    args = argparse.Namespace(model="mlp", rounds=4, clients=20, cohort=4, ranks=1, calls=calls, play=tmp_path)
    simulate.play(args)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["rate"] > 0 and found["cpu_ms"] > 0
