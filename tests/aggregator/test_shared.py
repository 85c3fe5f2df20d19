"""The aggregator's heavy steps on several ranks, against one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from aggregator.kernels import FAST, FULL, kernels_on
from aggregator.shared import assist, deal, dismiss, led, read_arrays, shared, write_arrays
from edge_sdk.algebra import lowrank
from edge_sdk.algebra.vectors import layout_of
from edge_sdk.methods.fedal import discriminator
from edge_sdk.methods.shared.aggregation.server import low_rank
from tests.simulation.threads import on_all, thread_ranks

LAYOUT = layout_of(
    ("a", (32, 8, 3, 3), "conv"), ("b", (8,), "bias"), ("c", (80, 90), "linear"), ("d", (9, 4), "linear")
)
WIDTHS = (5, 16, 7)


def arguments():
    random = np.random.default_rng(1)
    x, near = (random.standard_normal(LAYOUT.size).astype(np.float32) for _ in range(2))
    w = discriminator.initial(random, WIDTHS, np.float32)
    f, who = random.standard_normal((23, 5)).astype(np.float32), np.arange(23) % 7
    return x, near, (w, WIDTHS, f, who, np.ones(7, bool), 2.0)


def results(kernels):
    x, near, rows = arguments()
    packed = low_rank(LAYOUT, x, 4.0, kernels["svt"], near)
    return [
        lowrank.unpack(LAYOUT, packed),
        kernels["discriminator"].ascent(*rows),
        *kernels["discriminator"].feedback(*rows),
    ]


def check(found, expected):
    assert np.array_equal(found[0], expected[0])  # layers are whole, so these are the same bits
    assert all(
        a.dtype == b.dtype and np.allclose(a, b, rtol=0, atol=1e-6) for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("way", [FULL, FAST])
@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_ranks_that_call_together(count, way):
    expected = results(kernels_on("cpu", way))
    for found in on_all(thread_ranks(count), lambda rank: results(shared(kernels_on("cpu", way), rank))):
        check(found, expected)


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_of_a_simulation_come_to_the_same_bits(count):
    expected = results(kernels_on("cpu", FAST))
    for found in on_all(thread_ranks(count), lambda rank: results(shared(kernels_on("cpu", FAST), rank, exactly=True))):
        assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


def lead_or_assist(rank, way=FAST):
    """What rank 0 comes to while the others wait for it; None on these."""
    if rank.number:
        return assist(kernels_on("cpu", way), rank)
    try:
        return results(led(kernels_on("cpu", way), rank))
    finally:
        if rank.count > 1:
            dismiss(rank)


@pytest.mark.parametrize("count", [1, 3])
def test_a_service_and_its_helpers(count):
    found = on_all(thread_ranks(count), lead_or_assist)
    check(found[0], results(kernels_on("cpu", FAST)))
    assert found[1:] == [None] * (count - 1)


def test_the_dearest_layers_are_dealt_out_first():
    assert deal({"a": 5.0, "b": 4.0, "c": 3.0, "d": 3.0}, 2) == {"a": 0, "b": 1, "c": 1, "d": 0}


def test_arrays_travel_without_pickles():
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_arrays(write_arrays({"x": np.array([object()])}))
    found = read_arrays(write_arrays({"a.b": np.arange(3), "c": "word"}))
    assert found["a.b"].tolist() == [0, 1, 2] and found["c"] == "word"


@pytest.mark.long
def test_two_processes():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    root = Path(__file__).parents[2]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.aggregator.test_shared"],
            env={**os.environ, **place, "RANK": str(rank), "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert said[0].count("equal") == 2


if __name__ == "__main__":
    from edge_sdk.simulation.processes.ranks import find_ranks

    ranks = find_ranks()
    check(results(shared(kernels_on("cpu", FAST), ranks)), results(kernels_on("cpu", FAST)))
    print("equal together")
    if (mine := lead_or_assist(ranks)) is not None:
        check(mine, results(kernels_on("cpu", FAST)))
        print("equal led")
    ranks.close()
