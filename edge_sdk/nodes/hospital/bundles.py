"""The bundles that a hospital knows, and which of its devices have which."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_sdk.atomic import write_bytes
from edge_sdk.contract.run import Run, checked_name
from edge_sdk.errors import UsageError
from edge_sdk.methods.rollout.messages import VersionTaken
from edge_sdk.model.bundle import Bundle, parse, read_bundle
from edge_sdk.nodes.configuration.around import is_rollout
from edge_sdk.nodes.models.working_model import bundle_path


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Devices of a hospital that have another bundle than its others.

    Attributes:
        bundle: file with their compiled model.
        devices: their names.
    """

    bundle: Path
    devices: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.devices:
            checked_name(name, "devices")


class BundleShelf:
    """The bundles that a hospital knows: that of its settings, those of its kinds of devices, and those that rollouts
    have brought.

    Args:
        own: that of the settings.
        kinds: bundle -> devices that have this one.
        directory: of the hospital.
    """

    def __init__(self, own: Bundle, kinds: Mapping[str, tuple[Bundle, tuple[str, ...]]], directory: Path):
        self.own, self.kinds, self.directory = own, dict(kinds), directory

    def find(self, run: Run) -> Bundle:
        """The bundle of a run; the settings' one, where that of the run is not known. Raises UsageError: it is
        damaged."""
        if run.bundle == self.own.sha256:
            return self.own
        if run.bundle in self.kinds:
            return self.kinds[run.bundle][0]
        brought = bundle_path(self.directory, run.bundle)
        return read_bundle(brought) if brought.exists() else self.own

    def keep(self, message: VersionTaken) -> None:
        """Keep the bundle that a rollout brings: later runs may be for it."""
        found = parse(message.bundle.tobytes())
        path = bundle_path(self.directory, found.sha256)
        if found.sha256 != self.own.sha256 and not path.exists():
            write_bytes(path, message.bundle.tobytes())

    def list_devices(self, run: Run, devices: Collection[str]) -> tuple[str, ...]:
        """The devices, among these, that a run is for: those that it names, or all, that have its bundle."""
        others = {name for _, names in self.kinds.values() for name in names}
        if is_rollout(run):
            found = tuple(devices)
        elif run.bundle in self.kinds:
            found = tuple(name for name in devices if name in self.kinds[run.bundle][1])
        else:
            found = tuple(name for name in devices if name not in others)
        return tuple(name for name in found if not run.devices or name in run.devices)

    def count_devices(self, devices: Collection[str]) -> dict[str, int]:
        """sha256 of a bundle -> how many of these devices have it by the settings."""
        counts = {sha256: len({*devices} & {*names}) for sha256, (_, names) in self.kinds.items()}
        return {self.own.sha256: len(devices) - sum(counts.values()), **counts}


def make_shelf(own: str | Path, kinds: Mapping[str, Kind], directory: Path) -> BundleShelf:
    """The bundles of a hospital's settings. Raises UsageError: one cannot be read, or two kinds have one bundle or a
    device in common."""
    shelf = BundleShelf(read_bundle(own), {}, directory)
    owner: dict[str, str] = {}
    for name, kind in kinds.items():
        bundle = read_bundle(kind.bundle)
        if bundle.sha256 in (shelf.own.sha256, *shelf.kinds):
            raise UsageError(f"kinds.{name}.bundle = {str(kind.bundle)!r}: other devices have that already")
        if twice := sorted({*kind.devices} & owner.keys()):
            raise UsageError(f"kinds.{name}: {twice[0]} is of kind {owner[twice[0]]} already")
        owner |= dict.fromkeys(kind.devices, name)
        shelf.kinds[bundle.sha256] = bundle, kind.devices
    return shelf
