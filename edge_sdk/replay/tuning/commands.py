"""`auscult tune` on the command line. Light: what it runs is imported when it is run."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_sdk.replay.planning.options import add_run_options, complete_settings, read_run_options

if TYPE_CHECKING:
    from edge_sdk.replay.tuning.study import Trial
    from edge_sdk.replay.tuning.tune import Found, Search

INTERRUPTED = 130
"""Exit code of a search that was ended before its budget was used up, as shells have it for Ctrl-C."""


def add_tune(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Adds `auscult tune`."""
    words = "choose settings of methods on validation samples, by runs in memory; each method gets as many trials"
    command = commands.add_parser("tune", help=words, description=words, parents=parents)
    command.add_argument("--method", action="append", help="may be repeated: several methods are tuned alike (fedslr)")
    command.add_argument("--budget", type=int, default=20, help="trials of each method (20)")
    words = "settings file that is written; of several methods: a folder for METHOD.toml; trials are noted beside it"
    command.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=words)
    command.add_argument("--json", action="store_true", help="print all trials as one JSON object")
    add_run_options(command)
    command.set_defaults(do=do_tune)


def do_tune(options: argparse.Namespace) -> int:
    """Tunes, with a line for each trial, and prints what was found."""
    from edge_sdk.replay.tuning.alone import look_alone, verdict_line
    from edge_sdk.replay.tuning.tune import tune

    searches = read_searches(options)
    show = sys.stderr if options.json else sys.stdout

    def say(text: str) -> None:
        print(text, file=show, flush=True)

    say(f"{'method':<14} {'trial':>7} {'validation':>10} {'best':>7} {'seconds':>8}  settings that were tried")
    budgets = {search.method: search.budget for search in searches}
    found = tune(searches, lambda method, trial, best: say(trial_line(method, budgets[method], trial, best)), say)
    interrupted = any(len(one.trials) < one.search.budget for one in found)
    seen = {} if interrupted else look_alone(searches[0], say)
    said = {one.search.method: verdict_line(one, seen) for one in found}
    if options.json:
        print(json.dumps({name: {**one.as_json(), "verdict": said[name]} for name, one in named(found).items()}))
    else:
        lines = [f"{name}: {text}" for name, text in said.items() if text]
        print("\n" + "\n".join([*lines, *map(summary_line, found)]))
    return INTERRUPTED if interrupted else 0


def named(found: Sequence[Found]) -> dict[str, Found]:
    """What was found, by method."""
    return {one.search.method: one for one in found}


def read_searches(options: argparse.Namespace) -> list[Search]:
    """The searches that a command line asks for, one for each method.

    Raises:
        UsageError: a method is named twice, or several are to go into one file.
    """
    from edge_sdk.errors import UsageError

    methods = options.method or [None]
    if twice := [m for m in methods if methods.count(m) > 1]:
        raise UsageError(f"--method {twice[0]}: is named twice")
    if len(methods) > 1 and options.output.suffix == ".toml":
        raise UsageError(f"--output {options.output}: {len(methods)} methods have a file each; name a folder")
    return [read_search(options, method, len(methods) > 1) for method in methods]


def read_search(options: argparse.Namespace, method: str | None, several: bool) -> Search:
    from edge_sdk.contract.search import flattened
    from edge_sdk.nodes.configuration.assembly import settings_of
    from edge_sdk.nodes.configuration.settings import assigned
    from edge_sdk.replay.planning.plan import Replay
    from edge_sdk.replay.tuning.tune import Search

    completed = complete_settings(options, method)
    file = options.output / f"{completed.method}.toml" if several else options.output
    job = Replay(**read_run_options(options, completed), out=Path("nowhere"))
    settings_of(job.as_run(()))  # says now what is wrong with the settings
    fixed = tuple(flattened(assigned(options.set)))
    return Search(job=job, fixed=fixed, budget=options.budget, file=file, replay=replay_command(options, file))


IN_FILE = (
    *("--set", "--settings", "--augment", "--robust"),
    *("--bits", "--secret", "--uploads", "--privacy", "--epsilon", "--clip"),
)
"""Options of a run whose values tuning writes into its file."""


def replay_command(options: argparse.Namespace, file: Path) -> str:
    """The command that replays the settings on the same data: the given one, without what only tuning knows.

    Settings, settling, augmentation, robust sums, integers and rounds are in the file.
    """
    left_out, rest = ("--method", "--budget", "-o", "--output", "--rounds", *IN_FILE), []
    words = iter(options.given[options.given.index("tune") + 1 :])
    for word in words:
        name, sign, _ = word.partition("=")
        if name in left_out:
            if not sign:
                next(words, None)
        elif word != "--json":
            rest.append(word)
    return shlex.join(["auscult", "replay", *rest, "--settings", str(file)])


# For people -----------------------------------------------------------------------------------------------------
def trial_line(method: str, budget: int, trial: Trial, best: Trial | None) -> str:
    """A line about a trial that is over."""
    reached = "failed" if trial.accuracy is None else f"{trial.accuracy:.1%}"
    highest = "-" if best is None or best.accuracy is None else f"{best.accuracy:.1%}"
    told = trial.error if trial.accuracy is None else describe_values(trial.values)
    return f"{method:<14} {f'{trial.number}/{budget}':>7} {reached:>10} {highest:>7} {trial.seconds:>8.1f}  {told}"


def describe_values(values: Mapping[str, Any]) -> str:
    """Settings in short: `eta_l=0.05 batch=20`."""
    return " ".join(f"{key}={value:.3g}" if type(value) is float else f"{key}={value}" for key, value in values.items())


def summary_line(found: Found) -> str:
    """What a search has come to, in one line."""
    name, failed = found.search.method, sum(trial.accuracy is None for trial in found.trials)
    done = f"{len(found.trials)} trials" + (f", {failed} failed" if failed else "")
    if found.best is None or found.best.accuracy is None:
        return f"{name}: nothing was found ({done})"
    return f"{name}: {found.best.accuracy:.1%} on validation ({done})  ->  {found.search.file}"
