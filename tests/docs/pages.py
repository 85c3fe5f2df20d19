"""The README and the pages of docs/, taken apart into blocks, commands and code spans.

    ```sh       commands, run in the order of the page
    ```python   run; one that begins with "# NAME.py" is written to that file
    ```toml     written to the file that its first line names
    ```text     what a command prints, or a drawing

A command that cannot be run by a test says so where its reader sees it: in a comment of its own line, or in a comment
above it, which holds to the end of the block.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(path.relative_to(ROOT)) for kind in ("*.md", "decisions/*.md") for path in (ROOT / "docs").glob(kind)),
)
PROGRAMS = ("auscult", "python", "make", "mosquitto", "curl", "sed", "cp")
KINDS = ("sh", "python", "toml", "text", "")

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
NEEDS = re.compile(r"(?:needs|takes) .*")


@dataclass(frozen=True)
class Block:
    """One fenced block. `line`: of its fence in the page, from 1 on."""

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command of a block.

    Attributes:
        text: as it stands there, on one line, without its comment.
        needs: why no test runs it, in the words of the page; "" if one does.
    """

    text: str
    needs: str = ""

    @property
    def words(self) -> list[str]:
        """The command without what it is given in its environment."""
        words = shlex.split(self.text)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        return words


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    text = text_of(page)
    return [Block(page, 1 + text.count("\n", 0, found.start()), found[1], found[2]) for found in FENCE.finditer(text)]


def file_name(block: Block) -> str:
    """The file that a block is the content of; "" if it is none."""
    found = re.match(r"# (\S+\.(?:py|toml))\n", block.text)
    return found[1] if found else ""


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block, with what they need."""
    needed = ""
    for line in block.text.replace("\\\n", " ").splitlines():
        code, comment = split_comment(line)
        needs = found[0] if (found := NEEDS.search(comment)) else ""
        needed = needed if code else needs
        if code:
            yield Command(re.sub(r"  +", " ", code), needs or needed)


def split_comment(line: str) -> tuple[str, str]:
    """A line of shell as its code and its comment. No quoted text here has a blank before a `#`."""
    code, _, comment = f" {line}".partition(" #")
    return code.strip(), comment.strip()


def spans(page: str) -> list[str]:
    """The code spans of a page outside its blocks, each on one line."""
    return [" ".join(span.split()) for span in SPAN.findall(FENCE.sub("", text_of(page)))]


def named_commands(page: str) -> list[Command]:
    """Commands in the running text of a page, in its tables, and in blocks that are only indented."""
    indented = re.findall(r"^    (\w+ .*)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    found = [Command(span.removesuffix(" ...")) for span in spans(page) if span.split("=")[0] != span or " " in span]
    found += [Command(split_comment(line)[0]) for line in indented]
    return [command for command in found if is_command(command)]


def is_command(command: Command) -> bool:
    try:
        words = command.words
    except ValueError:
        return False
    return len(words) > 1 and words[0] in PROGRAMS
