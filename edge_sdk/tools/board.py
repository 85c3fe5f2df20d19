"""`auscult board`: which board this is, how it fares, and what training a bundle on it costs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.detect import Detection, detect_board
from edge_sdk.hardware.boards.forecast import (
    REST_MB,
    RoundForecast,
    StepCost,
    choose_step,
    floor_mb,
    forecast_round,
)
from edge_sdk.hardware.boards.memory import MemoryLimit, read_memory_limit
from edge_sdk.hardware.boards.profile import find_profile
from edge_sdk.hardware.boards.telemetry import Telemetry, read_telemetry
from edge_sdk.hardware.probe import read_machine
from edge_sdk.model.bundle import Bundle, read_bundle
from edge_sdk.tools.profiling.guarded_steps import DoesNotFit, measure_steps

BATCHES = (8, 16, 32, 64, 128)
KEPT_FREE = 0.1
"""Share of the free memory that is left to others."""


@dataclass(frozen=True)
class Calibration:
    """A bundle on a board.

    Attributes:
        costs: all steps that were measured.
        chosen: the one that is recommended.
        forecast: of one round with it.
        room: memory that there was.
    """

    costs: list[StepCost]
    chosen: StepCost
    forecast: RoundForecast
    room: MemoryLimit


def add_board(commands: Any, parents: Sequence[argparse.ArgumentParser] = ()) -> None:
    """Adds `board` to the command line."""
    words = "show which board this is, how it fares, and what training a bundle on it costs"
    command = commands.add_parser("board", help=words, description=words, parents=parents)
    command.add_argument("bundle", type=Path, nargs="?", help="measure training steps of this bundle")
    command.add_argument("--board", help="take this profile's figures, whatever board this is")
    command.add_argument("--samples", type=int, default=200, help="that the device trains on (200)")
    command.add_argument("--epochs", type=int, default=2, help="over them in one round (2)")
    command.add_argument("--memory", type=float, help="MB that the device may have (default: what is free)")
    command.add_argument("--root", type=Path, default=Path("/"), help="where Linux's files are (/)")
    command.add_argument("--json", action="store_true")
    command.set_defaults(do=do_board)


def do_board(options: argparse.Namespace) -> int:
    """Shows the board, and calibrates where a bundle is named. A model that does not fit is a failure."""
    check_options(options)
    board, telemetry = find_board(options), read_telemetry(options.root)
    shown: dict[str, Any] = {"board": asdict(board), "telemetry": asdict(telemetry)}
    if not options.json:
        print("\n".join([*describe_board(board), "", *describe_telemetry(telemetry)]), flush=True)
    if options.bundle:
        bundle = read_bundle(options.bundle)
        calibration = calibrate(options, bundle, board, decide_room(options, board))
        shown["calibration"] = asdict(calibration)
        if not options.json:
            print("\n".join(["", *describe_business(telemetry), *describe_calibration(calibration, options)]))
    if options.json:
        print(json.dumps(shown))
    return 0


def check_options(options: argparse.Namespace) -> None:
    for name in ("samples", "epochs"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} {getattr(options, name)}: at least 1")
    if options.memory is not None and not options.memory > 0:
        raise UsageError(f"--memory {options.memory}: megabytes above 0 are needed")
    if not options.root.is_dir():
        raise UsageError(f"--root {options.root}: no such directory")


def is_another(options: argparse.Namespace) -> bool:
    """Is the named board another one than this machine?"""
    return bool(options.board) and detect_board(options.root).profile.key != options.board


def find_board(options: argparse.Namespace) -> Detection:
    """The board that was named, else the one that this machine is."""
    if options.board:
        return Detection(find_profile(options.board), "", "named on the command line")
    return detect_board(options.root)


# Calibration ----------------------------------------------------------------------------------------------------
def decide_room(options: argparse.Namespace, board: Detection) -> MemoryLimit:
    """Memory that the device's process may have: what was given, or what is free, but no more than the board has."""
    if options.memory is not None:
        return MemoryLimit(options.memory, "--memory")
    limit, most = read_memory_limit(options.root), board.profile.value_of("memory_mb")
    if is_another(options) and most is not None and (limit.free_mb is None or most < limit.free_mb):
        return MemoryLimit(most, f"all memory of the smallest {board.profile.name}")
    if limit.free_mb is None:
        raise UsageError(f"{options.root}: nothing tells how much memory is free; say it with --memory")
    return MemoryLimit(limit.free_mb * (1 - KEPT_FREE), f"{1 - KEPT_FREE:.0%} of {limit.reason}")


def calibrate(options: argparse.Namespace, bundle: Bundle, board: Detection, room: MemoryLimit) -> Calibration:
    """Measures steps with several threads and batches, chooses among them, and forecasts a round.

    Raises:
        DoesNotFit: the model takes more memory than there is.
    """
    sample_bytes = sum(8 * prod(i["shape"]) for i in bundle.manifest["inputs"])
    limit = (room.free_mb or 0) - REST_MB - options.samples * sample_bytes / 2**20
    check_floor(options.bundle, bundle, limit, room)
    costs: list[StepCost] = []
    for threads in list_threads(read_machine().cores):
        batches = list_batches(bundle.manifest["max_batch"], options.samples)
        try:
            costs += measure_steps(options.bundle, threads, batches, limit, board.profile, options.root)
        except DoesNotFit as error:
            raise refuse(options.bundle, str(error), limit, room) from error
    if is_another(options):
        source = f"unknown: the steps were timed on this machine, which is no {board.profile.name}"
        costs = [replace(cost, joules=None, source=source) for cost in costs]
    chosen = choose_step(costs)
    parameters = bundle.manifest["parameters"]
    forecast = forecast_round(
        chosen, samples=options.samples, epochs=options.epochs, parameters=parameters, sample_bytes=sample_bytes
    )
    return Calibration(costs, chosen, forecast, room)


def check_floor(path: Path, bundle: Bundle, limit: float, room: MemoryLimit) -> None:
    """Refuses, before anything is loaded, a model whose parameters alone do not fit."""
    least = floor_mb(sum(len(part) for part in bundle.parts.values()), bundle.manifest["parameters"])
    if least > limit:
        raise refuse(path, f"its parameters and their gradient alone take {least:.0f} MB", limit, room)


def refuse(path: Path, reason: str, limit: float, room: MemoryLimit) -> DoesNotFit:
    """The refusal of a model, with what there is and what its samples and the rest of the device leave of it."""
    return DoesNotFit(
        f"{path}: does not fit: {reason}; the device may have {room.free_mb or 0:.0f} MB ({room.reason}), "
        f"of which its samples and the rest of it leave {max(0.0, limit):.0f}"
    )


def list_threads(cores: int) -> list[int]:
    """1, 2, 4, ... up to all cores."""
    return sorted({count for count in (2**n for n in range(8)) if count < cores} | {cores})


def list_batches(most: int, samples: int) -> list[int]:
    """Batches to measure: those that the bundle allows and the samples fill."""
    top = min(most, samples)
    return sorted({batch for batch in BATCHES if batch <= top} or {top})


# For people -----------------------------------------------------------------------------------------------------
def describe_board(board: Detection) -> list[str]:
    """Describes a board: its name, why it is taken for that, its figures and their sources."""
    profile = board.profile
    lines = [f"{profile.name} ({profile.key}), {profile.processor}, {profile.architecture}: {board.reason}"]
    for name, figure in profile.figures.items():
        value = "unknown" if figure.value is None else f"{figure.value:g}"
        lines.append(f"  {name:<17} {value:>8}   {figure.source}")
    return lines


def describe_telemetry(telemetry: Telemetry) -> list[str]:
    """Describes what Linux's files tell; what they do not tell is named as that."""
    heat = ", ".join(f"{name} {celsius:.0f}" for name, celsius in telemetry.temperatures.items())
    clocks = ", ".join(f"{mhz:.0f}" for mhz in telemetry.clocks_mhz.values())
    slowed = None if telemetry.throttled is None else ", ".join(telemetry.throttled) or "not throttled"
    before = f" (before: {', '.join(telemetry.throttled_before)})" if telemetry.throttled_before else ""
    battery = None if telemetry.battery is None else f"{telemetry.battery:.0%}"
    plugged = {True: "connected to power", False: "on battery", None: None}[telemetry.charging]
    free = None if telemetry.memory_free_mb is None else f"{telemetry.memory_free_mb:.0f} MB free"
    named = {"degrees": heat, "clocks, MHz": clocks, "throttling": slowed and slowed + before, "battery": battery}
    links = ", ".join(f"{name} {'up' if link.up else 'not up'}" for name, link in telemetry.links.items())
    named |= {
        "links": links,
        "power": plugged,
        "memory": free,
        "load": None if telemetry.load is None else f"{telemetry.load:.2f}",
    }
    return [f"  {name:<17} {value or 'nothing tells'}" for name, value in named.items()]


def format_amount(value: float) -> str:
    """Two digits that count, and no exponent: 0.031, 4.2, 87, 1,234."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def describe_business(telemetry: Telemetry) -> list[str]:
    """Warns where other work would be measured too."""
    cores = read_machine().cores
    if telemetry.load is None or telemetry.load < cores / 2:
        return []
    return [f"load {telemetry.load:.1f} on {cores} cores: others are at work, and these times tell of them too"]


def describe_calibration(found: Calibration, options: argparse.Namespace) -> list[str]:
    """Describes the measured steps, the choice, and the round that is to be expected."""
    lines = [f"{'threads':>9} {'batch':>6} {'ms a step':>10} {'ms a sample':>12} {'peak MB':>8} {'mJ a step':>10}"]
    for cost in found.costs:
        joules = "unknown" if cost.joules is None else f"{1e3 * cost.joules:.1f}"
        mark = "  <- chosen" if cost == found.chosen else ""
        lines.append(
            f"{cost.threads:>9} {cost.batch:>6} {1e3 * cost.seconds:>10.2f} {1e3 * cost.per_sample:>12.3f} "
            f"{cost.peak_mb:>8.0f} {joules:>10}{mark}"
        )
    if is_another(options):
        lines.append(f"Times are of this machine, not of {options.board}, whose memory is the limit.")
    f = found.forecast
    energy = "energy unknown" if f.joules is None else f"{format_amount(f.joules)} J"
    lines += [
        f"A round of {options.epochs} x {options.samples} samples: {f.steps} steps, {format_amount(f.seconds)} s, "
        f"{energy}, {f.bytes_up / 1e6:.2f} MB up and {f.bytes_down / 1e6:.2f} MB down",
        f"  energy: {found.chosen.source}",
        "  bytes: of a method that sends the whole model once in each direction; others send less",
        f"  memory: {f.memory_mb:.0f} MB of {found.room.free_mb or 0:.0f} ({found.room.reason})",
    ]
    return lines
