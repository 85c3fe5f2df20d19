"""`auscult traces` on the command line. Light: what it runs is imported when it is run."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge_sdk.replay.imports.importing import DeviceLine


TARGETS = "columns that are to be predicted, with commas between them: where one has no number, rows are kept"


def add_traces(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Adds `auscult traces` with what can be done to traces."""
    kinds = commands.add_parser("traces", help="import, check and make traces").add_subparsers(
        metavar="what", required=True
    )
    add_import(kinds, parents)
    words = "say what a folder of traces holds and what is probably wrong with it, in a table and on a page"
    check = kinds.add_parser("check", help=words, description=words, parents=parents)
    check.add_argument("directory", type=Path)
    check.add_argument("--label", default="activity", help="name of the label column (activity)")
    check.add_argument("--label-missing", metavar="WORDS", default="", help="words that stand for no label")
    check.add_argument("--target", metavar="NAMES", default="", help=TARGETS)
    check.add_argument("--report", type=Path, metavar="FILE", help="the page (DIRECTORY/check.html)")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(do=do_check)
    words = "generate plausible wrist traces, one CSV for each person"
    synth = kinds.add_parser("synth", help=words, description=words, parents=parents)
    synth.add_argument("directory", type=Path)
    words = "activities: acceleration with what was done (default); heart-rate: pulse and acceleration, with beats per "
    words += (
        "minute; rhythms: electrocardiograms with findings, several at once; falls: acceleration in which only rare "
    )
    words += "falls and tremors are labelled; sleep: nights with movement and heart rate, and the stage of each epoch"
    kinds_there = ("activities", "heart-rate", "rhythms", "falls", "sleep")
    synth.add_argument("--kind", choices=kinds_there, default="activities", help=words)
    synth.add_argument("--devices", type=int, default=12)
    synth.add_argument("--seed", type=int, default=7)
    synth.add_argument("--minutes", type=float, help="for each person, in the mean (13; of sleep 1350, three nights)")
    words = "also write so many days of availability for each: nights on the charger, hours offline"
    synth.add_argument("--days", type=int, default=0, help=words)
    synth.add_argument("--overwrite", action="store_true", help="even if the directory is not empty")
    synth.set_defaults(do=do_synth)
    words = "write the smartwatch recordings of physiotherapy exercises in package seglearn, one CSV for each wrist"
    watch = kinds.add_parser("watch", help=words, description=words, parents=parents)
    watch.add_argument("directory", type=Path)
    watch.add_argument("--source", type=Path, metavar="FILE", help="watch_dataset.npy, if the package is not installed")
    watch.add_argument("--overwrite", action="store_true", help="even if the directory is not empty")
    watch.set_defaults(do=do_watch)


def add_import(kinds: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Adds `auscult traces import`."""
    words = "make traces of recordings: CSV as loggers and spreadsheets write it, also packed by gzip, Parquet, Arrow, "
    words += (
        "EDF, BDF, WFDB, FIT, files of ActiGraph, GENEActiv and Axivity, exports of Apple Health, and folders of an "
    )
    words += "Empatica E4 or in the form of UCI HAR"
    more = f"{words}. What is not said is found by looking, and told. import.toml says what was done."
    command = kinds.add_parser("import", help=words, description=more, parents=parents)
    command.add_argument("source", type=Path, help="a file, or a folder of files or of folders")
    command.add_argument("directory", type=Path, help="new or empty")
    command.add_argument("--time", metavar="NAME", help="the time column (time, timestamp, date, ...)")
    command.add_argument("--label", metavar="NAME", help="the label column (activity, label, class, ...)")
    missing = "words that stand for no label, beside an empty cell and `unlabelled`, with commas between them"
    command.add_argument("--label-missing", metavar="WORDS", default="", help=missing)
    command.add_argument("--channels", metavar="NAMES", default="", help="with commas between them (all of numbers)")
    command.add_argument("--target", metavar="NAMES", default="", help=TARGETS)
    command.add_argument("--by", metavar="NAME", help="the column that tells the devices of one file apart")
    words = "all files of a folder are recordings of one device, named like the folder"
    command.add_argument("--by-folder", action="store_true", help=words)
    words = "pattern of the names of files that are wanted, such as '*_watch.csv' (all)"
    command.add_argument("--only", metavar="PATTERN", default="", help=words)
    words = "pattern of the names of files with labels from when to when (start, end or duration, label), such as "
    words += "'*_stages.csv', of the recordings beside them whose names theirs begin with"
    command.add_argument("--intervals", metavar="PATTERN", default="", help=words)
    words = "where several annotations or intervals hold at once, all count, as af+pvc (the later one counts)"
    command.add_argument("--sets", action="store_true", help=words)
    command.add_argument("--header", metavar="NAMES", default="", help="of the columns, where files have no header")
    words = "rows in a second, where no column has times"
    command.add_argument("--rows-hz", type=float, metavar="HZ", default=0.0, help=words)
    command.add_argument("--unit", help="of times that are numbers: s, ms, us or ns (by their size)")
    command.add_argument("--time-form", metavar="FORM", help="of dates, such as '%%d/%%m/%%Y %%H:%%M:%%S'")
    command.add_argument("--zone", metavar="NAME", help="of dates without an offset, such as Europe/Berlin (UTC)")
    command.add_argument("--delimiter", help="between cells: , ; | tab or space")
    command.add_argument("--decimal", help="sign: . or ,")
    command.add_argument("--rate", type=float, default=0.0, metavar="HZ", help="of all traces (as each was recorded)")
    words = "read with this one of another package (auscult plugins), and only what it takes"
    command.add_argument("--reader", metavar="NAME", default="", help=words)
    command.add_argument("--strict", action="store_true", help="refuse what would be put right, or left out")
    words = "take what is whole of damaged files of ActiGraph, GENEActiv and Axivity, which are refused otherwise"
    command.add_argument("--damaged", action="store_true", help=words)
    command.add_argument("--overwrite", action="store_true", help="even if the directory is not empty")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(do=do_import)


def do_import(options: argparse.Namespace) -> None:
    """Imports, and prints a table."""
    from edge_sdk.data.traces.form import Stated
    from edge_sdk.replay.imports.importing import device_table, import_traces
    from edge_sdk.replay.traces.table import hint_of_targets, notes_of, table_of

    said = Stated(
        label=options.label,
        channels=(*split_words(options.channels), *split_words(options.target)) if options.channels else None,
        time=options.time,
        delimiter={"tab": "\t", "space": " "}.get(options.delimiter, options.delimiter),
        decimal=options.decimal,
        unit=options.unit,
        time_form=options.time_form,
        zone=options.zone,
        by=options.by,
        by_folder=options.by_folder,
        header=split_words(options.header),
        rows_hz=options.rows_hz,
        only=options.only,
        missing=split_words(options.label_missing),
        strict=options.strict,
        damaged=options.damaged,
        targets=split_words(options.target),
        intervals=options.intervals,
        sets=options.sets,
    )

    def progress(line: DeviceLine) -> None:
        if sys.stderr.isatty():
            print(f"{line.name}: {line.samples} samples", file=sys.stderr, flush=True)

    made, left = import_traces(
        options.source,
        options.directory,
        said,
        rate_hz=options.rate,
        reader=options.reader,
        command=shlex.join(["auscult", *options.given]),
        overwrite=options.overwrite,
        progress=progress,
    )
    if options.json:
        print(json.dumps({"devices": [device_table(line) for line in made], "left_out": left}, default=str))
        return
    print(table_of(made))
    notes = [*notes_of(made, left), *([] if options.target else hint_of_targets(made))]
    print("\n".join(["", *notes]) if notes else "")
    print(f"{len(made)} traces in {options.directory}; what was done is in {options.directory / 'import.toml'}")


def do_check(options: argparse.Namespace) -> None:
    """Reads a folder of traces, prints a table and what is probably wrong, and writes the page."""
    from edge_sdk.replay.imports.importing import device_table
    from edge_sdk.replay.traces.check_page import make_check_page
    from edge_sdk.replay.traces.checking import check_traces
    from edge_sdk.replay.traces.table import hint_of_targets, notes_of, table_of

    missing, targets = split_words(options.label_missing), split_words(options.target)
    found = check_traces(options.directory, options.label, missing, targets)
    page = options.report or options.directory / "check.html"
    page.write_text(make_check_page(options.directory.resolve().name, found), encoding="utf-8")
    if options.json:
        devices = [device_table(line) | {"percentiles": finite(found.amplitudes[line.name])} for line in found.lines]
        table = {"devices": devices, "mistakes": found.mistakes, "left_out": found.left}
        print(json.dumps(table, default=str))
        return
    print(table_of(found.lines))
    doubts = [f"probably wrong: {line}" for line in [*found.mistakes, *found.left]]
    for lines in (
        [*notes_of(found.lines, ()), *([] if targets else hint_of_targets(found.lines))],
        doubts or ["nothing that is wrong shows"],
    ):
        print("\n".join(["", *lines]) if lines else "", end="\n" if lines else "")
    print(f"\nreport   {page}")


def finite(amplitudes: Mapping[str, Sequence[float]]) -> dict[str, list[float | None]]:
    """Percentiles of channels as JSON has them; None of one without a number."""
    return {name: [value if isfinite(value) else None for value in own] for name, own in amplitudes.items()}


def split_words(text: str) -> tuple[str, ...]:
    """Words with commas between them."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def do_synth(options: argparse.Namespace) -> None:
    """Generates traces, and prints one line for each."""
    from edge_sdk.replay.traces.falls import write_fall_traces
    from edge_sdk.replay.traces.heart import write_heart_traces
    from edge_sdk.replay.traces.rhythms import write_rhythm_traces
    from edge_sdk.replay.traces.sleep import write_sleep_traces
    from edge_sdk.replay.traces.synth import write_traces

    others = {
        "heart-rate": write_heart_traces,
        "rhythms": write_rhythm_traces,
        "falls": write_fall_traces,
        "sleep": write_sleep_traces,
    }
    write: Callable[..., Any] = others.get(options.kind, write_traces)
    length = {} if options.minutes is None else {"minutes": options.minutes}
    sizes = {"devices": options.devices, "seed": options.seed, **length}
    made = write(options.directory, **sizes, overwrite=options.overwrite)
    if options.days:
        from edge_sdk.replay.traces.nights import write_nights

        write_nights(options.directory, tuple(one.device for one in made), options.days, options.seed)
    print_traces(made)
    print(f"{len(made)} generated traces in {options.directory}")


def do_watch(options: argparse.Namespace) -> None:
    """Writes the smartwatch recordings, and prints one line for each wrist."""
    from edge_sdk.replay.traces.smartwatch import write_watch_traces

    made = write_watch_traces(options.directory, options.source, overwrite=options.overwrite)
    print_traces(made)
    print(f"{len(made)} recorded traces in {options.directory}")


def print_traces(made: Sequence[Any]) -> None:
    """One line for each trace."""
    for one in made:
        print(f"{one.device}  {one.seconds / 60:5.1f} min  {one.samples:>6} samples  {len(one.activities)} activities")
