"""A device's keeper of secrets, made of the files that its settings name."""

from __future__ import annotations

from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys
from edge_sdk.nodes.secrets.mask_keys import read_private, read_public
from edge_sdk.nodes.secrets.masks import reading_again
from edge_sdk.nodes.secrets.secret_sharing import DeviceSecrets, cipher


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
    path = files.peers
    peers = reading_again([path], lambda: read_public(path))
    peers()
    return DeviceSecrets(read_private(files.key), peers, run)
