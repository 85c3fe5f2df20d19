"""Going on with a replay that was interrupted: what is asked for must be what was begun.

All nodes keep their state in DIR, so they only have to be started again. What was asked for is noted in DIR/job.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import read_bundle
from edge_sdk.nodes.daemon.counter_files import write_json
from edge_sdk.replay.planning.data_hash import hash_data
from edge_sdk.replay.planning.plan import Replay

NOTE, RESULT = "job.json", "result.json"


def describe_job(job: Replay, run: Run, bundles: tuple[Path, ...]) -> dict[str, Any]:
    """Everything that decides the result, in JSON's types."""
    found = {
        "data": str(job.data),
        "data_sha256": hash_data(str(job.data)),
        "options": dict(job.options),
        "hospitals": job.hospitals,
        "method": run.method,
        "rounds": run.rounds,
        "seed": run.seed,
        "settings": dict(run.settings),
        "settle": dict(run.settle),
        "augment": dict(run.augment),
        "newcomers": list(job.newcomers),
        "classes": list(run.classes),
        "evaluate_every": run.evaluate_every,
        "local_only": job.local_only,
        "bundles": [read_bundle(path).sha256 for path in bundles],
    }
    later = {"robust": run.robust, "uploads": run.uploads, "privacy": run.privacy}
    found |= {key: dict(table) for key, table in later.items() if table}  # absent in notes of before
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def note_job(job: Replay, run: Run, bundles: tuple[Path, ...], more: Mapping[str, Any] | None = None) -> None:
    """Notes what was begun or, where the replay goes on, checks that it is the same.

    Args:
        more: what else decides the result, in JSON's types.

    Raises:
        UsageError: something differs.
    """
    asked, note = {**describe_job(job, run, bundles), **json.loads(json.dumps(more or {}))}, job.out / NOTE
    if not job.resume:
        write_json(note, asked)
        return
    begun = read_note(note)
    begun.setdefault("data_sha256", asked["data_sha256"])  # notes of before have none
    for key in sorted({**begun, **asked}, key="data_sha256".__eq__):  # last: others say more
        was, now = begun.get(key), asked.get(key)
        if was != now:
            other = f"it was begun with {key} = {was!r}, and not {now!r}"
            changed = f"{job.data} has changed since it was begun (SHA-256 {was}, now {now})"
            raise UsageError(f"--resume {job.out}: {changed if key == 'data_sha256' else other}")


def was_begun(out: Path) -> bool:
    """True if a replay, with one seed or several, was begun in a directory, so that it can go on."""
    return (out / NOTE).is_file() or any(out.glob(f"seed-*/{NOTE}"))


def read_data_hash(out: Path) -> str:
    """The hash of the data with which a replay was begun in `out`; "" where none is noted."""
    path = out / NOTE
    return str(read_note(path).get("data_sha256", "")) if path.is_file() else ""


def read_finished(out: Path) -> dict[str, Any] | None:
    """The result of a replay that is over already; None: it is not."""
    path = out / RESULT
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def read_note(path: Path) -> dict[str, Any]:
    """What was begun.

    Raises:
        UsageError: no replay was.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--resume {path.parent}: no replay was begun there ({error})") from error
    return found
