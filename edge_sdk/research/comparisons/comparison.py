"""Several results side by side: `edge_sdk.compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.replay.anomalies import compared
from edge_sdk.replay.circumstances import circumstance_lines
from edge_sdk.replay.comparison import FinishedRun, comparison_table, tell_apart
from edge_sdk.research.comparisons import latex, picture
from edge_sdk.research.comparisons.alike import compare_results, is_of_windows
from edge_sdk.research.comparisons.frames import as_frame, device_rows
from edge_sdk.research.comparisons.results import Results


class ResultsCompared:
    """Results side by side, with paired differences to the first. In a notebook its last line shows it.

    Attributes:
        runs: in the order in which they were given, each with a name that no other has.

    >>> import edge_sdk as auscult
    >>> data = auscult.Fleet.dataset("breast-cancer", devices=2)
    >>> run = auscult.simulate(data, "fedavg", rounds=2, hospitals=2, neighbours=0, progress=False)
    >>> auscult.compare(one=run, two=run).differences["two"]["global"]["mean"]
    0.0
    """

    def __init__(self, runs: Sequence[FinishedRun]) -> None:
        self.runs = list(runs)

    @cached_property
    def found(self) -> Mapping[str, Any]:
        """The comparison as a nested dictionary: what `auscult compare --json` prints."""
        return compare_results(self.runs)

    @property
    def differences(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """Run -> model -> its gain over the first run: "mean", "low", "high" (95 %, over devices), shares of 0 to 1. Of
        values run -> model -> value -> how much larger its mean absolute error is, in the value's unit; of windows
        that are reconstructed or forecast run -> model -> how much larger its mean error is.

        Of models that only one of both has there is none; "in_use" is then that of what devices predict with.
        """
        return dict(self.found["differences"])

    def frame(self) -> Any:
        """A tidy table, pandas or else polars: a row for each run, seed, device and model.

        Raises:
            UsageError: neither is installed.
        """
        return as_frame([row for run in self.runs for row in device_rows(run.name, run.results)])

    def latex(self) -> str:
        """The table of all models in LaTeX, and behind it that of the differences (package booktabs). What else than
        their methods runs have otherwise is in comments before them."""
        told = "".join(f"% {line}\n" for line in circumstance_lines(self.found))
        models = latex.models_table(picture.without_repeats(self.found)["runs"])
        return f"{told}{models}\n\n{latex.differences_table(self.differences, self.runs[0].name)}"

    def __str__(self) -> str:
        if is_of_windows(self.found):
            return compared.comparison_table(self.found)
        return comparison_table(picture.without_repeats(self.found))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return picture.show_comparison(self.runs)


def compare(*runs: Results, **named: Results) -> ResultsCompared:
    """Compares results, device by device, with the first of them.

    Args:
        runs: of the same fleet, called by their names. named: the same under other names, `compare(fedavg=a, mine=b)`.

    Raises:
        UsageError: there are fewer than two, or they have no device in common.

    >>> import edge_sdk as auscult
    >>> data = auscult.Fleet.dataset("breast-cancer", devices=2)
    >>> def play(method):
    ...     return auscult.simulate(data, method, rounds=2, hospitals=2, neighbours=0, progress=False)
    >>> sorted(auscult.compare(play("fedavg"), play("ditto")).differences["ditto"])
    ['global', 'personalised']
    """
    every = [*runs, *(Results(name, run.results, run.directories) for name, run in named.items())]
    if strange := next((run for run in every if not isinstance(run, Results)), None):
        raise UsageError(f"compare: {type(strange).__name__} is no result of simulate or load")
    if len(every) < 2:
        raise UsageError(f"compare: {len(every)} result; two or more")
    first = {d["device"] for one in every[0].results for d in one["devices"]}
    for run in every[1:]:
        if first.isdisjoint(d["device"] for one in run.results for d in one["devices"]):
            raise UsageError(f"compare: {every[0].name} and {run.name} have no device in common; simulate one fleet")
    names = tell_apart([run.name for run in every], [run.name for run in every])
    return ResultsCompared([replace(run.as_run(), name=name) for run, name in zip(every, names, strict=True)])
