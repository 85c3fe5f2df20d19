"""`auscult simulate` on the command line. Light: what it runs is imported when it is run."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from edge_sdk.replay.planning.options import add_run_options, add_value_options, complete_settings, read_run_options

if TYPE_CHECKING:
    from edge_sdk.simulation.runs.plan import Simulation

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Libraries must add up with one thread, as those of a replay do: else sums differ in their last bits."""


def add_simulate(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Adds `auscult simulate`."""
    words = "simulate a run of up to a million clients on this machine, or on several (torchrun, Ray)"
    command = commands.add_parser("simulate", help=words, description=words, parents=parents)
    command.add_argument("--method", help="(fedslr); a wrong name is answered with those there are")
    many = "how many; each draws its samples (--samples, 50) from the data set, or bootstraps its windows from a "
    many += "recorded device of the folder. Default: the devices of the replay"
    command.add_argument("--clients", type=int, default=0, metavar="N", help=many)
    asked = "clients that are asked in a round (as the method's settings have it)"
    command.add_argument("--cohort", type=int, default=0, metavar="K", help=asked)
    command.add_argument("--judges", type=int, metavar="J", help="most clients that judge models (all; of many 1000)")
    shift = "deviation of each client's own offset and scale of its features (0)"
    command.add_argument("--shift", type=float, default=0.0, metavar="S", help=shift)
    behave = "how clients behave on the virtual clock: work, spread, jitter, slow, slower, up, down, drop, online, "
    behave += "arrive or trace; may be repeated"
    command.add_argument("--behave", action="append", default=[], metavar="KEY=VALUE", help=behave)
    late = "seconds of that clock after which a hospital goes on without answers that have not come (none)"
    command.add_argument("--deadline", type=float, metavar="SECONDS", help=late)
    command.add_argument("--quorum", type=int, default=0, help="answers without which it does not (0)")
    target = "accuracies (of sets of labels: macro-F1) of which it is told when they are reached, with commas between "
    target += "them (0.5,0.6,...,0.95); columns that are to be predicted are named with --predict"
    command.add_argument("--target", dest="reached", metavar="SHARES", help=target)
    sweep = "play a run for each of some values, with commas between them: a setting, deadline, quorum, cohort, shift, "
    sweep += "seed, or behave.KEY; may be repeated, for all combinations"
    command.add_argument("--sweep", action="append", default=[], metavar="KEY=VALUES", help=sweep)
    command.add_argument("--out", type=Path, help="directory for everything that is written (default: runs/<name>)")
    again = "go on with the simulation that was interrupted in --out; all else as it was begun"
    command.add_argument("--resume", action="store_true", help=again)
    save = "between checkpoints, at most (30): there is one after each round, where these take a twentieth of the time"
    command.add_argument("--save-every", type=float, default=30.0, metavar="SECONDS", help=save)
    calls = "calls in which clients train: of onnxruntime for each epoch, where that gives the same bits, or for each "
    calls += "step; or for many clients, on a GPU where there is one: rounded otherwise (epoch)"
    command.add_argument("--calls", choices=("epoch", "step", "cohort"), default="epoch", help=calls)
    keep = "write the models of each client that judges them into DIR/models, as a device keeps them"
    command.add_argument("--keep-models", action="store_true", help=keep)
    svt = "singular value thresholding: full decompositions, or fast where that is shown to be as exact (full)"
    command.add_argument("--svt", choices=("full", "fast"), default="full", help=svt)
    ray = "start N ranks with Ray, on this machine or on the cluster at RAY_ADDRESS, in place of torchrun; needs --out"
    command.add_argument("--ray", type=int, metavar="N", help=ray)
    command.add_argument("--evaluate-every", type=int, default=0, help="rounds; 0: only at the end")
    command.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_run_options(command)
    add_value_options(command, "--predict")
    command.set_defaults(do=do_simulate, hospitals=None)


def do_simulate(options: argparse.Namespace) -> None:
    """Runs a simulation, or a sweep of them; rank 0 writes files and prints tables."""
    restart_with_one_thread(options)
    check_place(options)
    if options.ray is None:
        play_rank(options)
    else:
        from edge_sdk.simulation.processes.on_ray import play_on_ray

        play_on_ray(play_rank, options, options.ray, options.calls == "cohort")


def play_rank(options: argparse.Namespace) -> None:
    """Runs what this process has of a simulation: all of it, or a rank."""
    from edge_sdk.simulation.processes.ranks import find_ranks
    from edge_sdk.simulation.runs.sweep import read_sweep, sweep_runs

    ranks = find_ranks()
    show = sys.stderr if options.json else sys.stdout
    printer = ClockPrinter(show if ranks.number == 0 else None)
    job = read_job(options, ranks.number)
    runs = sweep_runs(job, read_sweep(options.sweep))
    found = []
    for name, one in runs.items():
        if name:
            printer.say(f"\n{name}")
        found.append((one, play_one(one, ranks, share_kernels(options.svt, ranks), printer)))
    ranks.close()
    if ranks.number == 0:
        print_results(found, options.json)


def share_kernels(svt: str, ranks: Any) -> Any:
    """The aggregator's kernels, whose heavy steps the ranks share where that leaves every bit as it is."""
    from edge_sdk.replay.tuning.worker import find_kernels

    find_kernels()  # or a sentence about what is not installed
    made, shared = (importlib.import_module(f"aggregator.{name}") for name in ("kernels", "shared"))
    return lambda env: shared.shared(made.kernels_for(env, thresholding=svt), ranks, exactly=True)


def check_place(options: argparse.Namespace) -> None:
    """Raises UsageError if several ranks would name a directory each by its own clock, and none find it again."""
    from edge_sdk.errors import UsageError

    started = int(os.environ.get("WORLD_SIZE", "1"))
    if options.ray is not None and started > 1:
        raise UsageError(f"--ray {options.ray}: torchrun has started {started} ranks already; one of the two does it")
    if options.ray is not None and options.ray < 1:
        raise UsageError(f"--ray {options.ray}: ranks, 1 or more")
    if max(started, options.ray or 1) > 1 and options.out is None:
        raise UsageError("--out: name a directory, which all ranks know, and which a restart finds again")


def play_one(job: Simulation, ranks: Any, kernels: Any, printer: ClockPrinter) -> dict[str, Any]:
    """Plays one simulation, and writes its result."""
    from edge_sdk.nodes.daemon.counter_files import write_json
    from edge_sdk.replay.reports import page
    from edge_sdk.simulation.runs.job import simulate

    printer.begin()
    result = simulate(job, ranks, kernels, printer, printer.say)
    if ranks.number == 0:
        write_json(job.replay.out / "result.json", result)
        (job.replay.out / "report.html").write_text(page.make_page(result), encoding="utf-8")
    return result


def restart_with_one_thread(options: argparse.Namespace) -> None:
    """Starts this program again with one thread for each library, if it was started by its command and has more."""
    wanted = {**os.environ, **ONE_THREAD}
    if options.given == sys.argv[1:] and wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, "-m", "edge_sdk.cli", *sys.argv[1:]], wanted)


def read_job(options: argparse.Namespace, rank: int = 0) -> Simulation:
    """The simulation that a command line asks for."""
    from math import inf

    from edge_sdk.nodes.configuration.settings import assigned
    from edge_sdk.replay.planning.plan import Replay
    from edge_sdk.simulation.clients.behaviour import behaviour_of
    from edge_sdk.simulation.runs.plan import TARGETS, Simulation, default_hospitals

    completed = complete_settings(options, options.method)
    if options.hospitals is None:
        options.hospitals = default_hospitals(options.clients)
    began_before = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0  # and this is a restart
    replay = Replay(
        **read_run_options(options, completed),
        out=options.out or Path("runs") / f"simulate-{completed.method}-{time.strftime('%Y%m%d-%H%M%S')}",
        evaluate_every=options.evaluate_every,
        local_only=False,
        resume=options.resume or began_before or rank > 0,
    )
    return Simulation(
        replay=replay,
        clients=options.clients,
        cohort=options.cohort,
        judges=options.judges,
        shift=options.shift,
        behaviour=behaviour_of(assigned(options.behave), "--behave"),
        deadline=inf if options.deadline is None else options.deadline,
        quorum=options.quorum,
        targets=TARGETS if options.reached is None else read_shares(options.reached),
        save_every=options.save_every,
        calls=options.calls,
        keep_models=options.keep_models,
    )


def read_shares(text: str) -> tuple[float, ...]:
    """Numbers with commas between them.

    Raises:
        UsageError: one is none, such as the name of a column.
    """
    from edge_sdk.errors import UsageError

    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        expected = "shares between 0 and 1, with commas between them; columns to be predicted are named by --predict"
        raise UsageError(f"--target {text}: expected {expected}") from error


class ClockPrinter:
    """Prints a line for each line of the aggregator's metrics that has scores. `file`: None: silently."""

    def __init__(self, file: TextIO | None) -> None:
        self.file = file
        self.begin()

    def begin(self) -> None:
        """Makes ready for the next run."""
        self.began, self.has_header = time.time(), False

    def say(self, text: str) -> None:
        if self.file is not None and text:
            print(text, file=self.file, flush=True)

    def __call__(self, line: Mapping[str, Any]) -> None:
        from edge_sdk.replay.reports import terminal

        if "sums" not in line:
            return
        self.began = min(self.began, line["time"])
        if not self.has_header:
            self.say(f"{terminal.HEADER} {'clock h':>9}")
            self.has_header = True
        self.say(f"{terminal.round_line(line, self.began)} {line['clock'] / 3600:>9.2f}")


def print_results(found: Sequence[tuple[Simulation, Mapping[str, Any]]], as_json: bool) -> None:
    """Prints what a simulation has come to, or a comparison of several."""
    from edge_sdk.replay.comparison import compare_runs, comparison_table, read_run
    from edge_sdk.replay.labels import tables as labels
    from edge_sdk.replay.reports import simulated, tables, terminal
    from edge_sdk.replay.reports.verdict import titles_of

    results = [result for _, result in found]
    if as_json:
        print(json.dumps(results[0] if len(results) == 1 else {"runs": results}))
    elif len(found) > 1:
        print(f"\n{comparison_table(compare_runs([read_run(job.replay.out) for job, _ in found]))}")
    else:
        job, result = found[0]
        own = terminal.tables_of(result)
        print(f"\n{terminal.verdict_of(result)}")
        if len(result["devices"]) <= terminal.MOST_DEVICES:
            print(f"\n{(own or terminal).device_table(result)}")
        if own:
            print(f"\n{own.model_table(result)}")
        if result["statistics"]:
            print(f"\n{tables.statistics_table(result['statistics'], titles_of(result))}")
        if "labels" in result:
            print(f"\n{labels.label_table(result)}")
        print(f"\n{simulated.reached_table(result)}\n{terminal.summary(result)}")
        print(f"report   {job.replay.out / 'report.html'}")
