"""A folder of traces as a cohort: one device for each trace, but for those whose windows are public or reserved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.run import checked_name
from edge_sdk.data.cut import Cut, check_shares
from edge_sdk.data.cutting import labelled_part
from edge_sdk.data.steps import cut_step_windows, cut_value_steps
from edge_sdk.data.traces.abnormal import cut_all_windows, split_normal
from edge_sdk.data.traces.folder import TraceFolder, load_stated
from edge_sdk.data.traces.labels import UNLABELLED
from edge_sdk.data.traces.read import Trace, stated
from edge_sdk.data.traces.split import split
from edge_sdk.data.traces.windows import Windows, cut_windows, split_channels
from edge_sdk.errors import UsageError
from edge_sdk.label_names import NORMAL
from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task import STEP_VALUES, Values
from edge_sdk.replay.anomalies.asked import AskedTask, signal_of
from edge_sdk.replay.cohorts.asked import asked_windows
from edge_sdk.replay.cohorts.cohort import Cohort, Tables, count_nodes
from edge_sdk.replay.cohorts.stated_units import stated_units
from edge_sdk.replay.datasets.table import Floats
from edge_sdk.replay.labels.asked import asked_labels, asked_steps
from edge_sdk.replay.traces.synth import MARK
from edge_sdk.replay.values.asked import asked_values, words

OF_THE_COHORT = (
    *("public", "reserved", "ask", "ask_random", "rate", "channels", "label_missing"),
    *("target", "unit", "range", "labels", "task", "abnormal", "quantile", "horizon", "steps"),
)
"""Fields of `Cutting` that no device's table has, or not in this form."""


@dataclass(frozen=True, kw_only=True)
class Cutting(AskedTask):
    """The way in which traces become samples, as the command line says it.

    Attributes:
        label, window, stride, gap, held_out, validation, labelled: as in `edge_sdk.data.samples.Cut`.
        ask: questions that an oracle answers to each device before training begins, see asked.py; 0: none.
        ask_random: the same of stretches that are drawn.
        public: windows whose inputs, without labels, all devices know. They are of persons who are no devices. 0: none.
        reserved: traces, the last ones by name, of persons who are no devices either: the aggregator's own. 0: none.
        rate: samples per second of all devices; 0: what most traces have.
        channels: names of the channels, with commas between them; "": those that most traces have.
        label_missing: further words that stand for no label, with commas between them.
        strict: refuse what would be put right, resampled or left out.
        target: names of columns of numbers that are to be predicted, with commas between them; "": the labels are.
        unit: of each of them, with commas between them, or one for all. range: LOW,HIGH between which each is expected;
            none: what the traces have.
        labels: names, with commas between them, of which each sample has a set; "all": those in the label column; "":
            each sample has one class. separator: between the labels of a set. Of steps: their classes; "": as "all".
        task, abnormal, quantile, horizon, steps: of windows to be reconstructed or forecast, or with a class or values
            at each step, or a task of another package.
    """

    label: str = "activity"
    window: int = 64
    stride: int = 32
    gap: float = 0.5
    held_out: float = 0.2
    validation: float = 0.2
    labelled: float = 0.0
    ask: int = 0
    ask_random: int = 0
    public: int = 0
    reserved: int = 0
    rate: float = 0.0
    channels: str = ""
    label_missing: str = ""
    strict: bool = False
    target: str = ""
    unit: str = ""
    range: tuple[str, ...] = ()
    labels: str = ""
    separator: str = "+"

    def __post_init__(self) -> None:
        check_shares(self.validation, self.held_out)
        self.check_asked(bool(self.labelled or self.ask or self.ask_random), self.labels, self.target)
        if self.task == STEP_VALUES and not self.target:
            raise UsageError(f"--task {STEP_VALUES}: say which columns have the values of steps, --target NAME")
        if self.public < 0:
            raise UsageError(f"--public {self.public}: how many, or 0 for none")
        if self.ask < 0 or self.ask_random < 0 or (self.ask and self.ask_random):
            given = f"--ask {self.ask} --ask-random {self.ask_random}"
            raise UsageError(f"{given}: how many questions, 0 or more, of one kind")
        if not 0 <= self.rate < inf:
            raise UsageError(f"--rate {self.rate}: samples per second, or 0 for what most traces have")
        if not self.target and (self.unit or self.range):
            raise UsageError("--unit and --range are of values: name the columns that have them with --target")
        if self.target and self.labels:
            raise UsageError(f"--target {self.target} with --labels {self.labels}: a model predicts values or labels")
        if (self.target or self.labels) and (self.ask or self.ask_random):
            asked = f"--target {self.target}" if self.target else f"--labels {self.labels}"
            raise UsageError(f"--ask with {asked}: questions are for the names of classes")
        if (self.ask or self.ask_random) and not self.labelled:
            raise UsageError("--ask: all windows have labels; say with --labelled SECONDS how many have")


def cohort_of_traces(folder: Path, hospitals: int, seed: int, how: Cutting) -> Cohort:
    """Forms a cohort with one device for each trace, but for those that are too short, public or reserved.

    Raises:
        UsageError: a trace cannot be read, or none is left for a device.
    """
    read = read_traces(folder, how)
    every, skipped = skip_useless(drop_reserved(read.traces, how.reserved), how)
    traces, public = take_public(every, seed, how)
    names = [checked_name(t.name, "device name (from the file's)") for t in traces]
    tree = {f"hospital-{h + 1}": tuple(sorted(names)[h::hospitals]) for h in range(min(hospitals, len(names)))}
    first = traces[0]
    lent = [f"{t.name} lends its windows as public inputs, and is no device" for t in every if t.name not in names]
    there = labels_in(traces)
    own = how.plugged(there, [name for name in ("unit", "range", "labels", "ask", "ask_random") if getattr(how, name)])
    asked = (
        own
        or how.reconstruction(there, how.window)
        or asked_steps(how.labels, there, 0 if how.target else how.steps_of(how.window))
        or asked_labels(how.labels, there, how.separator)
    )
    target, task = words(how.target), asked or values_of(traces, how)
    kinds = f"{len(first.classes)} classes" if task is None else task.in_words()
    return Cohort(
        summary=f"{count_nodes(tree)}, {kinds}, {in_hertz(first.rate_hz)} Hz",
        tree=tree,
        classes=first.classes
        if task is None
        else task.named((NORMAL, *how.words) if how.words is not None else target),
        shapes={"x": (len(first.channels) - len(target), how.window)},
        reshape=False,
        generated=(folder / MARK).is_file(),  # the generator leaves that file beside its traces
        tables=lambda *_: trace_tables(read, traces, how, seed),
        public=public,
        notes=(*read.notes, *skipped, *lent),
        task=task,
        unit=how.unit,
        signal=signal_of_traces(traces, how) if how.reconstructs or how.tells_steps else None,
        step=how.stride / first.rate_hz,
        rate_hz=first.rate_hz,
        channels=(inputs := tuple(c for c in first.channels if c not in target)),
        units=stated_units(folder, [t.name for t in traces], inputs),
    )


def in_hertz(rate: float) -> str:
    """A rate for people: whole numbers, and below 1 two digits."""
    return f"{rate:.0f}" if rate >= 1 else f"{rate:.2g}"


def signal_of_traces(traces: Sequence[Trace], how: Cutting) -> SignalSpec:
    """What windows of these traces are of, standardised over those that devices train on."""
    rate, target = round(traces[0].rate_hz, 6), words(how.target)
    inputs = [name for name in traces[0].channels if name not in target]
    return signal_of(inputs, rate, how.stride, [parts_of(trace, how)[0] for trace in traces])


def parts_of(trace: Trace, how: Cutting) -> tuple[Windows, Windows]:
    """Windows of a trace to learn from or choose by, and those held out."""
    if how.tells_steps:
        cut, steps = (how.window, how.stride, how.gap), how.steps_of(how.window)
        target = words(how.target)
        cuts = cut_value_steps(trace, *cut, steps, target) if target else cut_step_windows(trace, *cut, steps)
        return split(cuts, held_out=how.held_out)
    if how.words is None:
        return split(cut_windows(trace, how.window, how.stride, how.gap, words(how.target)), held_out=how.held_out)
    cuts = cut_all_windows(trace, how.window, how.stride, how.gap, how.words)
    return split_normal(cuts, how.held_out, how.validation)[:2]


def labels_in(traces: Sequence[Trace]) -> list[str]:
    """All texts that samples of some traces have as labels."""
    return [trace.classes[code] for trace in traces for code in np.unique(trace.codes).tolist() if code != UNLABELLED]


def values_of(traces: Sequence[Trace], how: Cutting) -> Values | None:
    """The values that are to be predicted; None: the labels are. Where no range is stated, it is that of the windows
    that are not held out: devices train between its ends."""
    if not how.target:
        return None
    split_channels(traces[0], names := words(how.target))
    found = [] if how.range else [parts_of(trace, how)[0].y for trace in traces]
    rows = [np.moveaxis(y, 1, -1).reshape(-1, len(names)) for y in found] or [np.zeros((0, len(names)))]
    return asked_values(how.target, how.unit, how.range, np.concatenate(rows), how.steps_of(how.window))


def read_traces(folder: Path, how: Cutting) -> TraceFolder:
    """The traces of a folder, as these options want them."""
    target = words(how.target)
    said = stated(
        how.label,
        (*words(how.channels), *target) if how.channels else None,
        how.strict,
        words(how.label_missing),
        how.separator,
        target,
        not target and how.words != (),
    )
    return load_stated(folder, said, how.rate)


def likeness(trace: Trace, how: Cutting) -> dict[str, Any]:
    """What makes a device's trace like the others, as its own [data] table says it."""
    return {
        "channels": trace.channels,
        "rate_hz": round(trace.rate_hz, 6),
        "classes": trace.classes,
        "label_missing": words(how.label_missing),
    } | likeness_of_task(how)


def likeness_of_task(how: Cutting) -> dict[str, Any]:
    """What is to be predicted, as a device's [data] table says it."""
    if how.words is not None:
        return {"abnormal": how.words}
    steps = {"steps": how.steps_of(how.window)} if how.tells_steps else {}
    return steps | ({"target": words(how.target)} if how.target else {})


def skip_useless(traces: tuple[Trace, ...], how: Cutting) -> tuple[tuple[Trace, ...], list[str]]:
    """Leaves out traces that are too short for a training and a test part, and those whose sensor never moved; returns
    the others, and the reasons.

    Raises:
        UsageError: none is left; or, under `strict`, one would be left out.
    """
    useful, reasons = list[Trace](), list[str]()
    for trace in traces:
        try:
            inputs = trace.values[:, split_channels(trace, words(how.target))[0]]
            if (inputs == inputs[0]).all():
                raise UsageError(f"{trace.name}: all channels are constant: a sensor that is stuck teaches nothing")
            labelled_part(parts_of(trace, how)[0], round(how.labelled * trace.rate_hz))
            useful.append(trace)
        except UsageError as error:
            if how.strict:
                raise
            reasons.append(f"warning: skipped {error}")
    if not useful:
        bare = not how.target and not how.reconstructs and all((trace.codes == UNLABELLED).all() for trace in traces)
        more = "; a column of numbers is predicted with --target NAME" if bare else ""
        raise UsageError(reasons[0].removeprefix("warning: skipped ") + more)
    return tuple(useful), reasons


def drop_reserved(traces: tuple[Trace, ...], reserved: int) -> tuple[Trace, ...]:
    """Leaves out the last traces, which are the aggregator's own."""
    if reserved >= len(traces):
        raise UsageError(f"{reserved} of {len(traces)} traces are the aggregator's own, so no device is left")
    return traces[: len(traces) - reserved]


def take_public(traces: tuple[Trace, ...], seed: int, how: Cutting) -> tuple[tuple[Trace, ...], Floats | None]:
    """Draws traces until their windows are enough public inputs; returns the other traces, and these inputs.

    Raises:
        UsageError: no trace would remain.
    """
    random, left, parts = np.random.default_rng([seed, 10]), list(traces), list[Floats]()
    while sum(map(len, parts)) < how.public:
        if len(left) < 2:
            raise UsageError(f"--public {how.public}: the windows of {len(traces)} traces are not enough")
        donor = left.pop(int(random.integers(len(left))))
        parts.append(cut_windows(donor, how.window, how.stride, how.gap, words(how.target)).x)
    if not parts:
        return traces, None
    found = np.concatenate(parts)
    return tuple(left), found[np.sort(random.permutation(len(found))[: how.public])]


def trace_tables(read: TraceFolder, traces: tuple[Trace, ...], how: Cutting, seed: int) -> Tables:
    """The [data] tables of the devices: each reads its own trace."""
    cutting = {key: value for key, value in vars(how).items() if key not in OF_THE_COHORT}
    found: dict[str, dict[str, Any]] = {}
    for trace in traces:
        table = {"trace": read.files[trace.name].resolve(), **cutting, **likeness(trace, how)}
        most = how.ask or how.ask_random
        asked = asked_windows(trace, Cut(**table), most, how.ask_random > 0, seed) if most else ()
        found[trace.name] = table | ({"asked": asked} if asked else {})
    return found
