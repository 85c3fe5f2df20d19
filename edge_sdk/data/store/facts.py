"""What never changes in a sample store that has windows: of which signal these are, and how they are written."""

from __future__ import annotations

import os

from edge_sdk.data.store.cipher import Cipher, DamagedWindow
from edge_sdk.data.store.index import VERSION, SampleIndex
from edge_sdk.errors import UsageError


def settle_facts(index: SampleIndex, shape: tuple[int, int], signal: str, cipher: Cipher, held_out: float) -> bytes:
    """Saves the facts of a store that has none, and checks those of another one. Within a transaction.

    Args:
        signal: of which the windows are cut, in words; "": nobody says. A store that knows none takes it, and one
            without windows takes another.

    Returns:
        The store's own salt, 32 random bytes.

    Raises:
        UsageError: it is a store of something else, or under another key.
    """
    salt = index.fact("salt", os.urandom(32))
    if not index.count_labels() and index.find_fact("shape") != str(shape).encode():
        index.set_fact("shape", str(shape).encode())
    if signal and not index.count_labels() and index.find_fact("signal") != signal.encode():
        index.set_fact("signal", signal.encode())
    if signal and (saved := index.fact("signal", signal.encode()).decode()) != signal:
        raise UsageError(
            f"{index.path}: its windows are of {saved}, and those of this bundle would be of {signal}: they must not "
            "be trained on together. Give the device another directory, or erase what is there: forget() on a device "
            "with the earlier bundle"
        )
    mine = {"version": VERSION, "shape": str(shape), "cipher": cipher.name, "held_out": repr(held_out)}
    for name, value in mine.items():
        saved = index.fact(name, value.encode()).decode()
        if saved != value:
            raise UsageError(f"{index.path}: made with {name} = {saved}, not {value}; erase it, or keep to that")
    token = index.fact("token", cipher.seal(b"auscult", salt))
    try:
        cipher.open(token, salt)
    except DamagedWindow as error:
        raise UsageError(f"{index.path}: {error}") from None
    return salt
