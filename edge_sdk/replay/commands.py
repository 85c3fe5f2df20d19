"""`auscult replay` and `auscult compare` on the command line. Light: what they run is imported when it is run."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from edge_sdk.errors import UsageError
from edge_sdk.replay.planning.options import (
    add_board_options,
    add_run_options,
    add_value_options,
    complete_settings,
    read_run_options,
)

if TYPE_CHECKING:
    from edge_sdk.replay.planning.plan import Replay


# Replay ---------------------------------------------------------------------------------------------------------
def add_replay(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Adds `auscult replay`."""
    words = "replay recorded traces, or a data set, through real devices, hospitals, a broker and the aggregator"
    command = commands.add_parser("replay", help=words, description=words, parents=parents)
    command.add_argument("--method", help="(fedslr); a wrong name is answered with those there are")
    command.add_argument(
        "--seeds", type=int, default=1, help="how many, from --seed on; mean and deviation over them (1)"
    )
    command.add_argument("--broker", default="embedded", help="embedded (default), or mqtt://host[:port]")
    command.add_argument("--insecure", action="store_true", help="plain text may leave this machine, to that broker")
    command.add_argument("--out", type=Path, help="directory for everything that is written (default: runs/<name>)")
    again = "go on with the replay that was interrupted in --out; all else as it was begun"
    command.add_argument("--resume", action="store_true", help=again)
    private = "TOML, what `auscult pretrain` has written: a pretrained model that the aggregator keeps to itself"
    command.add_argument("--private", type=Path, metavar="FILE", help=private)
    command.add_argument("--evaluate-every", type=int, default=0, help="rounds; 0: only at the end")
    command.add_argument("--no-local-only", action="store_true", help="do not train the local-only baseline")
    command.add_argument("--confusion", action="store_true", help="also show who was taken for what on each device")
    command.add_argument("--json", action="store_true", help="print the result as one JSON object")
    words = "also write TensorBoard event files, into a folder there that is named as --out"
    command.add_argument("--tensorboard", type=Path, metavar="DIR", help=words)
    command.add_argument("--mlflow", metavar="URI", help="also write a run for MLflow, into a folder or to a server")
    words = "replay recordings of physiotherapy patients (of the package seglearn; without it, generated ones)"
    command.add_argument("--demo", action="store_true", help=f"{words}, in place of data of your own")
    add_board_options(command)
    add_run_options(command, needs_data=False)
    add_value_options(command)
    command.set_defaults(do=do_replay, parser=command)


def do_replay(options: argparse.Namespace) -> None:
    """Runs a replay; where a person interrupts one that can go on, says how it does."""
    options = choose_data(options)
    job = read_job(options)
    try:
        run_replay(options, job)
    except KeyboardInterrupt:
        from edge_sdk.replay.planning.resume import was_begun

        if was_begun(job.out):
            print(f"to go on, give the same command with --resume --out {job.out}", file=sys.stderr)
        raise


def choose_data(options: argparse.Namespace) -> argparse.Namespace:
    """The options as they are, or with the traces of the demo and what goes with them; what was typed counts more."""
    from edge_sdk.errors import UsageError

    if options.demo == (options.data is not None):
        raise UsageError("replay: name a folder of traces or a data set, or say --demo for recordings to look at")
    if not options.demo:
        return options
    from edge_sdk.replay.traces.demo import write_demo

    show = sys.stderr if options.json else sys.stdout
    words = write_demo(Path("runs"), lambda text: print(text, file=show, flush=True))
    typed = options.given[options.given.index("replay") + 1 :]
    found: argparse.Namespace = options.parser.parse_args([*words, *typed])
    found.given = options.given
    return found


def run_replay(options: argparse.Namespace, job: Replay) -> None:
    """Runs a replay, writes its files and prints its tables."""
    from edge_sdk.replay.job import replay
    from edge_sdk.replay.reports import mlflow_runs, tensorboard

    if options.days is not None:
        return do_days(options, job)
    if options.tensorboard is not None:
        tensorboard.check_installed()
    if options.mlflow is not None:
        mlflow_runs.check_installed()
    show = sys.stderr if options.json else sys.stdout
    if options.seeds != 1:
        found = do_seeds(job, options.seeds, options.json, show)
        export(options, job, {f"seed-{run['seed']}": run for run in found["runs"]})
        return
    result = replay(job, RoundPrinter(show), lambda text: print(text, file=show, flush=True) if text else None)
    write_result(job, result)
    export(options, job, {"": result})
    if options.json:
        print(json.dumps(result))
    else:
        print_result(job, result)


def do_days(options: argparse.Namespace, job: Replay) -> None:
    """Plays days in virtual time, and prints what they cost."""
    from edge_sdk.nodes.configuration.settings import read_toml
    from edge_sdk.nodes.policy.budget import BudgetFile
    from edge_sdk.replay.days import Days, days_lines, play_days

    show = sys.stderr if options.json else sys.stdout
    given: dict[str, Any] = {} if options.budget is None else {"budget": read_toml(options.budget, BudgetFile).budget}
    what = Days(job=job, days=options.days, deadline=options.deadline, **given)
    result = play_days(what, lambda text: print(text, file=show, flush=True) if text else None)
    print(json.dumps(result) if options.json else f"\n{days_lines(result)}\nresult   {job.out / 'result.json'}")


def export(options: argparse.Namespace, job: Replay, results: Mapping[str, Any]) -> None:
    """Writes event files and runs of MLflow, if they are asked for. `results`: by the names of their folders."""
    from edge_sdk.replay.reports import mlflow_runs, tensorboard
    from edge_sdk.replay.reports.scalars import scalars

    for name, result in results.items():
        if options.tensorboard is not None:
            tensorboard.write_events(result, options.tensorboard / job.out.name / name)
        if options.mlflow is not None:
            settings = {key: result[key] for key in ("method", "rounds", "seed") if key in result}
            title = "-".join(filter(None, (job.out.name, name)))
            mlflow_runs.write_run(options.mlflow, title, settings, scalars(result))


def do_seeds(job: Replay, count: int, as_json: bool, show: TextIO) -> Mapping[str, Any]:
    """Runs a replay with several seeds, writes their files and one about all of them, and prints a table."""
    from edge_sdk.nodes.daemon.counter_files import write_json
    from edge_sdk.replay.reports import seeds_page, tables, terminal
    from edge_sdk.replay.reports.choices import choice_lines
    from edge_sdk.replay.reports.verdict import titles_of
    from edge_sdk.replay.seeds import replay_seeds

    began = time.time()

    def progress(seed: int, line: Mapping[str, Any]) -> None:
        if "sums" in line:
            print(f"{seed:>6} {terminal.round_line(line, began)}", file=show, flush=True)

    print(f"{'seed':>6} {terminal.HEADER}", file=show)
    found = replay_seeds(job, count, progress, lambda text: print(text, file=show, flush=True), write_result)
    write_json(job.out / "result.json", found)
    (job.out / "report.html").write_text(seeds_page.make_seeds_page(found), encoding="utf-8")
    if as_json:
        print(json.dumps(found))
        return found
    own = terminal.tables_of(found)
    print(f"\n{terminal.verdict_of(found)}")
    over = "means over seeds" if "anomalies" in found else "mean ± standard deviation over seeds"
    print(f"\nseeds {', '.join(map(str, found['seeds']))}: {over}\n")
    shares = tables.statistics_table(found["statistics"], titles_of(found))
    print(f"{own.model_table(found) if own else shares}\n")
    for line in choice_lines(found["runs"]):
        print(f"settled  {line}")
    print(f"result   {job.out / 'result.json'}\nreport   {job.out / 'report.html'}")
    return found


def read_job(options: argparse.Namespace) -> Replay:
    """The replay that a command line asks for."""
    from edge_sdk.hardware.boards.emulation import parse_boards
    from edge_sdk.nodes.configuration.private_table import Private
    from edge_sdk.nodes.configuration.settings import read_toml
    from edge_sdk.replay.nodes.emulated import read_link
    from edge_sdk.replay.planning.plan import Replay

    completed = complete_settings(options, options.method)
    return Replay(
        **read_run_options(options, completed),
        out=options.out or Path("runs") / f"{completed.method}-{time.strftime('%Y%m%d-%H%M%S')}",
        broker=options.broker,
        insecure=options.insecure,
        evaluate_every=options.evaluate_every,
        local_only=not (options.no_local_only or options.board),  # what is trained alone is no board's work
        confusion=options.confusion,
        resume=options.resume,
        private=None if options.private is None else read_toml(options.private, Private),
        boards=parse_boards(options.board),
        link=read_link(options.link),
    )


class RoundPrinter:
    """Prints a line for each line of the aggregator's metrics that has scores."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.began, self.has_header = file, time.time(), False

    def __call__(self, line: Mapping[str, Any]) -> None:
        from edge_sdk.replay.reports import choices, terminal

        if line.get("kind") == "self-labels":
            print(f"       {choices.describe_labels(line)}", file=self.file, flush=True)
        if "sums" not in line:
            return
        self.began = min(self.began, line["time"])  # of a replay that goes on, the first lines are from before
        if not self.has_header:
            print(terminal.HEADER, file=self.file)
            self.has_header = True
        print(terminal.round_line(line, self.began), file=self.file, flush=True)


def write_result(job: Replay, result: Mapping[str, Any]) -> None:
    """Writes result.json and report.html into DIR."""
    from edge_sdk.nodes.daemon.counter_files import write_json
    from edge_sdk.replay.reports import page

    write_json(job.out / "result.json", result)
    (job.out / "report.html").write_text(page.make_page(result), encoding="utf-8")


def print_result(job: Replay, result: Mapping[str, Any]) -> None:
    """Prints the tables."""
    from edge_sdk.replay.labels import tables as labels
    from edge_sdk.replay.reports import tables, terminal
    from edge_sdk.replay.reports.boards import board_lines
    from edge_sdk.replay.reports.verdict import titles_of

    own = terminal.tables_of(result)
    print(f"\n{terminal.verdict_of(result)}\n\n{(own or terminal).device_table(result)}\n")
    if own:
        print(f"{own.model_table(result)}\n")
    if result["statistics"]:
        print(f"{tables.statistics_table(result['statistics'], titles_of(result))}\n")
    if "labels" in result:
        print(f"{labels.label_table(result)}\n")
    if job.confusion:
        print(f"{tables.confusion_tables(result['devices'], result['classes'])}\n")
    print(terminal.summary(result))
    if "boards" in result:
        print(f"\n{board_lines(result['boards'])}\n")
    if result["data"]["generated"]:
        print("data     generated, not recorded: the figures tell that the system works, no more")
    print(f"report   {job.out / 'report.html'}")


# Comparison -----------------------------------------------------------------------------------------------------
def add_compare(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Adds `auscult compare`."""
    words = "compare finished replays: metrics of each model, and paired differences to the first run"
    command = commands.add_parser("compare", help=words, description=words, parents=parents)
    command.add_argument("run", nargs="+", type=Path, help="directory of a replay, or its result.json")
    several = "only devices that have two classes or more in training"
    command.add_argument("--two-classes", action="store_true", help=several)
    command.add_argument("--json", action="store_true", help="print the comparison as one JSON object")
    page = "also write a page with the curves and devices of all these runs"
    command.add_argument("--report", type=Path, metavar="FILE", help=page)
    command.set_defaults(do=do_compare)


def do_compare(options: argparse.Namespace) -> None:
    """Reads the runs, and prints how they compare."""
    from edge_sdk.replay.anomalies import compared
    from edge_sdk.replay.comparison import compare_runs, comparison_table, read_runs
    from edge_sdk.replay.reports.compare_page import make_compare_page

    group = "two_classes" if options.two_classes else "all"
    runs = read_runs(options.run)
    results = {run.name: run.results[0] for run in runs}
    if compared.check_comparable(results):
        if options.report is not None or options.two_classes:
            raise UsageError("compare: --report and --two-classes are for runs of classes or labels")
        anomalies = compared.compare_anomalies(results)
        print(json.dumps(anomalies) if options.json else compared.comparison_table(anomalies))
        return
    found = compare_runs(runs, group)
    print(json.dumps(found) if options.json else comparison_table(found))
    if options.report is not None:
        options.report.write_text(make_compare_page(runs, group), encoding="utf-8")
        print(f"report   {options.report}", file=sys.stderr if options.json else sys.stdout)
