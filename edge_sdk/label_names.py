"""Names of labels as people type them, wherever they come from: which are one, and which can stand in a set."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from edge_sdk.errors import UsageError

NORMAL = "normal"
"""What windows are called that nobody calls abnormal, where anomalies are looked for."""
JOIN, NONE = "+", "none"
"""What stands between the labels of a set, wherever they come from; what the empty set is called, which is not the same
as no label at all."""
STEP_JOIN = "|"
"""What stands between the classes of a window's steps, one after another, where these are one text."""
LONGEST_NUMBER = 18
"""Digits of a name that is taken for a number."""
DIVIDES = ","
"""What stands between names in options and cells of CSV; no label of a set may have it, or it would be cut in two."""


def clean_label(text: str) -> str:
    """A label without spaces around it, in one form of Unicode: the same word is the same class."""
    return unicodedata.normalize("NFC", text.strip())


@lru_cache(maxsize=4096)
def label_key(text: str) -> str:
    """What all spellings of one label have in common: spaces around it, forms of Unicode, widths of letters as East
    Asian keyboards write them, upper and lower case do not differ."""
    if text.isascii():
        return text.strip().casefold()
    narrow = "".join(unicodedata.normalize("NFKC", c) if is_wide(c) else c for c in text)
    return unicodedata.normalize("NFC", clean_label(narrow).casefold())


def is_wide(sign: str) -> bool:
    """Is it a sign of full or half width that there is in the usual width, too?"""
    return unicodedata.decomposition(sign).startswith(("<wide>", "<narrow>"))


def is_number(name: str) -> bool:
    """Is it a whole number, 0 or more, as a class may be called?"""
    return name.isdecimal() and len(name) <= LONGEST_NUMBER


def in_order(names: Iterable[str]) -> list[str]:
    """Names of classes in the order of a model's outputs: by value where all are whole numbers, else as texts."""
    found = list(names)
    return sorted(found, key=lambda name: (int(name), name)) if all(map(is_number, found)) else sorted(found)


def check_set_name(name: object) -> str:
    """The name of a label that can stand in a set, clean. Raises UsageError for one that would be read otherwise."""
    clean = clean_label(name) if isinstance(name, str) else ""
    key = label_key(clean)
    if not key or key == NONE or JOIN in key or DIVIDES in key:
        raise UsageError(
            f"a label called {name!r:.60}; {JOIN!r} joins labels, a comma divides names, {NONE!r} is no label"
        )
    return clean


def write_set(names: Iterable[object]) -> str:
    """A set of labels as a text, each name once, in order; NONE: the empty one.

    Raises:
        UsageError: a name would be read as something else.
    """
    return JOIN.join(sorted({label_key(name): name for name in map(check_set_name, names)}.values())) or NONE


def check_separator(sign: str) -> None:
    """Raises UsageError for what cannot stand between the labels of a set."""
    if not sign or sign.strip() != sign or sign[:1].isalnum():
        raise UsageError(f"separator = {sign!r}: expected a sign that is in no label, such as '+', '|' or ';'")
