"""Keys for secret sums in a service: its own, and the list of what devices have enrolled, from which runs read.

The aggregator's private key is the one that the settings name, or one that the service makes itself. The list is
written anew as a whole whenever the fleet changes, from the database: a device is in it from its approval on, with the
key that came with its request, and one that was replaced or removed is not. A run that goes on reads the list again
when it has changed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.database.database import Row
from edge_sdk.atomic import make_private_directory, write_text
from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys, make_key, read_private

FOLDER, OWN, ENROLLED = "masks", "aggregator.key", "devices.pub"
HEAD = (
    "# Written by the service: public keys of enrolled devices. Others belong into the file that masks.devices names.\n"
)


def mask_keys(file: FleetFile) -> AggregatorKeys:
    """Files of the keys with which runs of a service open secret sums."""
    enrolled = file.directory / FOLDER / ENROLLED
    if file.masks is not None:
        return replace(file.masks, enrolled=enrolled)
    return AggregatorKeys(key=file.directory / FOLDER / OWN, devices=enrolled)


class MaskDesk:
    """The keys of one service."""

    def __init__(self, file: FleetFile):
        self.file, self.keys = file, mask_keys(file)

    @property
    def list_path(self) -> Path:
        return self.file.directory / FOLDER / ENROLLED

    def bring_up(self) -> None:
        """Make the service's own key, where the settings name none and there is none yet."""
        make_private_directory(self.list_path.parent)
        if self.file.masks is None and not self.keys.key.exists():
            make_key(self.keys.key)

    def write_list(self, devices: Iterable[Row]) -> None:
        """Write the list of enrolled devices' keys."""
        self.bring_up()
        lines = [f"{row['name']} {row['mask_key']}\n" for row in devices if row["mask_key"]]
        write_text(self.list_path, HEAD + "".join(sorted(lines)))

    def public_key(self) -> str:
        """The aggregator's public key in base64, for devices. Raises UsageError if there is none that can be used."""
        self.bring_up()
        return base64.b64encode(read_private(self.keys.key).public_key().public_bytes_raw()).decode()
