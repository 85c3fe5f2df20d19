"""Runs of a method on a fleet, from Python: `edge_sdk.simulate`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract.method import Method
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS, PLUGINS
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.tasks.plugged import PluggedTask
from edge_sdk.plugins import hash_plugin
from edge_sdk.replay.planning.data_hash import hash_data
from edge_sdk.research.comparisons.results import Results, read_result
from edge_sdk.research.fleets.cache import cache_of, drop_old, hash_code, hash_own_modules
from edge_sdk.research.fleets.fleet import Fleet, named_task
from edge_sdk.research.fleets.modules import bundle_of
from edge_sdk.research.runs.asked import option_arguments, read_command, settings_arguments
from edge_sdk.research.runs.processes import play_all
from edge_sdk.research.runs.progress import make_bar

PLUGGED = {"--method=": "method", "--bundle=": "network", "--task=": "task"}
"""Option -> kind of plug-in that it may name."""
DRAWN = re.compile(rb"\x8c\x20[0-9a-f]{32}")
"""A text of 32 hexadecimal digits, as pickle writes it."""
Jobs = dict[int, tuple[list[str], Path]]
"""Seed -> its command line, and the directory of its run."""


def simulate(
    data: Fleet | str | Path,
    method: str | Method | None = None,
    *,
    model: Any = None,
    rounds: int | None = None,
    seeds: int | Sequence[int] = 1,
    settings: Mapping[str, Any] | str | Path | None = None,
    plain: bool = False,
    name: str = "",
    workers: int | None = None,
    cache: bool = True,
    progress: bool | None = None,
    **options: Any,
) -> Results:
    """Simulates runs on a fleet: what `auscult simulate` does, to the bit, and its result as an object to look at.

    What is not said is filled in as the command does it: the method, the network, phases and settings that do best on
    data of this kind.

    Args:
        data: a fleet, or what the command takes: a folder, or the name of a data set.
        method: a name of `METHODS`, or a method of your own (see `edge_sdk.method`).
        model: a torch module, which is compiled as it is now; the path of a bundle, or one that is read; or a name of
            the zoo. None: the network that fits the data.
        rounds: None: as many as are recommended.
        seeds: how many, from 0 on; or which.
        settings: of the method, by name; or "paper", "recommended", "stated", or a settings file.
        plain: the method by itself, with nothing that is recommended for the data.
        name: in tables and legends; "": the method's.
        workers: processes at a time; None: one for each core, and no more than there are seeds.
        cache: take a run from the cache if the same code has made it of the same data and settings before.
        progress: a bar; None: where somebody looks.
        options: any other of the command, with underscores: `hospitals=3`, `settle={"trees": 0}`, `bits=4`,
            `evaluate_every=10`, `clients=1000`, `behave={"drop": 0.1}`, `deadline=600`, `newcomers=["ann"]`.

    Returns:
        What the runs have reached, with the models of each device.

    Raises:
        UsageError: something named cannot be used; the text says what would be right. AuscultError: a run has failed.

    >>> import edge_sdk as auscult
    >>> data = auscult.Fleet.dataset("breast-cancer", devices=2)
    >>> run = auscult.simulate(data, "fedavg", rounds=2, hospitals=2, neighbours=0, progress=False)
    >>> run.method, run.seeds, sorted(run.devices)
    ('fedavg', [0], ['h1-1', 'h1-2', 'h2-1', 'h2-2'])
    """
    fleet = data if isinstance(data, Fleet) else Fleet(str(data))
    options, task = with_task(fleet, options)
    own = method if isinstance(method, Method) else None
    named = own.name if own is not None else checked_method(method)
    bundle = bundle_of(model, fleet)
    common = [
        "simulate", fleet.data, "--keep-models",
        *([] if named is None else [f"--method={named}"]),
        *([] if rounds is None else [f"--rounds={rounds}"]),
        *([f"--bundle={bundle}"] if bundle else []),
        *settings_arguments(settings),
        *(["--plain"] if plain else []),
        *option_arguments(options, settings_names(own, named)),
    ]  # fmt: skip
    written = b"" if own is None and task is None else written_down(own, task)
    jobs = jobs_of(common, seeds_of(seeds), hash_written(written))
    missing = [job for job in jobs.values() if not (cache and read_result(job[1]))]
    for _, out in missing:
        shutil.rmtree(out, ignore_errors=True)
    for _, out in jobs.values():
        if out.is_dir():
            os.utime(out)
    drop_old("runs")
    if missing:
        play_all(missing, min(workers or os.cpu_count() or 1, len(missing)), written, make_bar(progress))
    results = [read_result(out) or {} for _, out in jobs.values()]
    return Results(name or results[0]["method"], results, [out for _, out in jobs.values()])


def settings_names(own: Method | None, named: str | None) -> list[str]:
    """Names of the method's settings. None named: those of the method that the command takes."""
    from edge_sdk.replay.planning.plan import Replay

    return [field.name for field in fields((own or METHODS[named or Replay.method]).settings)]


def checked_method(name: Any) -> str | None:
    """The name of a method; None: it is left to the command.

    Raises:
        UsageError: there is no such method.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise UsageError(f"method is a {type(name).__name__}: expected a name, or what edge_sdk.method makes")
    METHODS.check(name)
    return name


def seeds_of(seeds: int | Sequence[int]) -> list[int]:
    """The seeds, each once.

    Raises:
        UsageError: there is none, or one below 0.
    """
    if not isinstance(seeds, (int, np.integer)) and (
        isinstance(seeds, str) or not all(isinstance(seed, (int, np.integer)) for seed in seeds)
    ):
        raise UsageError(f"seeds = {seeds!r}: how many, or which, as whole numbers")
    found = list(range(seeds)) if isinstance(seeds, (int, np.integer)) else [int(seed) for seed in seeds]
    if not found or min(found) < 0 or len({*found}) < len(found):
        raise UsageError(f"seeds = {seeds!r}: how many, at least 1, or different numbers, 0 or more")
    return found


def jobs_of(common: Sequence[str], seeds: Sequence[int], method: str) -> Jobs:
    """The runs of some seeds, each in a directory that is named by all that decides its result.

    Args:
        method: hash of what the user has written; "": nothing, all has a name.

    Raises:
        UsageError: the command does not know an option or its value.
    """
    read_command([*common, "--seed=0"])
    theirs = hash_plugins(common)
    own = [hash_own_modules(), theirs] if method or theirs else []
    bundles = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in files_of(common, "--bundle=")]
    bundles += [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in files_of(common, "--settings=")]
    found = {}
    for seed in seeds:
        line = [*common, f"--seed={seed}"]
        told = [*line, hash_data(common[1]), *bundles, hash_code(), method, *own]
        digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()
        found[seed] = line, cache_of("runs") / digest[:32]
    cache_of("runs").mkdir(parents=True, exist_ok=True)
    return found


def files_of(arguments: Sequence[str], option: str) -> list[str]:
    """Files that arguments name."""
    found = [one.removeprefix(option) for one in arguments if one.startswith(option)]
    return [path for path in found if Path(path).is_file()]


def hash_plugins(arguments: Sequence[str]) -> str:
    """SHA-256 of the packages whose method, networks or task arguments name; "": all that is named is ours."""
    named = {option: [a.removeprefix(option) for a in arguments if a.startswith(option)] for option in PLUGGED}
    for name in filter(PLUGINS.__contains__, named["--method="]):
        PLUGINS.load(name)  # what it loads is then among the loaded modules
    named["--task="] = [said.partition(":")[0] for said in named["--task="]]
    tasks = [read_bundle(path).task for path in files_of(arguments, "--bundle=")]
    named["--task="] += [task.kind for task in tasks if isinstance(task, PluggedTask)]
    return "".join(hash_plugin(PLUGGED[option], name) for option, names in named.items() for name in names)


# What the user has written ----------------------------------------------------------------------------------------
def with_task(fleet: Fleet, options: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The options of a run, with the name of its task, which is known in this process then; and the task, if the user
    has written it. Raises UsageError if it cannot be used."""
    found = {**fleet.options, **options}
    named, own = named_task(options.get("task") or fleet.task or found.get("task", ""))
    return {**found, **({"task": named} if named else {})}, own


def written_down(method: Method | None, task: Any) -> bytes:
    """A method and a task that the user has written, for processes of his own: never for a file or a peer.

    Raises:
        UsageError: the method's name is taken, or one uses what no other process can have.
    """
    try:
        import cloudpickle
    except ModuleNotFoundError as error:
        raise UsageError(
            "cloudpickle is missing here, which takes your code to processes: pip install 'auscult[replay]'"
        ) from error
    if method is not None:
        METHODS.check_name(method.name)
    try:
        return bytes(cloudpickle.dumps((method, task)))
    except Exception as error:
        what = "the task" if method is None else f"method {method.name}{'' if task is None else ' or the task'}"
        raise UsageError(f"{what}: it uses something that no other process can have: {error}") from error


def hash_written(written: bytes) -> str:
    """SHA-256 of what the user has written; "": nothing. Without the numbers that cloudpickle draws for classes, with
    which the same class would be another one in the next process."""
    return hashlib.sha256(DRAWN.sub(b"", written)).hexdigest() if written else ""
