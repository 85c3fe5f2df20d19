"""What the lanes of trainings side by side have taken: a training that one of them has had is not for another.

Each lane has a latest number of its own, since one that goes on is not old where another was signed later. By that
alone an old training of one lane, handed out again in another, would be a new one there. So each lane also notes which
run its latest number is of, and which number it had before: whoever was signed by then is over, or is in its own lane.

    taken.json   fingerprint of a key -> id and number of the latest run, and the number of the one before
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from edge_sdk.atomic import make_private_directory, write_text
from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.nodes.policy.trust import Trust
from edge_sdk.wire.signatures import SignatureError, check_run

TAKEN_FILE = "taken.json"


@dataclass(frozen=True)
class Taken:
    """What a lane has taken with one key: its latest run, the number of that, and the latest number before it."""

    run: str = ""
    number: int = 0
    before: int = 0


class SharedTrust(Trust):
    """Whom a node trusts about the trainings of one lane.

    Args:
        key, directory: as of `Trust`.
        others: folders of the node's other lanes.
    """

    def __init__(self, key: str | Path | None, directory: Path, others: Sequence[Path]):
        super().__init__(key, directory)
        self.directory, self.others = directory, tuple(others)

    def check_run(self, run: Run) -> None:
        """Take a run, or raise SignatureError: as of `Trust`, or another lane has had it, or a later one."""
        if self.verifier is None:
            return
        number, key = check_run(run, self.verifier), self.verifier.fingerprint
        own = read_taken(self.directory).get(key, Taken())
        if (run.id, number) != (own.run, own.number):
            for folder in self.others:
                check_other(run, number, read_taken(folder).get(key, Taken()))
        if number < self.read_numbers().get(key, 0):
            self.note(f"run {run.id}", number)  # refuses it
        if number > own.number:  # first this: killed between, it is offered again, and nothing is forgotten
            make_private_directory(self.directory)
            note = {**read_taken(self.directory), key: Taken(run.id, number, own.number)}
            write_text(
                self.directory / TAKEN_FILE, json.dumps({k: asdict(t) for k, t in note.items()}) + "\n", lasting=True
            )
        self.note(f"run {run.id}", number)


def check_other(run: Run, number: int, taken: Taken) -> None:
    """Raises SignatureError: another lane has had this run, or goes on since one that was signed later ended there."""
    if number <= taken.before or (run.id == taken.run and number <= taken.number):
        raise SignatureError(f"run {run.id} is an old one: signed as number {number}, it was of another lane's time")


def read_taken(folder: Path) -> dict[str, Taken]:
    """Fingerprint of a key -> what a lane has taken with it. Raises UsageError: the file is damaged."""
    path = folder / TAKEN_FILE
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
        return {str(k): Taken(str(t["run"]), int(t["number"]), int(t["before"])) for k, t in found.items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise UsageError(
            f"{path}: is damaged ({error}); while it is there, no run is taken. Remove it to begin anew"
        ) from None
