"""Arrays become the trace that a file of the same rows becomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_sdk.data.recorded import trace_of_arrays
from edge_sdk.data.traces import read_trace
from edge_sdk.errors import UsageError

N = 60
TIME = 1_700_000_000 + np.arange(N) / 20
X = np.random.default_rng(1).normal(size=N).round(3)
LABELS = ["walk"] * 30 + [None, "", float("nan")] * 5 + [" Walk"] * 15


def test_arrays_and_a_file_are_the_same_trace(tmp_path: Path) -> None:
    x, time = X.copy(), TIME.copy()
    x[7], time[[20, 21]] = np.nan, time[[21, 20]]
    texts = ["" if label is None or label != label else str(label) for label in LABELS]
    rows = (f"{t:.2f},{'' if v != v else v},{text}" for t, v, text in zip(time, x, texts, strict=True))
    (tmp_path / "a.csv").write_text("\n".join(["time,x,activity", *rows]))
    of_file, of_arrays = read_trace(tmp_path / "a.csv"), trace_of_arrays("a", time, {"x": x}, LABELS)
    for key in ("name", "channels", "classes", "began", "rate_hz"):
        assert getattr(of_file, key) == getattr(of_arrays, key)
    for key in ("time", "values", "codes"):
        assert np.array_equal(getattr(of_file, key), getattr(of_arrays, key))
    assert [(r.what, r.line - 1) for r in of_file.repairs] == [(r.what, r.line) for r in of_arrays.repairs]
    assert np.isnan(x[7]) and time[20] > time[21], "what was given is left as it is"


@pytest.mark.parametrize("time", [TIME * 1e3, (TIME * 1e3).astype(np.int64), (TIME * 1e3).astype("M8[ms]")])
def test_times_in_other_units(time: np.ndarray) -> None:
    trace = trace_of_arrays("a", time, {"x": X})
    assert trace.rate_hz == pytest.approx(20) and trace.began == 1_700_000_000 and (trace.codes == -1).all()
    assert ("ms since 1970" in trace.told) == (time.dtype.kind != "M")


def test_arrays_that_do_not_fit_are_named() -> None:
    for said, arguments in (
        ("channel y is .59,.; .60,.", (TIME, {"x": X, "y": X[1:]})),
        ("channel x is not of numbers", (TIME, {"x": ["one"] * N})),
        ("time is <U", (TIME.astype(str), {"x": X})),
        ("no channels", (TIME, {})),
        ("59 labels for 60 times", (TIME, {"x": X}, LABELS[1:])),
        ("no sample", (TIME * np.nan, {"x": X})),
    ):
        with pytest.raises(UsageError, match=said):
            trace_of_arrays("a", *arguments)
    with pytest.raises(UsageError, match="no number in x"):
        trace_of_arrays("a", TIME, {"x": np.where(X > 0, X, np.nan)}, strict=True)
