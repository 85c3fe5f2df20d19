"""The search of `auscult tune`: Optuna proposes settings, and notes in a SQLite file what they have come to.

Trials are proposed one after another, each by a sampler that is seeded with the run's seed and the number of trials
that are over. So an interrupted search that goes on proposes what it would have proposed. Nothing is pruned: methods
learn at different speeds, and those that settle decide at the end, so an early look would favour some of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.replay.tuning.scores import ACCURACY

ASKED, ERROR, SECONDS, DEVICES = "asked", "error", "seconds", "devices"
SAID = ("score", "shown")
"""Fields of a trial that say what its score is."""


@dataclass(frozen=True)
class Trial:
    """One proposal that is over.

    Attributes:
        number: from 1 on.
        values: setting -> value.
        accuracy: on validation samples, or another score (scores.py); None: it failed.
        error: why.
        seconds: that it took.
        devices: device -> accuracy on validation samples of the model that it predicts with; empty in files of before.
        score: name of what is in `accuracy`. shown: its value for people; "": a share.
    """

    number: int
    values: Mapping[str, Any]
    accuracy: float | None
    error: str = ""
    seconds: float = 0.0
    devices: Mapping[str, float] = field(default_factory=dict)
    score: str = ACCURACY
    shown: str = ""

    @property
    def reached(self) -> str:
        """What it has reached, for people; "failed"."""
        return "failed" if self.accuracy is None else self.shown or f"{self.accuracy:.1%}"


class Study:
    """The search for one method's settings.

    Args:
        path: SQLite file, made where there is none.
        name: of the method.
        space: where it searches.
        asked: everything that decides what a trial comes to, in JSON's types.
        starts: settings that are tried first, in this order.

    Raises:
        UsageError: Optuna is not installed, or the file is of a search for something else.
    """

    def __init__(
        self, path: Path, name: str, space: SearchSpace, asked: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]
    ) -> None:
        self.optuna = import_optuna()
        self.seed, self.starts = int(asked["seed"]), starts
        self.current: Any = None
        self.distributions = {key: self.distribution(values) for key, values in space.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        self.study = self.optuna.create_study(
            storage=f"sqlite:///{path}", study_name=name, direction="maximize", load_if_exists=True
        )
        self.check_asked(path, json.dumps(asked, sort_keys=True))
        self.forget_unfinished()

    def distribution(self, values: Range | OneOf) -> Any:
        """A dimension of the search space, as Optuna knows it."""
        kinds = self.optuna.distributions
        if isinstance(values, OneOf):
            return kinds.CategoricalDistribution(values.values)
        if values.whole:
            return kinds.IntDistribution(int(values.low), int(values.high), log=values.log)
        return kinds.FloatDistribution(values.low, values.high, log=values.log)

    def check_asked(self, path: Path, asked: str) -> None:
        before = self.study.user_attrs.get(ASKED)
        if before is None:
            self.study.set_user_attr(ASKED, asked)
        elif before != asked:
            old, new = json.loads(before), json.loads(asked)
            key = next(key for key in new if old.get(key) != new[key])
            raise UsageError(
                f"{path}: holds a search with {key} = {old.get(key)!r}, and this one has {new[key]!r}; "
                "name another output, or remove the file"
            )

    def forget_unfinished(self) -> None:
        """Gives up trials in which a search was killed: they count nothing, and are proposed again."""
        states = self.optuna.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=(states.RUNNING, states.WAITING)):
            self.study.tell(trial.number, state=states.FAIL, skip_if_finished=True)

    def over(self) -> list[Trial]:
        """The trials that are over, in their order."""
        found = list[Trial]()
        for trial in self.study.get_trials(deepcopy=False):
            error, seconds = trial.user_attrs.get(ERROR, ""), trial.user_attrs.get(SECONDS, 0.0)
            devices = trial.user_attrs.get(DEVICES, {})
            if trial.value is not None or error:
                said = {name: trial.user_attrs[name] for name in SAID if name in trial.user_attrs}
                found.append(Trial(len(found) + 1, trial.params, trial.value, error, seconds, devices, **said))
        return found

    def best(self) -> Trial | None:
        """The first of the trials with the highest accuracy."""
        good = [trial for trial in self.over() if trial.accuracy is not None]
        return max(good, key=lambda trial: (trial.accuracy, -trial.number), default=None)

    def propose(self) -> dict[str, Any]:
        """The values of the next trial, for `tell` to say what they have come to."""
        done = len(self.over())
        self.study.sampler = self.optuna.samplers.TPESampler(seed=1000 * self.seed + done)
        if done < len(self.starts):
            self.study.enqueue_trial(dict(self.starts[done]))
        self.current = self.study.ask(self.distributions)
        return dict(self.current.params)

    def tell(self, outcome: Mapping[str, Any]) -> None:
        """Notes what the trial has come to, as the worker replies."""
        if ERROR in outcome:
            self.current.set_user_attr(ERROR, outcome[ERROR])
            self.study.tell(self.current, state=self.optuna.trial.TrialState.FAIL)
            return
        self.current.set_user_attr(SECONDS, outcome[SECONDS])
        self.current.set_user_attr(DEVICES, outcome.get(DEVICES, {}))
        for name in SAID:
            if name in outcome:
                self.current.set_user_attr(name, outcome[name])
        self.study.tell(self.current, outcome["accuracy"])


def import_optuna() -> Any:
    """Optuna, told to log only what is wrong."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise UsageError("tuning needs optuna: pip install 'auscult[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def start_values(space: SearchSpace, every: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Picks those of some settings that lie within the space, each once.

    Args:
        every: settings -> values, which may have more keys than the space.
    """
    found = list[Mapping[str, Any]]()
    for settings in every:
        values = {key: settings[key] for key in space if key in settings}
        if {*values} == {*space} and all(values[key] in space[key] for key in space) and values not in found:
            found.append(values)
    return found
