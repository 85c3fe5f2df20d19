"""Keys of what a device records: one that cannot be used is found where it is given, not at the first sample."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edge_sdk.data.recording import Recording
from edge_sdk.errors import UsageError
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.wire.options import Wire
from tests.nodes.device.test_live_device import WRIST


def test_a_short_key_is_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    for key, said in ((b"abc", "key: 3 bytes, expected 32"), (tmp_path / "key", "key: 5 bytes, expected 32")):
        with pytest.raises(UsageError, match=re.escape(said)):
            LocalTraining(recording=Recording(key=key))


def test_a_key_that_cannot_be_read_is_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        LocalTraining(recording=Recording(key=tmp_path))


def test_good_keys_and_one_that_is_to_be_made_are_taken(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(32))
    for key in (None, bytes(32), tmp_path / "key", str(tmp_path / "later")):
        LocalTraining(recording=Recording(key=key))
    assert not (tmp_path / "later").exists()


def test_certificates_and_keys_are_named_by_texts_as_by_paths(tmp_path: Path) -> None:
    """A certificate that was named by a text ended the application in an AttributeError."""
    wire, masks = Wire(ca="ca.crt", certificate="a.crt", key="a.key"), DeviceKeys(key="a.mask", aggregator="cloud.pub")  # type: ignore[arg-type]
    assert wire == Wire(ca=Path("ca.crt"), certificate=Path("a.crt"), key=Path("a.key"))
    assert (masks.key, masks.aggregator, masks.peers) == (Path("a.mask"), Path("cloud.pub"), None)
    with pytest.raises(UsageError, match="ca = 7: expected the path of a file"):
        Wire(ca=7)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"ca = 'none.crt': there is no such file"):
        Device("d", hospital="h", broker="mqtts://h", bundle=WRIST, directory=tmp_path, wire=Wire(ca="none.crt"))  # type: ignore[arg-type]
