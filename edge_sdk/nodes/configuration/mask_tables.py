"""The [masks] tables of devices and hospitals: where the keys of secret sums lie. secrets/mask_keys.py reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_sdk.wire.options import take_paths


@dataclass(frozen=True, kw_only=True)
class DeviceKeys:
    """The [masks] table of a device's file.

    Attributes:
        key: its private key.
        aggregator: file with the aggregator's public key.
        peers: file with the public keys of all devices of its hospital, for sums that these open. It is read again
            when it has changed.
    """

    key: Path
    aggregator: Path
    peers: Path | None = None

    def __post_init__(self) -> None:
        take_paths(self, "key", "aggregator", "peers")


@dataclass(frozen=True, kw_only=True)
class HospitalKeys:
    """The [masks] table of a hospital's file, for sums over hospitals.

    Attributes:
        key: its private key.
        hospitals: file with the public keys of all hospitals, its own among them or not.
    """

    key: Path
    hospitals: Path

    def __post_init__(self) -> None:
        take_paths(self, "key", "hospitals")
