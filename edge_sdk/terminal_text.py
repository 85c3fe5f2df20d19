"""Text on a terminal, on which what others have written is text: a label, a name of a file or of a device may hold
characters that move the cursor, change what stands there already, or set the window's title."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO, cast

KEPT = "\n\t\r"
"""Of the characters that are none to print: commands have lines and progress bars."""


class TerminalText:
    """A stream of a terminal whose other control characters are seen, as \\x1b, in place of being obeyed."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def visible(text: str) -> str:
    """A text with every character that is none to print, but those of KEPT, as its escape."""
    return "".join(c if c.isprintable() or c in KEPT else ascii(c)[1:-1] for c in text)


def shown(stream: TextIO) -> TextIO:
    """The stream, if it is a terminal as `TerminalText`: what a program reads on stays as it is."""
    is_terminal = stream is not None and stream.isatty()  # None: the process was started with it closed
    return cast(TextIO, TerminalText(stream)) if is_terminal else stream
