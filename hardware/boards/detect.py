"""Which board this is: what the device tree calls it, else the generic profile of its architecture."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.linux_files import read_fields, read_text
from edge_sdk.hardware.boards.profile import BoardProfile, load_profiles

ALIASES = {"arm64": "aarch64", "amd64": "x86_64"}


@dataclass(frozen=True)
class Detection:
    """A detected board.

    Attributes:
        profile: what is known of it.
        model: what the machine calls itself; "" if it does not say.
        reason: for people, what made the decision.
    """

    profile: BoardProfile
    model: str
    reason: str


def detect_board(root: Path = Path("/"), architecture: str = "") -> Detection:
    """Detects the board.

    Args:
        root: directory below which Linux's files are read.
        architecture: as `uname -m` prints it; "": that of this process.

    Raises:
        UsageError: no profile fits and there is no generic one of this architecture.
    """
    architecture = architecture or platform.machine()
    architecture = ALIASES.get(architecture.lower(), architecture)
    profiles = load_profiles()
    for file, model in list_models(root):
        for profile in profiles.values():
            if any(is_model(model, known) for known in profile.models):
                return Detection(profile, model, f"{file} says {model!r}")
    generic = profiles.get(f"generic-{architecture}")
    if generic is None:
        raise UsageError(f"architecture = {architecture!r}; there are profiles of {', '.join(profiles)}")
    found = list_models(root)
    said = f"no profile is named like {found[0][1]!r}" if found else "the machine does not name its board"
    return Detection(generic, found[0][1] if found else "", f"{said}; taken as {architecture} in general")


def list_models(root: Path) -> list[tuple[str, str]]:
    """Lists what the machine calls its board: (file, name), the device tree first."""
    cpuinfo = "proc/cpuinfo"
    names = [
        (f"/{name}", read_text(root / name))
        for name in ("proc/device-tree/model", "sys/firmware/devicetree/base/model")
    ]
    names.append((f"/{cpuinfo}", read_fields(root / cpuinfo).get("Model")))
    return [(file, name) for file, name in names if name]


def is_model(said: str, known: str) -> bool:
    """Is it this model, or a revision of it? "Raspberry Pi 4 Model B Rev 1.4" is, "Raspberry Pi 400" is not a 4."""
    return said == known or said.startswith(f"{known} ")
