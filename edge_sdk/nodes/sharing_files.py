"""A device's keeper of secrets, made of the files that its settings name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from edge_sdk.errors import UsageError
from edge_sdk.nodes.masks import DeviceKeys, read_private, read_public
from edge_sdk.nodes.sharing import DeviceSecrets, cipher


def device_secrets(files: DeviceKeys, run: str) -> DeviceSecrets:
    """The keeper of a device's secrets.

    Raises:
        UsageError: a key cannot be used, or no file says which devices its hospital has.
    """
    if files.peers is None:
        raise UsageError(
            "sums that devices open among themselves need the keys of the hospital's devices (masks.peers)"
        )
    cipher()
    peers = reading_peers(files.peers)
    peers()
    return DeviceSecrets(read_private(files.key), peers, run)


def reading_peers(path: Path) -> Callable[[], Mapping[str, bytes]]:
    """A reader of devices' keys, which reads the file again when it has changed."""
    seen: tuple[tuple[int, int, int], Mapping[str, bytes]] | None = None

    def peers() -> Mapping[str, bytes]:
        nonlocal seen
        try:
            found = path.stat()
        except OSError as error:
            raise UsageError(f"{path}: public keys cannot be read: {error.strerror}") from error
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if seen is None or seen[0] != stamp:
            seen = stamp, read_public(path)
        return seen[1]

    return peers
