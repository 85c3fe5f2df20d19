"""Median and distinct values, to the bit those of numpy, and what reading a trace does not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.ordered import find_median, list_distinct

READ = """
import sys
from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of, unlabelled_of
from pathlib import Path

data = Cut(trace=Path(sys.argv[1]), window=8, stride=4, validation=0.2, labelled=1.0)
print(len(samples_of(data).train), len(unlabelled_of(data)))
print(*sys.modules)
"""


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_the_median_is_that_of_numpy(count: int, dtype: type) -> None:
    values = np.random.default_rng(count).normal(0, 1000, count).astype(dtype)
    assert np.array(find_median(values)).tobytes() == np.array(float(np.median(values))).tobytes()


def test_a_median_of_what_is_not_known_is_not_known() -> None:
    assert np.isnan(find_median([1.0, np.nan, 2.0, 3.0])) and np.isnan(find_median([]))
    assert find_median([1.0, 2.0, np.inf]) == 2.0


@pytest.mark.parametrize("values", [[], [3, -1, 3, 2, -1], ["b", "", "a", "b"], [5]])
def test_distinct_values_are_those_of_numpy(values: list) -> None:
    given = np.array(values) if values else np.zeros(0, np.int64)
    np.testing.assert_array_equal(list_distinct(given), np.unique(given))


def test_a_device_reads_its_trace_without_modules_that_it_has_no_use_for(tmp_path: Path) -> None:
    rows = [f"{i / 10:.1f},{i % 7},{'walk' if i // 40 % 2 else 'sit'}" for i in range(400)]
    (tmp_path / "a.csv").write_text("\n".join(["time,x,activity", *rows]) + "\n")
    command = [sys.executable, "-c", READ, str(tmp_path / "a.csv")]
    said, loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert all(int(count) > 0 for count in said.split())
    assert not {"numpy.ma", "zoneinfo", "sysconfig", "statistics", "decimal", "difflib"} & {*loaded.split()}
