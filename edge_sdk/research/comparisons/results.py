"""What runs with one method have reached: tables, curves, models of devices, files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.errors import UsageError
from edge_sdk.replay.anomalies.scores import ANOMALIES
from edge_sdk.replay.comparison import FinishedRun, read_run
from edge_sdk.replay.metrics.statistics import ACCURACY, score_in
from edge_sdk.replay.over_seeds import summarise_seeds
from edge_sdk.replay.reports import page, seeds_page, tables, terminal
from edge_sdk.replay.reports.verdict import titles_of
from edge_sdk.research.comparisons import latex, picture
from edge_sdk.research.comparisons.alike import compare_results
from edge_sdk.research.comparisons.frames import as_frame, curve_rows, device_rows, shown_figures
from edge_sdk.research.comparisons.personal import DeviceModels

RESULT, REPORT = "result.json", "report.html"
ABOUT = "auscult.json"
"""A file beside saved runs: their name."""


class Results:
    """Runs of one method on one fleet, a run for each seed. In a notebook its last line shows it.

    Attributes:
        name: in tables and legends.
        results: of each seed, as `auscult simulate --json` prints it.
        directories: of the runs.

    >>> import edge_sdk as auscult
    >>> data = auscult.Fleet.dataset("breast-cancer", devices=2)
    >>> run = auscult.simulate(data, "fedavg", rounds=2, hospitals=2, neighbours=0, progress=False)
    >>> sorted(run.accuracy)
    ['global', 'personalised']
    """

    def __init__(self, name: str, results: Sequence[Mapping[str, Any]], directories: Sequence[Path]) -> None:
        self.name, self.results, self.directories = name, list(results), [Path(one) for one in directories]

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.results[0]["method"])

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        return [int(one["seed"]) for one in self.results]

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """Means and deviations over seeds, and differences over devices, as a nested dictionary."""
        return summarise_seeds(self.results)

    @property
    def accuracy(self) -> dict[str, float]:
        """Model -> accuracy on test samples, 0 to 1: mean over devices and seeds.

        Raises:
            UsageError: the models predict no classes; see `scores`.
        """
        score = "mae" if "values" in self.summary else score_in(self.summary)
        if (score := "errors" if ANOMALIES in self.summary else score) != ACCURACY:
            raise UsageError(f"accuracy: these models predict no classes; run.scores has their {score}")
        return {model: found["mean"] for model, found in self.summary[ACCURACY].items()}

    @property
    def scores(self) -> dict[str, Any]:
        """Model -> what it is judged by on test samples, mean over devices and seeds: accuracy, or macro-F1 of sets of
        labels, 0 to 1; of values: name of a value -> mean absolute error, in its unit; of windows that are
        reconstructed or forecast "error", "explained", "auroc", "found", "alarms" and "alarms_per_day", None where
        nobody knows."""
        if ANOMALIES in self.summary:
            return {model: shown_figures(figures) for model, figures in self.summary[ANOMALIES]["models"].items()}
        if "values" not in self.summary:
            return {model: found["mean"] for model, found in self.summary[score_in(self.summary)].items()}
        models = self.summary["values"]["models"]
        return {
            model: {name: errors["mae"]["mean"] for name, errors in found.items()} for model, found in models.items()
        }

    @property
    def verdict(self) -> str:
        """A sentence: does joining pay, against the best that a device can do by itself? Before it another one, where
        rounds counted no device, such as those in which training diverged."""
        return terminal.verdict_of({**self.summary, "runs": self.results})

    @property
    def devices(self) -> DeviceModels:
        """Name -> the models of that device, of the first seed: `run.devices["ann"].predict(x)`."""
        return self.devices_of(self.seeds[0])

    def devices_of(self, seed: int) -> DeviceModels:
        """Name -> the models of that device in the run of a seed.

        Raises:
            UsageError: there is no such run.
        """
        if seed not in self.seeds:
            raise UsageError(f"no run with seed {seed}; there are {', '.join(map(str, self.seeds))}")
        at = self.seeds.index(seed)
        return DeviceModels(self.directories[at], self.results[at])

    def frame(self) -> Any:
        """A tidy table, pandas or else polars: a row for each seed, device and model, with its metrics on test samples;
        of values a row for each, with MAE, RMSE and bias in its unit; of windows their errors and alarms.

        Raises:
            UsageError: neither is installed.
        """
        return as_frame(device_rows(self.name, self.results))

    def curves(self) -> Any:
        """A tidy table of rounds: a row for each seed, round, model and part of the samples, with its mean accuracy
        (macro-F1; errors of values) over devices. Rounds are judged on the part "validation", where there is one; the
        part "test" is judged once, at the end.

        Raises:
            UsageError: neither pandas nor polars is installed.
        """
        return as_frame(curve_rows(self.name, self.results))

    def latex(self) -> str:
        """The table of models in LaTeX (package booktabs)."""
        return latex.models_table(compare_results([self.as_run()])["runs"])

    def as_run(self) -> FinishedRun:
        """The runs as `auscult compare` has them."""
        return FinishedRun(self.name, self.results)

    def save(self, path: str | Path) -> Path:
        """Writes all of it into a new folder, for `edge_sdk.load` and for `auscult compare`.

        Returns:
            The folder; report.html in it is a page to look at.

        Raises:
            UsageError: there is something already.
        """
        target = Path(path)
        if target.exists() and any(target.iterdir()):
            raise UsageError(f"save: {target} is not empty; name another folder")
        for seed, directory in zip(self.seeds, self.directories, strict=True):
            shutil.copytree(directory, target / f"seed-{seed}")
        told = {**self.summary, "runs": self.results}
        write_text(target / RESULT, json.dumps(told))
        write_text(target / ABOUT, json.dumps({"name": self.name}))
        one = len(self.results) == 1
        write_text(target / REPORT, page.make_page(self.results[0]) if one else seeds_page.make_seeds_page(told))
        return target

    def __str__(self) -> str:
        seeds = f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else f"seed {self.seeds[0]}"
        head = f"{self.name}: {len(self.results[0]['devices'])} devices, {self.results[0]['rounds']} rounds, {seeds}"
        own = terminal.tables_of(self.summary)
        shown = tables.statistics_table(self.summary["statistics"], titles_of(self.summary))
        table = own.model_table(self.summary) if own else shown
        return "\n".join(filter(None, [head, self.verdict, "", table]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return picture.show_results(self.as_run())


def read_result(directory: Path) -> dict[str, Any] | None:
    """The result of a run that is over; None: it is not."""
    try:
        found: dict[str, Any] = json.loads((directory / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found


def load(path: str | Path) -> Results:
    """Reads what `Results.save`, `auscult simulate` or `auscult replay` has written.

    Args:
        path: the folder.

    Raises:
        UsageError: there is no result, or one of another version.

    >>> import edge_sdk as auscult
    >>> data = auscult.Fleet.dataset("breast-cancer", devices=2)
    >>> run = auscult.simulate(data, "fedavg", rounds=2, hospitals=2, neighbours=0, progress=False)
    >>> load(run.save("study")).accuracy == run.accuracy
    True
    """
    folder = Path(path)
    found = read_run(folder)
    about = folder / ABOUT
    try:
        name = json.loads(about.read_text(encoding="utf-8"))["name"] if about.is_file() else found.results[0]["method"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{about}: no name of a run: {type(error).__name__}: {error}") from error
    places = [folder / f"seed-{one['seed']}" for one in found.results]
    return Results(str(name), found.results, [place if place.is_dir() else folder for place in places])
