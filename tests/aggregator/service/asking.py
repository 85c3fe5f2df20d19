"""What a node sends when it asks to be enrolled, for tests that need no HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge_sdk.tools.credentials.own_key import LibraryTool

CLAIM = "c" * 40


def request_of(folder: Path, name: str) -> str:
    tool = LibraryTool()
    tool.make_key(folder / f"{name}.request-key")
    return tool.make_request(folder / f"{name}.request-key", name)


def ask(service: Any, folder: Path, name: str, token: str, **changes: str) -> Any:
    table = {"name": name, "token": token, "claim": CLAIM, "request": request_of(folder, name), **changes}
    return service.desk.ask(table)
