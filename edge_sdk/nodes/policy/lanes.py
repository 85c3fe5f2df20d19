"""Lanes of a node beside the one in which it trains: their folders, what they take, which of their runs are over."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

from edge_sdk.atomic import make_private_directory, write_text
from edge_sdk.contract.run import ID, Run
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.around import is_rollout, only_judges
from edge_sdk.nodes.policy.trust import TRUST_FILE, Trust
from edge_sdk.wire.topics import MOST_LANES

ROLLOUTS = 1
"""Number of the lane that takes rollouts."""


def folder_of(directory: Path, number: int) -> Path:
    """Folder of a lane in a node's directory."""
    return directory / f"lane-{number}"


def list_lane_folders(directory: Path) -> list[Path]:
    """Folders of all lanes that a node may have or have had, the main one first."""
    return [directory, *(folder_of(directory, number) for number in range(1, MOST_LANES + 1))]


def check_evaluations(count: int, key: str = "evaluations") -> int:
    """A number of lanes, checked. Raises UsageError if it cannot be used."""
    if not 0 <= count <= MOST_LANES:
        raise UsageError(f"{key} = {count}: expected 0 to {MOST_LANES}, beside the run that trains")
    return count


def list_lanes(count: int) -> range:
    """Numbers of the lanes beside the main one. Raises UsageError if there cannot be so many."""
    return range(1, check_evaluations(count) + 1)


def list_trainings(count: int, evaluations: int) -> list[int]:
    """Numbers of the lanes in which trainings go on side by side: the main one, and the others from the last one down,
    so that the number of evaluations does not matter for them. Raises UsageError if there cannot be so many."""
    if not 1 <= count <= MOST_LANES + 1 - evaluations:
        raise UsageError(
            f"trainings = {count}: expected 1 to {MOST_LANES + 1 - evaluations}, where evaluations = {evaluations}"
        )
    return [0, *range(MOST_LANES, MOST_LANES + 1 - count, -1)]


def check_lane(run: Run, number: int) -> None:
    """Raises UsageError for a run that does not belong into a lane."""
    if not is_rollout(run):
        raise UsageError("beside a run there are rollouts and evaluations only: nothing is trained in two runs at once")
    if number != ROLLOUTS and not only_judges(run):
        raise UsageError(f"rollouts are for lane {ROLLOUTS}, and this is lane {number}")


def training_trust(key: str | Path | None, directory: Path, folder: Path, others: Sequence[Path] = ()) -> Trust:
    """Whom a node trusts about the trainings of a lane. Each counts by itself, since one that goes on is not old where
    another was signed later; a new lane begins with what the main one has taken so far, and no lane takes what one of
    the `others`, by their folders, has had."""
    if key is not None and folder != directory:
        begin_numbers(key, directory, folder)
    if key is None or not others:
        return Trust(key, folder)
    from edge_sdk.nodes.policy.shared_trust import SharedTrust  # for trainings side by side

    return SharedTrust(key, folder, others)


def begin_numbers(key: str | Path, directory: Path, folder: Path) -> None:
    """Let a lane that has taken nothing so far know what its node has taken."""
    if not (folder / TRUST_FILE).exists() and (directory / TRUST_FILE).exists():
        make_private_directory(folder)
        write_text(folder / TRUST_FILE, json.dumps(Trust(key, directory).read_numbers()) + "\n")


def rollouts_trust(key: str | Path | None, directory: Path, lanes: int) -> Trust:
    """Whom a node trusts about rollouts, in whichever lane they come: with lanes beside its trainings it counts both
    apart, since a training that goes on was signed before a rollout beside it, and is not old for that."""
    folder = folder_of(directory, ROLLOUTS)
    if not lanes and not folder.is_dir():
        return Trust(key, directory)
    if key is not None:
        begin_numbers(key, directory, folder)
    return Trust(key, folder)


def hears_of_rollout(folder: Path, working: str) -> bool:
    """Will a device hear what becomes of the rollout that has brought what predicts now?

    Args:
        folder: of its lane for rollouts. working: run of what predicts.
    """
    return read_current(folder) == working


def read_current(directory: Path) -> str:
    """Id of the run that a lane worked in last; "": none."""
    try:
        found = (directory / "current").read_text(errors="replace").strip()
    except OSError:
        return ""
    return found if ID.fullmatch(found) else ""


OVER = "over"
"""File in a lane's folder: id of the run that has ended there last."""


def set_over(over: threading.Event, folder: Path, run: Run) -> None:
    """Set an event that says if a lane's run has ended, also before the node was started again."""
    try:
        ended = (folder / OVER).read_text(errors="replace").strip()
    except OSError:
        ended = ""
    if ended == run.id:
        over.set()
    else:
        over.clear()


def note_over(over: threading.Event, folder: Path, run: Run) -> None:
    """A lane's run has ended."""
    write_text(folder / OVER, run.id + "\n")
    over.set()
