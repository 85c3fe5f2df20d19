"""The bundle: one file with everything that a device needs to run and train a model. Read and checked here,
run in model.py.

    8 bytes   b"AUSCULT\\0"
    u32       format version          u32   length of the manifest          32 bytes   sha256 of the manifest
    manifest  JSON; `parts` names every part in order, with size and sha256
    parts     one after the other, nothing between, nothing after

Nothing is unpacked to disk, nothing is compressed, no name in it is ever used as a path. Everything is checked before
anything is run; a bundle that is not right in every byte is refused with a `BundleError` that says what is wrong.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.vectors import Layout, Slot
from edge_sdk.errors import UsageError
from edge_sdk.model import onnx_scan
from edge_sdk.model.dropout import DropSite, count_columns, read_sites
from edge_sdk.model.forms import NATIVE_DOMAIN, list_forms
from edge_sdk.model.manifest import (
    MAX_FILE,
    Json,
    check_augment,
    check_dims,
    check_graph_entry,
    check_inputs,
    check_object,
    is_count,
    read_front,
)
from edge_sdk.model.manifest import BundleError as BundleError
from edge_sdk.model.tasks.signal_spec import SignalSpec, read_class_names, read_signal
from edge_sdk.model.tasks.task import Task, read_task

MAGIC = b"AUSCULT\0"
VERSION = 1
HEADER = struct.Struct("<8sII32s")
MAX_MANIFEST = 4 << 20
MAX_GRAPH = 64 << 20
MAX_NAME = 200  # characters; logs, pages and databases have it
MAX_PARTS = 512
MAX_TOLERANCE = 0.01  # of golden vectors; a bundle cannot switch its own check off
OPSETS = range(17, 22)
# operators of the ONNX standard; those of onnxruntime's own kernels, and of auscult-native, only in variants and forms
# that are marked as such
PLAIN_DOMAINS = frozenset({"", "ai.onnx"})
BLOCKED_DOMAINS = PLAIN_DOMAINS | {"com.microsoft", "com.microsoft.nchwc"}
BLOCKED_SUFFIX = "+blocked"
LOSSES = (
    *("cross_entropy", "soft_cross_entropy", "binary_cross_entropy", "mean_squared_error", "huber"),
    *("masked_squared_error", "masked_huber"),
)
DTYPES = ("float32", "int64")
REPORT = "report.json"  # what was measured when it was made: not part of the identity

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Bundle:
    """A checked bundle.

    Attributes:
        manifest: as written, see models/README.md.
        parts: name -> bytes.
        layout: where each parameter lies in theta. buffers: likewise for running statistics (size 0: there are none).
        sha256: identity: over the manifest and all parts but the report.
        path: file that it was read from; None: none.
    """

    manifest: Json
    parts: Mapping[str, memoryview]
    layout: Layout
    buffers: Layout
    sha256: str
    path: Path | None = None

    @property
    def theta0(self) -> npt.NDArray[np.float32]:
        return np.frombuffer(self.parts["theta0"], "<f4").astype(np.float32)

    @property
    def buffers0(self) -> npt.NDArray[np.float32]:
        return np.frombuffer(self.parts.get("buffers0", b""), "<f4").astype(np.float32)

    @property
    def drop_sites(self) -> tuple[DropSite, ...]:
        """Places of the network that drop values at random in training."""
        return read_sites(self.manifest.get("dropout", []))

    @property
    def own_gradient(self) -> bool:
        """True if its gradient is not the derivative of what it predicts: the network stops some, or brings its own."""
        return bool(self.manifest.get("own_gradient"))

    @property
    def is_split(self) -> bool:
        """Is its network divided between the parties that hold parts of each sample?"""
        return bool(self.manifest.get("split"))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the outputs where no run has told others; empty: the bundle does not say."""
        names = self.manifest.get("class_names")
        return () if names is None else read_class_names(names, self.manifest["classes"])

    @property
    def task(self) -> Task:
        """What it predicts."""
        return task_of(self.manifest)

    @property
    def signal(self) -> SignalSpec | None:
        """What the input is a window of; None: of no signal, or the bundle does not say."""
        entry = self.manifest.get("signal")
        return None if entry is None else read_signal(entry, self.manifest["inputs"])

    @property
    def augment(self) -> Mapping[str, float]:
        """Augmentation that devices train with where the run does not say otherwise, as in `data.augment.Augment`."""
        return dict(self.manifest.get("augment", {}))

    @property
    def report(self) -> Json:
        return check_object(json.loads(bytes(self.parts.get(REPORT, b"{}"))), REPORT)

    def golden(self) -> dict[str, Array]:
        """Arrays of the self-test, named in.* and out.*"""
        return read_golden(self.manifest, self.parts["golden"])


def read_bundle(path: str | Path) -> Bundle:
    """Read and check a bundle file.

    Raises:
        BundleError: naming what is wrong.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_FILE:
            raise BundleError(f"{path}: {size:,} bytes, a bundle has at most {MAX_FILE:,}")
        data = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return replace(parse(data), path=path)
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from error.__cause__


def parse(data: bytes) -> Bundle:
    """Checks the bytes of a bundle, and reads them."""
    manifest, start = parse_manifest(data)
    parts = cut_parts(manifest, memoryview(data)[start:])
    try:
        check_manifest(manifest, parts)
        layout = read_layout(parts, "layout.json", "theta0", manifest["parameters"])
        count = manifest["buffers"]
        buffers = read_layout(parts, "buffers.json", "buffers0", count) if count else Layout(())
        for name, entry in manifest["graphs"].items():
            for form, native in list_forms(name, entry, layout, parts):
                check_graph(name, form, native)
        check_golden(manifest, parts["golden"])
        check_object(json.loads(bytes(parts.get(REPORT, b"{}"))), REPORT)
    except BundleError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, UsageError, RecursionError) as error:
        raise BundleError(f"the manifest or a part is malformed: {type(error).__name__}: {error}") from error
    return Bundle(manifest, parts, layout, buffers, compute_identity(manifest))


def parse_manifest(data: bytes) -> tuple[Json, int]:
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise BundleError("not a bundle: it does not begin with AUSCULT")
    _, version, length, digest = HEADER.unpack_from(data)
    if version != VERSION:
        raise BundleError(f"format version {version}, this release reads version {VERSION}")
    if length > MAX_MANIFEST:
        raise BundleError(f"a manifest of {length:,} bytes, at most {MAX_MANIFEST:,} are allowed")
    text = data[HEADER.size : HEADER.size + length]
    if hashlib.sha256(text).digest() != digest:
        raise BundleError("the manifest is damaged or cut short: its sha256 is not the one in the header")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"the manifest is no JSON: {error}") from error
    return check_object(manifest, "the manifest"), HEADER.size + length


def cut_parts(manifest: Json, body: memoryview) -> dict[str, memoryview]:
    """Cuts the file into its parts: every byte belongs to one, and every hash is right."""
    listed = manifest.get("parts")
    if not isinstance(listed, list) or len(listed) > MAX_PARTS:
        raise BundleError(f"the manifest's parts must be a list of at most {MAX_PARTS}")
    parts: dict[str, memoryview] = {}
    at = 0
    for i, entry in enumerate(listed):
        name, size, digest = read_part_entry(entry, i)
        if name in parts:
            raise BundleError(f"two parts are named {name!r}")
        if at + size > len(body):
            raise BundleError(f"cut short: part {name!r} needs {size:,} bytes, {len(body) - at:,} are left")
        parts[name] = body[at : at + size]
        at += size
        if hashlib.sha256(parts[name]).hexdigest() != digest:
            raise BundleError(f"part {name!r} is damaged: its sha256 is not the one in the manifest")
    if at != len(body):
        raise BundleError(f"{len(body) - at:,} bytes after the last part")
    return parts


def read_part_entry(entry: Any, i: int) -> tuple[str, int, str]:
    fields = check_object(entry, f"parts[{i}]")
    name, size, digest = fields.get("name"), fields.get("size"), fields.get("sha256")
    if not isinstance(name, str) or not isinstance(digest, str) or not is_count(size):
        raise BundleError(f"parts[{i}]: expected name, size and sha256, got {str(fields)[:100]}")
    if not name or "/" in name or "\\" in name or ".." in name or not name.isprintable() or len(name) > 100:
        raise BundleError(f"parts[{i}]: {name[:100]!r} is no name of a part")
    return name, int(str(size)), digest


def task_of(manifest: Json) -> Task:
    """The task that a manifest names. UsageError: it is wrong."""
    inputs = manifest["inputs"]
    single = len(inputs) == 1 and inputs[0].get("dtype") == "float32"
    shape = inputs[0]["shape"] if single else ()
    return read_task(manifest.get("task"), manifest["classes"], manifest.get("output", []), shape)


def compute_identity(manifest: Json) -> str:
    kept = {**manifest, "parts": [p for p in manifest["parts"] if p["name"] != REPORT]}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_manifest(manifest: Json, parts: Mapping[str, memoryview]) -> None:
    for key in ("parameters", "buffers", "classes", "max_batch"):
        if not is_count(manifest.get(key)):
            raise BundleError(f"{key} = {str(manifest.get(key))[:50]!r}, expected a count")
    if not manifest["parameters"] or not manifest["max_batch"]:
        raise BundleError("parameters and max_batch start at 1")
    if manifest.get("min_batch", 1) not in (1, 2):
        raise BundleError(f"min_batch = {str(manifest['min_batch'])[:50]!r}, expected 1 or 2")
    if manifest.get("own_gradient", True) is not True:
        raise BundleError(f"own_gradient = {str(manifest['own_gradient'])[:50]!r}, expected true where it is given")
    check_inputs(manifest.get("inputs"))
    if manifest.get("class_names") is not None:
        read_class_names(manifest["class_names"], manifest["classes"])
    if manifest.get("task") is not None:
        task_of(manifest)
        loss = manifest.get("loss")
        if (wanted := manifest["task"].get("loss", loss)) != loss:
            raise BundleError(f"loss = {str(loss)[:50]!r}, expected {wanted} for task {manifest['task']['kind']}")
    if manifest.get("signal") is not None:
        read_signal(manifest["signal"], manifest["inputs"])
    check_augment(manifest.get("augment", {}))
    if count_columns(read_sites(manifest.get("dropout", []))) > MAX_FILE:
        raise BundleError(f"dropout has masks of more than {MAX_FILE:,} entries per sample")
    if manifest.get("loss") not in LOSSES:
        raise BundleError(f"loss = {str(manifest.get('loss'))[:50]!r}, expected one of {', '.join(LOSSES)}")
    name = manifest.get("name")
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= MAX_NAME:
        raise BundleError(f"name = {str(name)[:50]!r}, expected 1 to {MAX_NAME} printable characters")
    for name, entry in check_object(manifest.get("graphs"), "graphs").items():
        if f"{name}.onnx" not in parts:
            raise BundleError(f"graph {name!r} has no part {name}.onnx")
        check_graph_entry(name, check_object(entry, f"graphs.{name}"))
    if not {"theta0", "layout.json", "golden"} <= set(parts):
        raise BundleError("one of the parts theta0, layout.json, golden is missing")
    read_front(manifest)
    runtime = check_object(manifest.get("runtime"), "runtime")
    versions = check_object(runtime.get("onnxruntime"), "runtime.onnxruntime")
    if not isinstance(versions.get("minimum"), str) or not isinstance(versions.get("blocked"), list):
        raise BundleError("runtime.onnxruntime needs `minimum` and `blocked`")


def check_graph(name: str, data: memoryview, native: bool = False) -> None:
    """Checks that a graph has only known operators (in its native form also the library's), and no files beside it."""
    if len(data) > MAX_GRAPH:
        raise BundleError(f"graph {name!r} has {len(data):,} bytes, at most {MAX_GRAPH:,} are allowed")
    try:
        facts = onnx_scan.scan(data)
    except (ValueError, KeyError) as error:
        raise BundleError(f"graph {name!r} is no ONNX file: {error}") from error
    if facts.forbidden:
        raise BundleError(f"graph {name!r} has {', '.join(sorted(facts.forbidden))}")
    allowed = BLOCKED_DOMAINS if name.endswith(BLOCKED_SUFFIX) else PLAIN_DOMAINS
    if strange := sorted((facts.domains | {*facts.opsets}) - allowed - ({NATIVE_DOMAIN} if native else set())):
        raise BundleError(f"graph {name!r} uses custom operators, of {', '.join(strange)}")
    opset = facts.opsets.get("", 0)
    if opset not in OPSETS:
        raise BundleError(f"graph {name!r} is written for opset {opset}, expected {OPSETS[0]} to {OPSETS[-1]}")


def read_layout(parts: Mapping[str, memoryview], name: str, values: str, count: int) -> Layout:
    slots = tuple(
        Slot(str(s["name"]), tuple(int(d) for d in s["shape"]), int(s["offset"]), s["kind"], str(s["group"]))
        for s in json.loads(bytes(parts[name]))
    )
    layout = Layout(slots)
    if layout.size != count:
        raise BundleError(f"{name} has {layout.size:,} numbers, the manifest says {count:,}")
    if len(parts[values]) != 4 * count:
        raise BundleError(f"{values} has {len(parts[values]):,} bytes, {count:,} float32 need {4 * count:,}")
    numbers = np.frombuffer(parts[values], "<f4")
    if np.isnan(numbers).any() or (values == "theta0" and np.isinf(numbers).any()):  # a buffer may be a mask of -inf
        raise BundleError(f"{values} has numbers that are not finite")
    return layout


def check_golden(manifest: Json, data: memoryview) -> None:
    """Checks that all arrays of the self-test are there, and that its limits are small enough to mean something."""
    arrays = read_golden(manifest, data)
    needed = {f"out.{k}" for k in ("logits", "loss", "grad", "grad_at", "grad_norms")} | {"in.y", "in.weights"}
    needed |= {f"in.{i['name']}" for i in manifest["inputs"]}
    needed |= {"in.masks.seed"} if manifest.get("dropout") else set()
    if needed - set(arrays):
        raise BundleError(f"golden: {', '.join(sorted(needed - set(arrays)))} is missing")
    for name in ("logits", "loss", "grad"):
        limit = manifest["golden"]["tolerance"].get(name)
        if not isinstance(limit, float) or not 0 < limit <= MAX_TOLERANCE:
            raise BundleError(f"golden tolerance of {name} = {str(limit)[:50]!r}, expected up to {MAX_TOLERANCE}")


def read_golden(manifest: Json, data: memoryview) -> dict[str, Array]:
    arrays = {}
    for entry in manifest["golden"]["arrays"]:
        name, dtype, shape = entry["name"], entry["dtype"], entry["shape"]
        check_dims(f"golden {name}", shape)
        if dtype not in DTYPES or not is_count(entry["offset"]):
            raise BundleError(f"golden {name}: dtype {dtype!r} at {entry['offset']!r}")
        kind = np.dtype(dtype).newbyteorder("<")
        count = int(np.prod(shape, dtype=np.int64)) if shape else 1
        if count < 0 or entry["offset"] + count * kind.itemsize > len(data):
            raise BundleError(f"golden {name}: outside its part")
        arrays[name] = np.frombuffer(data, kind, count, entry["offset"]).reshape(shape)
    return arrays
