"""Examples in docstrings as code: the site's generator knows them only below a heading, and would quote them."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^[ \t]*>>>.*\n?(?:^[ \t]*(?!>>>)\S.*\n?)*)+", re.MULTILINE)


class Doctests(griffe.Extension):
    """A fence around each example, which reaches to the next empty line."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = EXAMPLE.sub(fenced, obj.docstring.value)


def fenced(found: re.Match[str]) -> str:
    return f"```pycon\n{found[0].rstrip()}\n```\n"
