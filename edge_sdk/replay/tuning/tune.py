"""`auscult tune`: the settings of one or several methods, each with the same number of trials, on validation samples.

Each method has a worker process (worker.py) and a search (study.py) of its own, and as many of them run at a time as
there are cores; within a method trials follow each other. Whenever a trial is the best so far, its settings are written
at once, so whatever ends the search keeps what was found.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.contract.search import flattened, nested, overlaid
from edge_sdk.errors import UsageError
from edge_sdk.hardware.probe import read_machine
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.replay.nodes.side_by_side import play_side_by_side
from edge_sdk.replay.planning.plan import Replay
from edge_sdk.replay.planning.toml_files import as_toml, write_toml
from edge_sdk.replay.tuning.process import TrialProcess
from edge_sdk.replay.tuning.scores import ACCURACY
from edge_sdk.replay.tuning.study import Study, Trial, start_values
from edge_sdk.replay.tuning.worker import as_job

Progress = Callable[[str, Trial, Trial | None], None]
"""(method, trial that is over, best so far)."""
Say = Callable[[str], None]
INNER = ("devices", "score", "shown")
"""Fields of a trial that `--json` does not print with each."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What to tune.

    Attributes:
        job: a run of the method, with the settings that are tried first.
        fixed: settings that are not searched, as dotted names.
        budget: number of trials.
        file: where the settings go; the trials are noted beside it.
        replay: command line that replays the file, for the file's head.
    """

    job: Replay
    fixed: tuple[str, ...] = ()
    budget: int = 20
    file: Path
    replay: str = ""

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise UsageError(f"--budget {self.budget}: at least 1 trial")
        if not self.space:
            raise UsageError(f"method {self.job.method}: none of its settings is left to search")

    @property
    def method(self) -> str:
        return self.job.method

    @property
    def space(self) -> Mapping[str, Any]:
        """The method's search space without what is fixed."""
        every = method_of(Run(id="tune", method=self.method)).search
        return {key: values for key, values in every.items() if key not in self.fixed}

    @property
    def database(self) -> Path:
        """File of the trials."""
        return self.file.with_suffix(".trials.db")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search has come to.

    Attributes:
        best: None: no trial went well.
        trials: all that are over.
    """

    search: Search
    best: Trial | None
    trials: Sequence[Trial]

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints of it."""
        return {
            "method": self.search.method,
            "file": str(self.search.file) if self.best else None,
            **self.best_score(),
            "settings": None if self.best is None else complete_settings(self.search, self.best.values),
            "trials": [{key: value for key, value in asdict(t).items() if key not in INNER} for t in self.trials],
        }

    def best_score(self) -> dict[str, Any]:
        """What the best trial has reached; of other scores than accuracy their name and text, too."""
        if self.best is None or self.best.score == ACCURACY:
            return {"validation_accuracy": None if self.best is None else self.best.accuracy}
        return {"validation_score": self.best.accuracy, "score": self.best.score, "shown": self.best.reached}


def tune(searches: Sequence[Search], progress: Progress, say: Say) -> list[Found]:
    """Searches for the settings of several methods.

    Returns:
        What each search has come to, also after Ctrl-C: then with the trials until there.

    Raises:
        UsageError: something named cannot be used.
    """
    stopping, found = threading.Event(), dict[int, Found]()

    def look_for(number: int, search: Search) -> None:
        found[number] = search_one(search, progress, say, stopping)

    jobs = {number: partial(look_for, number, search) for number, search in enumerate(searches)}
    try:
        play_side_by_side(jobs, min(len(searches), read_machine().cores), stopping)
    except KeyboardInterrupt:
        say("interrupted; what has been found so far is kept, and the same command goes on")
    return [found[number] for number in sorted(found)]


def search_one(search: Search, progress: Progress, say: Say, stopping: threading.Event) -> Found:
    """Searches for the settings of one method."""
    study = Study(search.database, search.method, search.space, describe(search), starts(search))
    if len(study.over()) < search.budget:
        with TrialProcess(search.job, lambda text: say(f"{search.method}: {text}"), stopping) as worker:
            while len(study.over()) < search.budget and not stopping.is_set():
                outcome = worker.play(overlaid(search.job.settings, nested(study.propose())))
                if outcome is None:
                    break  # interrupted: the trial counts nothing
                study.tell(outcome)
                write_best(search, study)
                progress(search.method, study.over()[-1], study.best())
    write_best(search, study)
    return Found(search=search, best=study.best(), trials=study.over())


def describe(search: Search) -> dict[str, Any]:
    """Everything that decides what a trial comes to. The budget does not: a search can be continued."""
    job = {key: value for key, value in as_job(search.job).items() if key not in ("out", "command", "neighbours")}
    space = {key: repr(values) for key, values in search.space.items()}
    found: dict[str, Any] = json.loads(json.dumps({**job, "settings": search.job.settings, "space": space}))
    return found


def starts(search: Search) -> list[Mapping[str, Any]]:
    """The first trials: the settings of the job, and the paper's."""
    fixed = {key: value for key, value in flattened(search.job.settings).items() if key in search.fixed}
    every = [flattened(full_settings(search, some)) for some in (search.job.settings, nested(fixed))]
    return start_values(search.space, every)


# Settings -------------------------------------------------------------------------------------------------------
def full_settings(search: Search, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of the method, with those that nobody has stated."""
    run = Run(id="tune", method=search.method, settings=settings)
    found: dict[str, Any] = as_toml(asdict(settings_of(run)))
    return found


def complete_settings(search: Search, values: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of the method with the values of a trial."""
    return full_settings(search, overlaid(search.job.settings, nested(values)))


def write_best(search: Search, study: Study) -> None:
    """Writes the best settings so far, and where they come from."""
    best = study.best()
    if best is None:
        return
    trials, job = study.over(), search.job
    told = best.accuracy if best.score == ACCURACY else best.reached
    failed = sum(trial.accuracy is None for trial in trials)
    head = [
        f"Settings of {search.method} for {job.data}, chosen by `auscult tune` on validation samples.",
        f"command: {job.command}",
        f"trials: {len(trials)}, of which {failed} failed; best: trial {best.number}",
        f"validation {best.score}: {told} (mean over devices, each with the model that it predicts with)",
        f"to replay it: {search.replay}",
    ]
    run = {"method": search.method, "rounds": job.rounds, "settings": complete_settings(search, best.values)}
    more = {"settle": dict(job.settle), "augment": dict(job.augment), "robust": dict(job.robust)}
    more |= {"uploads": dict(job.uploads), "privacy": dict(job.privacy)}
    tables = {"run": {**run, **{key: table for key, table in more.items() if table}}}
    write_toml(search.file, tables, "\n".join(head))
