"""What the README and docs/ show is run as it stands there: commands, settings files and code, page by page.

A reader with a copy of the repository types everything in the order of the page. What is shortened, what is only read
by its program, and what stands beside a block is said in the tables below.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.replay.nodes.broker import EmbeddedBroker, Mosquitto, find_mosquitto
from tests.docs.pages import (
    KINDS,
    PAGES,
    Block,
    Command,
    blocks,
    commands,
    file_name,
    is_command,
    named_commands,
    spans,
    text_of,
)
from tests.docs.reader import Reader, free_port
from tests.docs.reading import is_bare, read

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")

SHORTER = {
    r"--rounds \d+": "--rounds 2",
    r"^auscult replay (?!.*--rounds)": "auscult replay --rounds 2 ",
    r"^auscult traces synth (?!.*--(?:minutes|kind sleep))": "auscult traces synth --minutes 2 ",
    r"--budget \d+": "--rounds 2 --budget 2",
    # make demo; networks are tried by the demo of docs/replay.md, where it stands as it is; devices have trees in the
    # replay of docs/data.md
    r"replay --demo$": "replay --demo --bundle features --rounds 2 --no-local-only --no-neighbours --settle trees=0",
    r"^(auscult replay traces --hospitals 1 --method fedavg)": r"\1 --bundle features --no-local-only --no-neighbours",
    # neighbours are in the reports of tests/replay/test_neighbours.py
    r"simulate\(data, rounds=5\)": "simulate(data, rounds=2, neighbours=0)",
    r"--devices 4 --seed 7": "--devices 2 --seed 7",
    r"--devices 6 --minutes 8 --seed 7": "--devices 2 --minutes 4 --seed 7",
    r"^(auscult replay .*breast-cancer)": r"\1 --hospitals 1 --devices 2",
}
"""What is typed shorter than it stands on the pages and in the Makefile: the same commands on less data."""

AS_IT_STANDS = {"docs/replay.md": (r"replay --demo$",)}
"""What is not shortened on a page: it shows the lines of training alone."""

READ_ONLY = {
    "needs mnist.npz": "the images are not in the repository",
    "needs braindecode": "the library is not among those that tests have",
    "needs a fleet": "tests/system/test_living_fleet.py does what the page tells",
    "takes port 8080": "tests/system/test_living_fleet.py starts it at another one",
    "needs the package of this page": "tests/tools/test_plugins.py installs it, and uses all of it",
    "takes minutes": "measurements, and tests that have a command of their own",
    "make test": "it is the test that runs here",
}
"""What a page says of a command that no test runs -> why. Its program still reads its options."""

BESIDE = {
    "from edge_sdk import Device": """
from pathlib import Path
from edge_sdk.data.cut import Cut
from edge_sdk.data.data_table import samples_of
samples = samples_of(Cut(Path("traces/synth-02.csv")))
train, held_out = samples.train, samples.held_out
x, labels, x_held, labels_held = train.x, train.labels, held_out.x, held_out.labels
""",
}
"""The beginning of a block of Python -> what its text takes for granted."""

AFTERWARDS = {
    "model = Model(": "assert accuracy > 0.9\n",
    "device.stop()": """
assert {*device.predict(x_held[:5]).labels} <= {*device.part.current.classes}
assert (Path("state/watch-7") / "first.npz").exists()
""",
}
"""A line of a block of Python -> what has to be true after it."""


@pytest.fixture
def reader(tmp_path: Path, page: str) -> Iterator[Reader]:
    """With a broker where the pages have one, at another port."""
    shorter = {old: new for old, new in SHORTER.items() if old not in AS_IT_STANDS.get(page, ())}
    with Mosquitto() if find_mosquitto() else EmbeddedBroker() as broker:
        ports = {"1883": broker.url.rpartition(":")[2], "8883": str(free_port()), "9100": str(free_port())}
        one = Reader(tmp_path, {**{rf"\b{old}\b": new for old, new in ports.items()}, **shorter})
        yield one
        one.leave()


LONG = tuple(
    f"docs/{name}.md"
    for name in (
        *(
            "boards",
            "bring-your-model",
            "first-method",
            "first-run",
            "methods",
            "python",
            "replay",
            "simulate",
            "tuning",
        ),
    )
)
"""Pages whose commands take eight seconds or more; `make test` only has their programs read them."""


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.long) if p in LONG else p for p in PAGES])
def test_a_page_from_top_to_bottom(page: str, reader: Reader) -> None:
    for block in blocks(page):
        assert block.kind in KINDS, f"{block}: kind {block.kind!r}, there are {KINDS}"
        if missing := programs_missing(block):
            pytest.skip(f"{block} and what follows: no {missing} on this machine")
        try:
            follow(block, reader)
        except AssertionError as error:
            raise AssertionError(f"{block}: {error}") from error
    reader.stop()
    if page == "docs/operate.md":
        missing = [name for name in spans(page) if name.startswith("state/") and not (reader.directory / name).exists()]
        assert not missing, f"{page} says that there are {missing} after a run"
        loaded = {*(reader.directory / "loaded-device").read_text().split()}
        assert {"numpy", "onnxruntime", "paho", "msgpack"} <= loaded
        assert not loaded & {"torch", "onnx", "onnxscript", "amqtt", "aggregator", "edge_sdk.models"}


def follow(block: Block, reader: Reader) -> None:
    """Do what a block says."""
    name = file_name(block)
    if block.kind == "sh":
        reader.do([command for command in commands(block) if why_not(command) is None])
    elif name:
        reader.write(name, block.text)
    elif block.kind == "python":
        before = "".join(code for text, code in BESIDE.items() if text in block.text)
        after = "".join(code for text, code in AFTERWARDS.items() if text in block.text)
        if "device.start()" in block.text:
            start_beside(reader)
        reader.run_python(before + block.text + after)
    elif block.kind == "text":
        looks_alike(block, reader)


def why_not(command: Command) -> str | None:
    """Why a command is not run, or None if it is."""
    known = (why for said, why in READ_ONLY.items() if command.needs.startswith(said) or command.text == said)
    return next(known, None if not command.needs else f"{command.needs}: not in READ_ONLY")


def programs_missing(block: Block) -> str:
    words = [command.words[0] for command in commands(block)] if block.kind == "sh" else []
    needed = ["openssl" for word in words if word == "auscult" and "provision" in block.text] + words
    ours = ("auscult", "python")
    return next((word for word in needed if word not in ours and shutil.which(word) is None), "")


def start_beside(reader: Reader) -> None:
    """The application of the README takes the place of the second device of docs/operate.md."""
    reader.run("cp models/shipped/wrist.bundle . && auscult traces synth traces --devices 2 --minutes 2")
    for block in blocks("docs/operate.md"):
        if (name := file_name(block)) and "secure" not in name:
            reader.write(name, block.text.replace('["synth-01", "synth-02"]', '["synth-01", "watch-7"]'))
    for service in ("aggregator cloud.toml", "hospital north.toml", "device synth-01.toml"):
        reader.start(f"auscult {service}")


# What is printed ------------------------------------------------------------------------------------------------
NUMBER = re.compile(r"\d[\d.,:-]*")


def looks_alike(block: Block, reader: Reader) -> None:
    """Most lines of an example of output are as in what was printed, with other numbers."""
    reader.wait()
    if not reader.printed:
        return
    shown, printed = masked(block.text), masked(reader.printed)
    known = [line for line in shown if line in printed]
    missing = "\n".join(line for line in shown if line not in printed)
    assert len(known) >= 0.6 * len(shown), f"it does not look like what is printed. Not there:\n{missing}"


def masked(text: str) -> list[str]:
    """Lines without numbers, names of traces, and the width of columns."""
    lines = [re.sub(r"\b(?:[fm]|synth-)\d+\b", "NAME", line) for line in text.splitlines()]
    return [" ".join(NUMBER.sub("#", line).split()) for line in lines if line.strip(" .-")]


# What is only read ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one_that_its_program_takes(page: str) -> None:
    typed = [command for block in blocks(page) if block.kind == "sh" for command in commands(block)]
    for command in [*typed, *named_commands(page)]:
        words = command.words
        assert is_command(command), f"{page}: {command.text}: not one of the programs that the tests know"
        try:
            read([*words, "--help"] if is_bare(words) else words)
        except AssertionError as error:
            raise AssertionError(f"{page}: {error}") from error


def test_what_is_not_run_says_so_and_is_known() -> None:
    left = [c for page in PAGES for block in blocks(page) if block.kind == "sh" for c in commands(block)]
    unknown = [command.text for command in left if (why_not(command) or "").endswith("not in READ_ONLY")]
    assert not unknown
    said = {name for name in READ_ONLY if any(c.needs.startswith(name) or c.text == name for c in left)}
    assert said == {*READ_ONLY}, "READ_ONLY has what no page says any more"


def test_what_is_shortened_stands_somewhere() -> None:
    text = "\n".join(c.text for page in PAGES for block in blocks(page) if block.kind == "sh" for c in commands(block))
    text += "\n".join(block.text for page in PAGES for block in blocks(page) if block.kind == "python")
    text += (Path(__file__).parents[2] / "Makefile").read_text()
    assert [old for old in SHORTER if not re.search(old, text, re.MULTILINE)] == []
    assert all(any(text in text_of(page) for page in PAGES) for text in (*BESIDE, *AFTERWARDS))
