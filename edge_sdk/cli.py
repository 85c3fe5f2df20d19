"""`auscult`: the command line.

Exit codes: 0 done; 1 a run, a check or a process has failed; 2 something named on the command line or in a settings
file cannot be used. With `--json` standard output is one object and nothing else; what is going on then goes to
standard error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge_sdk.errors import AuscultError, UsageError

FAILED, MISUSED = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    options = parser().parse_args(arguments)
    level = options.log or ("info" if options.serves else "warning")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=level.upper())
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return options.do(options) or 0
    except UsageError as error:
        print(f"auscult: {error}", file=sys.stderr)
        return MISUSED
    except AuscultError as error:
        print(f"auscult: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("auscult: interrupted", file=sys.stderr)
        return 130


def interrupt(*_: Any) -> None:
    """Being told to end is like Ctrl-C: what was started is stopped."""
    raise KeyboardInterrupt


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="auscult", description=__doc__.partition("\n")[0] if __doc__ else None)
    levels = ["debug", "info", "warning", "error"]
    top.add_argument("--log", choices=levels, help="what is logged (default: info in a service, else warning)")
    top.set_defaults(serves=False)
    commands = top.add_subparsers(metavar="command", required=True)
    add_services(commands)
    add_replay(commands)
    add_bundle(commands)
    add_pretrain(commands)
    add_traces(commands)
    add_provision(commands)
    add_doctor(commands)
    return top


# Services -------------------------------------------------------------------------------------------------------
def add_services(commands: Any) -> None:
    for name, words, many in (
        ("device", "run a device (several files: several devices in one process)", True),
        ("hospital", "run a hospital node, next to its broker", False),
        ("aggregator", "run the aggregator for one run, until it has ended", False),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.add_argument("file", type=Path, nargs="+" if many else None, help="settings, TOML")
        command.add_argument("--once", action="store_true", help="end when the run has ended (default: serve on)")
        does = {"device": do_device, "hospital": do_hospital, "aggregator": do_aggregator}
        command.set_defaults(do=does[name], serves=True)


def do_device(options: argparse.Namespace) -> None:
    from edge_sdk.nodes.serve import serve_devices

    serve_devices(options.file, options.once)


def do_hospital(options: argparse.Namespace) -> None:
    from edge_sdk.nodes.serve import serve_hospital

    serve_hospital(options.file, options.once)


def do_aggregator(options: argparse.Namespace) -> None:
    extra("aggregator.serve").serve_aggregator(options.file, options.once)


def extra(module: str) -> Any:
    """A module that a device does not have: by name, so that this package imports nothing above it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing here: pip install 'auscult[aggregator]'") from error


# Replay ---------------------------------------------------------------------------------------------------------
def add_replay(commands: Any) -> None:
    words = "replay recorded traces, or a data set, through real devices, hospitals, a broker and the aggregator"
    command = commands.add_parser("replay", help=words, description=words)
    command.add_argument("data", help="folder of traces, one CSV file for each device, or a data set, NAME[:PATH]")
    command.add_argument("--hospitals", type=int, default=3, help="how many (3)")
    command.add_argument("--method", default="fedslr", help="(fedslr); a wrong name is answered with those there are")
    command.add_argument("--rounds", type=int, default=30, help="(30)")
    command.add_argument("--seed", type=int, default=0, help="of all that is drawn (0)")
    command.add_argument("--broker", default="embedded", help="embedded (default), or mqtt://host[:port]")
    command.add_argument("--insecure", action="store_true", help="plain text may leave this machine, to that broker")
    command.add_argument("--out", type=Path, help="directory for everything that is written (default: runs/<name>)")
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the method")
    model = (
        "compiled model, or a name of the zoo (models/) that is compiled for these data; default: the one that fits; "
    )
    model += "may be repeated where devices may have different ones"
    command.add_argument("--bundle", type=Path, action="append", default=[], help=model)
    private = "TOML, what `auscult pretrain` has written: a pretrained model that the aggregator keeps to itself"
    command.add_argument("--private", type=Path, metavar="FILE", help=private)
    command.add_argument("--evaluate-every", type=int, default=0, help="rounds; 0: only at the end")
    command.add_argument("--no-local-only", action="store_true", help="do not train the local-only baseline")
    command.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_data_options(command)
    command.set_defaults(do=do_replay)


def add_data_options(command: argparse.ArgumentParser) -> None:
    """What is not given is left to the kind of data; see `cohort.Cutting` and `cohort.Dealing`."""
    command.add_argument("--held-out", type=float, help="share kept for judging (0.3 of traces, 0.2 of data sets)")
    known = "inputs that all devices know, of nobody's own (1000, or 256 windows of traces, for methods that need some)"
    command.add_argument("--public", type=int, help=known)
    traces = command.add_argument_group("a folder of traces")
    traces.add_argument("--label", help="name of the label column (activity)")
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


TRACE_OPTIONS = ("held_out", "label", "window", "stride", "gap")
DATA_OPTIONS = (*TRACE_OPTIONS, "devices", "deal", "samples", "judge", "tests", "public")


def do_replay(options: argparse.Namespace) -> None:
    from edge_sdk.nodes.private_table import Private
    from edge_sdk.nodes.settings import assigned, read_toml
    from edge_sdk.replay.job import Replay, replay

    job = Replay(
        data=options.data,
        out=options.out or Path("runs") / f"{options.method}-{time.strftime('%Y%m%d-%H%M%S')}",
        hospitals=options.hospitals,
        method=options.method,
        rounds=options.rounds,
        seed=options.seed,
        broker=options.broker,
        insecure=options.insecure,
        options={key: found for key in DATA_OPTIONS if (found := getattr(options, key)) is not None},
        evaluate_every=options.evaluate_every,
        local_only=not options.no_local_only,
        bundle=tuple(options.bundle),
        settings=assigned(options.set),
        private=None if options.private is None else read_toml(options.private, Private),
    )
    show = sys.stderr if options.json else sys.stdout
    result = replay(job, Progress(show), lambda text: print(text, file=show, flush=True) if text else None)
    finish(job, result, options.json)


class Progress:
    """Prints a line for each line of metrics."""

    def __init__(self, file: Any):
        self.file, self.began, self.headed = file, time.time(), False

    def __call__(self, line: Any) -> None:
        from edge_sdk.replay import report

        if "sums" not in line:
            return
        if not self.headed:
            print(report.HEADER, file=self.file)
            self.headed = True
        print(report.round_line(line, self.began), file=self.file, flush=True)


def finish(job: Any, result: dict[str, Any], as_json: bool) -> None:
    """Write the files, print the tables."""
    from edge_sdk.nodes.serve import write_json
    from edge_sdk.replay import report, report_html

    write_json(job.out / "result.json", result)
    (job.out / "report.html").write_text(report_html.page(result), encoding="utf-8")
    if as_json:
        print(json.dumps(result))
        return
    print(f"\n{report.device_table(result)}\n\n{report.summary(result)}")
    if result["data"]["generated"]:
        print("data     generated, not recorded: the figures tell that the system works, no more")
    print(f"report   {job.out / 'report.html'}")


# Bundles --------------------------------------------------------------------------------------------------------
def add_bundle(commands: Any) -> None:
    from edge_sdk.tools.bundle_commands import add_parsers

    words = "compile a torch module for devices, or look at and check a compiled one"
    parts = commands.add_parser("bundle", help=words, description=words).add_subparsers(metavar="what", required=True)
    add_parsers(parts)
    compile = parts.add_parser("compile", help="compile a torch module to a bundle that devices train", add_help=False)
    compile.add_argument("-h", "--help", action="store_true")
    compile.add_argument("rest", nargs=argparse.REMAINDER)
    compile.set_defaults(do=do_compile)


def do_compile(options: argparse.Namespace) -> int:
    """The compiler reads its own arguments, so that only it loads torch."""
    return int(extra("models.cli").main(["compile", *(["--help"] if options.help else options.rest)]))


def add_pretrain(commands: Any) -> None:
    words = "train a model that an aggregator keeps to itself, on samples that no device is given"
    command = commands.add_parser("pretrain", help=words, add_help=False)
    command.add_argument("-h", "--help", action="store_true")
    command.add_argument("rest", nargs=argparse.REMAINDER)
    command.set_defaults(do=do_pretrain)


def do_pretrain(options: argparse.Namespace) -> int:
    """The tool reads its own arguments, so that only it loads torch."""
    return int(extra("aggregator.private_model.pretrain").main(["--help"] if options.help else options.rest))


# Provisioning ---------------------------------------------------------------------------------------------------
def add_provision(commands: Any) -> None:
    words = "make a hospital's certificates and the matching mosquitto configuration"
    command = commands.add_parser("provision", help=words, description=words)
    command.add_argument("directory", type=Path)
    command.add_argument("--hospital", required=True)
    command.add_argument("--host", required=True, help="name or address under which nodes reach the broker")
    command.add_argument("--port", type=int, default=8883)
    command.add_argument("--devices", nargs="*", default=[], metavar="DEVICE")
    command.set_defaults(do=do_provision)


def do_provision(options: argparse.Namespace) -> None:
    from edge_sdk.tools.provision import provision

    provision(options.directory, options.hospital, options.host, options.devices, options.port)
    print(f"certificates, mosquitto.conf and acl are in {options.directory}")


# Traces ---------------------------------------------------------------------------------------------------------
def add_traces(commands: Any) -> None:
    command = commands.add_parser("traces", help="make traces").add_subparsers(metavar="what", required=True)
    synth = command.add_parser("synth", help="generate plausible wrist-accelerometer traces, one CSV for each person")
    synth.add_argument("directory", type=Path)
    synth.add_argument("--devices", type=int, default=12)
    synth.add_argument("--seed", type=int, default=7)
    synth.add_argument("--minutes", type=float, default=13.0, help="for each person, in the mean")
    synth.add_argument("--overwrite", action="store_true", help="even if the directory is not empty")
    synth.set_defaults(do=do_synth)


def do_synth(options: argparse.Namespace) -> None:
    from edge_sdk.replay.synth import write_traces

    made = write_traces(
        options.directory,
        devices=options.devices,
        seed=options.seed,
        minutes=options.minutes,
        overwrite=options.overwrite,
    )
    for one in made:
        print(f"{one.device}  {one.seconds / 60:5.1f} min  {one.samples:>6} samples  {len(one.activities)} activities")
    print(f"{len(made)} generated traces in {options.directory}")


# Doctor ---------------------------------------------------------------------------------------------------------
def add_doctor(commands: Any) -> None:
    words = "check this machine, a bundle, a directory and a broker before a node runs here"
    command = commands.add_parser("doctor", help=words, description=words)
    command.add_argument("--bundle", type=Path)
    command.add_argument("--broker", help="mqtt://host[:port]")
    command.add_argument("--directory", type=Path, default=Path("."), help="where the node will keep its state")
    command.add_argument("--json", action="store_true")
    command.set_defaults(do=do_doctor)


def do_doctor(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from edge_sdk.tools.doctor import examine, print_findings

    findings = examine(options.bundle, options.broker, options.directory)
    if options.json:
        print(json.dumps([asdict(f) for f in findings]))
    else:
        print_findings(findings)
    return FAILED if any(f.good is False for f in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
