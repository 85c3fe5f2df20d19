"""The settings file of a node that has enrolled: ready to be started where its data are named."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from edge_sdk.atomic import write_text
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.tasks.task import Values
from edge_sdk.model.tasks.task_protocol import FORECAST, RECONSTRUCTION
from edge_sdk.tools.credentials.mask_papers import AGGREGATOR

HEAD = (
    "# Written by `auscult enrol`. What is changed here stays: the command writes this file only where there is none.\n"
)
TRUSTED = 'trusted_key = "trusted.pem"\n'
UNTRUSTED = """# The library cryptography is missing here, so nothing that is signed can be checked.
# To take only what the operator has signed: pip install cryptography, and take the sign away.
# trusted_key = "trusted.pem"
"""
CHANNELS_AND_TIME = 2
"""Axes of a window."""
DATA = """
[data]
trace = {trace}
held_out = 0.3
validation = 0.2
{cut}"""
NO_DATA = """
# What it learns from: name its recordings, and take the signs away.
# [data]
# trace = "recordings.csv"
# held_out = 0.3
# validation = 0.2
{cut}"""
WIRE = """
[wire]
ca = "ca.crt"
certificate = {certificate}
key = {key}
"""


MASKS = """
[masks]
key = {key}
aggregator = {aggregator}
"""


def write_settings(folder: Path, name: str, given: dict[str, Any], bundle: str, trace: Path | None) -> Path:
    """Write the settings file of a device or a hospital, unless it is there, and return its path."""
    path = folder / f"{name}.toml"
    if path.exists():
        return path
    keys: dict[str, Any] = {"name": name}
    keys |= {"hospital": given["hospital"]} if given["kind"] == "device" else {"aggregator": given["aggregator"]}
    keys |= {"broker": given["broker"], "bundle": bundle, "directory": "state"}
    if given["kind"] == "hospital":
        keys |= {"enrolled": True, "reports": "names"}
    text = HEAD + "".join(f"{key} = {to_toml(value)}\n" for key, value in keys.items())
    text += TRUSTED if can_check_signatures() else UNTRUSTED
    if given["kind"] == "device":
        keys_there = (folder / f"{name}.mask.key").exists() and (folder / AGGREGATOR).exists()
        text += MASKS.format(key=to_toml(f"{name}.mask.key"), aggregator=to_toml(AGGREGATOR)) if keys_there else ""
        cut = list_cut(folder / bundle)
        text += (
            NO_DATA.format(cut="".join(f"# {line}\n" for line in cut))
            if trace is None
            else DATA.format(trace=to_toml(str(trace.resolve())), cut="".join(f"{line}\n" for line in cut))
        )
    if given["broker"].startswith(("mqtts:", "wss:")):
        text += WIRE.format(certificate=to_toml(f"{name}.crt"), key=to_toml(f"{name}.key"))
    write_text(path, text)
    return path


def list_cut(path: Path) -> list[str]:
    """Lines of the table [data] that bring a trace to what a bundle takes: windows, rate, steps, what is predicted.

    Raises:
        BundleError: it cannot be read.
    """
    bundle = read_bundle(path)
    signal, task, shape = bundle.signal, bundle.task, tuple(bundle.manifest["inputs"][0]["shape"])
    lines = []
    if signal is not None:
        lines = [f"window = {signal.window}", f"stride = {signal.stride}", f"rate_hz = {signal.rate_hz!r}"]
    elif len(bundle.manifest["inputs"]) == 1 and len(shape) == CHANNELS_AND_TIME:
        lines = [f"window = {shape[-1]}", f"stride = {max(1, shape[-1] // 2)}"]
    if task.steps:
        lines.append(f"steps = {task.steps}")
    if task.kind in (RECONSTRUCTION, FORECAST):
        lines.append("abnormal = []  # or the labels of what is abnormal")
    if isinstance(task, Values):
        known = "" if task.names else "# "  # nobody has said which columns have them
        lines.append(f"{known}target = {to_toml(list(task.names) or ['NAME'])}  # columns of the trace")
    return lines


def can_check_signatures() -> bool:
    """Says whether this machine has what checks the operator's signatures."""
    return importlib.util.find_spec("cryptography") is not None


def to_toml(value: Any) -> str:
    """A text, several, or a truth value; TOML writes them as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def digest_of(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
