"""Units of channels, as an import or `auscult record` has noted them beside the traces of a folder."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

RECORDED, IMPORTED = "sensors.json", "import.toml"


def read_units(folder: Path) -> dict[str, dict[str, str]]:
    """Device -> channel -> unit; nothing where nothing can be read.

    They are a help for the reader: where they cannot be read, nothing is said of units.
    """
    try:
        if (folder / RECORDED).is_file():
            sensors = json.loads((folder / RECORDED).read_text(encoding="utf-8"))
            return {name: dict(zip(one["channels"], one["units"], strict=True)) for name, one in sensors.items()}
        devices = tomllib.loads((folder / IMPORTED).read_text(encoding="utf-8")).get("device", [])
        return {str(one["name"]): dict(one.get("units", {})) for one in devices}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
