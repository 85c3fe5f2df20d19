"""Settings files of a replay, written as TOML. On a workstation only: a device reads TOML and never writes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.errors import UsageError


def write_toml(path: Path, table: Mapping[str, Any], head: str = "", lasting: bool = False) -> Path:
    """Writes a settings file that `nodes.settings.read_toml` reads, and makes its folder where it is missing.

    Args:
        table: values as TOML knows them, and paths, which are written as text. A key whose value is None is left out.
        head: lines that stand above it as comments.
        lasting: it survives a power cut from then on.

    Raises:
        UsageError: tomli-w is not installed.
    """
    try:
        import tomli_w
    except ModuleNotFoundError as error:
        raise UsageError("writing settings files needs tomli-w: pip install 'auscult[replay]'") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    comments = "".join(f"# {line}\n" for line in head.splitlines())
    text = comments + tomli_w.dumps(as_toml(table))
    write_text(path, text, lasting)  # for its owner alone: a broker's address may have a password
    return path


def as_toml(value: Any) -> Any:
    """Replaces what TOML has no form for: paths become text, keys without a value are left out."""
    if isinstance(value, Mapping):
        return {key: as_toml(v) for key, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [as_toml(v) for v in value]
    return str(value) if isinstance(value, Path) else value
