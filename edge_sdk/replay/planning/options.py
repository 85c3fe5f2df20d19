"""Options that say what is run, on which data and with which settings: of `auscult replay` and `auscult tune`."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge_sdk.nodes.configuration.presets import Completed

TRACE_OPTIONS = (
    *("held_out", "validation", "labelled", "ask", "ask_random", "label", "window", "stride", "gap"),
    *("rate", "channels", "label_missing", "strict"),
)
VALUE_OPTIONS = ("target", "unit", "range", "labels", "separator", "task", "abnormal", "quantile", "horizon", "steps")
DATA_OPTIONS = (*TRACE_OPTIONS, "devices", "deal", "samples", "judge", "tests", "public", *VALUE_OPTIONS)


def add_run_options(command: argparse.ArgumentParser, *, needs_data: bool = True) -> None:
    """Adds the options of a run but its method, and those of the data."""
    words = "folder with a trace (CSV) or samples (NPZ) of each device, or a data set, NAME[:PATH]"
    command.add_argument("data", nargs=None if needs_data else "?", help=words)
    command.add_argument("--hospitals", type=int, default=3, help="how many (3)")
    command.add_argument("--rounds", type=int, help="(30)")
    command.add_argument("--seed", type=int, default=0, help="of all that is drawn (0)")
    words = "where settings come from that are not stated: recommended (default), paper, stated (none), or a file"
    command.add_argument("--settings", default="recommended", metavar="FILE", help=words)
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the method")
    words = "the method by itself: no network, phase or change of windows that is recommended for the data"
    command.add_argument("--plain", action="store_true", help=words)
    words = "after the last round every device settles on the final model; may be repeated with settings of that"
    command.add_argument("--settle", action="append", nargs="?", const="", metavar="KEY=VALUE", help=words)
    words = "change windows at random while devices train: rotation (rad), scale, noise, shift"
    command.add_argument("--augment", action="append", default=[], metavar="KEY=VALUE", help=words)
    words = "a rule in place of plain sums: clip, trimmed-mean, median or geometric-median; or a setting of that"
    command.add_argument("--robust", action="append", default=[], metavar="RULE", help=words)
    words = "bits of each number of uploads and of models' changes, 2 to 16; without it numbers are floats of 32 bits"
    command.add_argument("--bits", type=int, help=words)
    words = "hospitals cannot read uploads: they are masked, and only the aggregator takes masks off a sum; with --bits"
    command.add_argument("--secret", action="store_true", help=words)
    words = "a setting of these integers: bits, down_bits, rotate, feedback, unopened, secret, cohort or hospitals"
    command.add_argument("--uploads", action="append", default=[], metavar="KEY=VALUE", help=words)
    words = "differential privacy of the whole run: each device's upload is clipped and carries noise; needs --clip"
    command.add_argument("--epsilon", type=float, help=words)
    command.add_argument("--clip", type=float, help="length that an upload may have in a run with --epsilon")
    words = "a setting of that: clip, epsilon, delta, noise, cohort or scores"
    command.add_argument("--privacy", action="append", default=[], metavar="KEY=VALUE", help=words)
    words = "devices that take no part in training and join when the run is over: names with commas between them"
    command.add_argument("--newcomers", metavar="NAMES", help=words)
    words = "devices whose strongest neighbour is computed, at most; drawn where there are more (40)"
    command.add_argument("--neighbours", type=int, metavar="N", help=words)
    words = "leave it out: what a device reaches alone with its best model, and all data in one place"
    command.add_argument("--no-neighbours", action="store_const", const=0, dest="neighbours", help=words)
    model = (
        "compiled model, or a name of the zoo (models/) that is compiled for these data; default: the one that fits; "
    )
    model += "may be repeated where devices may have different ones"
    command.add_argument("--bundle", type=Path, action="append", default=[], help=model)
    add_data_options(command)


def add_value_options(command: argparse.ArgumentParser, *names: str) -> None:
    """Adds the options of data of which something else than one class is to be predicted.

    Args:
        names: of the option of columns; none: --predict and --target.
    """
    group = command.add_argument_group("values, sets of labels or classes of steps in place of classes")
    words = "columns of numbers that are to be predicted, as means over each window; with commas between them"
    group.add_argument(*(names or ("--predict", "--target")), dest="target", metavar="NAMES", help=words)
    group.add_argument("--unit", metavar="UNITS", help="of each of them, such as bpm, or one for all (the bundle's)")
    words = "between which they are expected, for a network that is compiled here; once for each (as in the traces)"
    group.add_argument("--range", action="append", metavar="LOW,HIGH", help=words)
    words = "labels of which each window has a set (af+pvc, or none), with commas between them, or `all` in the traces "
    group.add_argument("--labels", metavar="NAMES", help=words + "(those of a bundle that predicts labels)")
    words = "of a window, with --task steps: each has a class of its own, one of --labels or of all in the traces "
    words += "(an eighth of the window's samples, or the bundle's)"
    group.add_argument("--steps", type=int, metavar="STEPS", help=words)
    group.add_argument("--separator", metavar="SIGN", help="between the labels of a set in the label column (+)")
    group = command.add_argument_group("windows themselves, whose error is an anomaly score; no labels are needed")
    words = "every window is reconstructed, labelled or not (default where a bundle is for that)"
    words += "; forecast: its end is, from what comes before; steps: its steps have classes, which need labels; or a "
    words += "task that another package brings along, in place of classes: NAME or NAME:KEY=VALUE;KEY=VALUE"
    group.add_argument("--task", metavar="TASK", help=f"reconstruction: {words}")
    words = "values at the end of a window that are forecast, of each channel (a quarter of it, or the bundle's)"
    group.add_argument("--horizon", type=int, metavar="VALUES", help=words)
    words = (
        "labels of what is abnormal, with commas between them: no model is trained on windows that have a moment of "
    )
    group.add_argument("--abnormal", metavar="NAMES", help=words + "these, and all are judged by them (none)")
    words = "of the errors on a device's own validation windows, above which a window is an alarm (0.99)"
    group.add_argument("--quantile", type=float, metavar="SHARE", help=words)


def add_board_options(command: argparse.ArgumentParser) -> None:
    """Adds the options of emulated boards and their link."""
    words = "boards that the devices are, in turns: KEY[=SHARE],... of `auscult board`; SHARE of this machine's core"
    command.add_argument("--board", default="", metavar="KEYS", help=words)
    words = "the devices' link: rate (bytes/s), latency, jitter (s), loss (share), cut (bytes); may be repeated"
    command.add_argument("--link", action="append", default=[], metavar="KEY=VALUE", help=words)
    words = "play so many days in virtual time, in one process; devices are online as NAME.availability.csv says"
    command.add_argument("--days", type=float, help=words)
    words = "TOML file with a table [budget]: when devices may train, with --days"
    command.add_argument("--budget", type=Path, metavar="FILE", help=words)
    words = "of hospitals, with --days: seconds, auto or none (none)"
    command.add_argument("--deadline", type=read_deadline, default="none", help=words)


def read_deadline(text: str) -> float | str:
    """A deadline as a number, where it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def add_data_options(command: argparse.ArgumentParser) -> None:
    """Adds the options of the data. Those not given are left to `traces.Cutting` or `datasets.Dealing` in cohorts/."""
    command.add_argument("--held-out", type=float, help="share kept for judging, once, at the end (0.2)")
    chosen = "share on which choices are made and rounds are judged; 0: rounds are judged on what is held out (0.2)"
    command.add_argument("--validation", type=float, help=chosen)
    known = "inputs that all devices know, of nobody's own (1000, or 256 windows of traces, for methods that need some)"
    command.add_argument("--public", type=int, help=known)
    traces = command.add_argument_group("a folder of traces")
    traces.add_argument("--labelled", type=float, help="seconds of each class that have labels (0: all)")
    asked = "questions that an oracle answers to each device before training begins: stretches whose label would help"
    traces.add_argument("--ask", type=int, metavar="N", help=asked)
    traces.add_argument("--ask-random", type=int, metavar="N", help="the same of stretches that are drawn")
    traces.add_argument("--label", help="name of the label column (activity)")
    words = "words that stand for no label, beside an empty cell and `unlabelled`, with commas between them"
    traces.add_argument("--label-missing", metavar="WORDS", help=words)
    traces.add_argument("--channels", metavar="NAMES", help="with commas between them (those that most traces have)")
    traces.add_argument("--rate", type=float, metavar="HZ", help="of all devices (that of most; others are resampled)")
    words = "refuse what would be put right, resampled or left out, with the file, the line and the value"
    traces.add_argument("--strict", action="store_const", const=True, help=words)
    traces.add_argument("--window", type=int, help="samples (64)")
    traces.add_argument("--stride", type=int, help="samples (32)")
    traces.add_argument("--gap", type=float, help="seconds without a sample that end a recording (0.5)")
    names = "breast-cancer, tabular, esr:PATH, mnist:PATH, cifar10:PATH"
    dealt = command.add_argument_group(f"a data set: {names}")
    dealt.add_argument("--devices", type=int, help="of each hospital (4)")
    dealt.add_argument("--deal", help="iid, classes=K, dirichlet=A, mixes=A or mixed, the data set's own (mixed)")
    dealt.add_argument("--samples", type=int, help="most that a device trains on; 0: its whole share (0)")
    dealt.add_argument("--judge", help="own or global: test samples of a device's own labels, or all (own)")
    dealt.add_argument("--tests", type=int, help="most test samples that a device is judged on; 0: all (0)")


def complete_settings(options: argparse.Namespace, method: str | None) -> Completed:
    """Method, rounds and settings that a command line comes to. `method`: the one that it names, if it does."""
    from edge_sdk.nodes.configuration.presets import SettingsTable, complete
    from edge_sdk.nodes.configuration.settings import assigned

    stated = SettingsTable(
        method=method,
        rounds=options.rounds,
        settings=assigned(options.set),
        settle={} if options.settle is None else assigned(filter(None, options.settle)),
        augment=assigned(options.augment),
        robust=assigned(text if "=" in text else f"rule={text}" for text in options.robust),
        uploads=read_uploads(options),
        privacy=assigned(options.privacy) | stated_of(options, "epsilon", "clip"),
    )
    found = complete(options.settings, stated)
    settles = options.settle is not None or found.settle
    return dataclasses.replace(found, settle={"optimiser": "adam", **found.settle} if settles else {})


def read_uploads(options: argparse.Namespace) -> dict[str, Any]:
    """The table of uploads that --bits, --secret and --uploads come to."""
    from edge_sdk.nodes.configuration.settings import assigned

    bits = {} if options.bits is None else {"bits": options.bits}
    return assigned(options.uploads) | bits | ({"secret": True} if options.secret else {})


def stated_of(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Options that were given."""
    return {name: found for name in names if (found := getattr(options, name)) is not None}


def stated_names(options: argparse.Namespace) -> tuple[str, ...]:
    """Names of the method's settings that were given, and "method" and "rounds" if these were."""
    from edge_sdk.nodes.configuration.settings import assigned

    given = [name for name in ("method", "rounds") if getattr(options, name, None) is not None]
    return (*assigned(options.set), *given)


def read_run_options(options: argparse.Namespace, completed: Completed) -> dict[str, Any]:
    """Fields of the `Replay` that these options are about."""
    return {
        "data": options.data,
        "hospitals": options.hospitals,
        "method": completed.method,
        "rounds": completed.rounds,
        "seed": options.seed,
        "options": {key: found for key in DATA_OPTIONS if (found := getattr(options, key, None)) is not None},
        "bundle": tuple(options.bundle),
        "preset": "stated",  # that which was asked for is among the settings
        "recommend": options.settings == "recommended" and not options.plain,
        "stated": stated_names(options),
        "settings": completed.settings,
        "settle": completed.settle,
        "augment": completed.augment,
        "robust": completed.robust,
        "uploads": completed.uploads,
        "privacy": completed.privacy,
        "newcomers": tuple(filter(None, (options.newcomers or "").split(","))),
        **stated_of(options, "neighbours"),
        "command": shlex.join(["auscult", *options.given]),
    }
