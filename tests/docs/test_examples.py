"""The examples of docs/ as they stand there, with fewer rounds, seeds and methods."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from edge_sdk.replay.nodes.broker import find_mosquitto

pytest.importorskip("torch", reason="networks are compiled")
pytest.importorskip("cloudpickle", reason="a method of one's own goes to a process of its own")
ROOT = Path(__file__).parent.parent.parent
EXAMPLES = [path for path in sorted((ROOT / "docs" / "examples").glob("*.py")) if path.stem != "ecg_beats"]
"""All but one that is given a record and a cardiologist's marks: tests/system/test_app.py runs it."""
SHORTER = {
    r"rounds=20, seeds=3(?=, plain=True, neighbours=0\))": "rounds=2, seeds=1",  # tests/research has several
    r"rounds=\d+(?!.*neighbours)": "rounds=2, neighbours=0",
    r"rounds=\d+": "rounds=2",
    r"--rounds \d+ --out": "--rounds 2 --no-neighbours --no-local-only --plain --out",
    r"--rounds \d+ --evaluate": "--rounds 2 --evaluate",
    r"--devices 8": "--devices 3 --minutes 2",
    r"--devices 4 --minutes 8": "--devices 3 --minutes 3",
    r"simulate\(data\)": "simulate(data, rounds=2, neighbours=0)",
    r"seeds=[2-9]": "seeds=2",
    r', "dan", "eve", "fay"': "",
    r"in \(1000, 100, 10\)": "in (10,)",
    r"devices=6, minutes=6": "devices=3, minutes=3",
    r"(?s)OTHERS = \[.*?\]": 'OTHERS = ["ditto"]',
    r'\("fedavg", "ditto", "fedslr"\)': '("fedavg", "ditto")',
}
SAYS = {
    "ten_lines": r"personalised +\d+\.\d%",
    "own_network": r"my network +fedavg +1 +personalised",
    "own_method": r"ditto +\+0\.0 points \[\+0\.0, \+0\.0\] against mine",
    "from_traces": r"report recommended/report\.html",
    "study": r"\\bottomrule",
    "epsilon": r"epsilon 10 +[+-]\d+\.\d points",
    "from_loggers": r"decimal commas.*\n(?s:.*)nothing that is wrong shows(?s:.*)report +logged/report.html",
    "heart_rate": r"personalised +\d+\.\d\d bpm\npersonal: \d+ bpm, \d+ to \d+; the strap said \d+",
    "unusual": r"\d+ alarms in [1-9]\d* windows by the personal model",
    "notes": r"notes/bob\.npz",
    "hospital": r"first +finished +fedslr +2/2 .*%(?s:.*)north: 3 of 3 devices here",
    "device_app": r"predicted \w+ 0\.\d+ by the model initial\nlabelled [1-9]\d* windows as \w+",
}
"""Example -> what it must print. Ditto written again is Ditto to the bit where the settings are those recommended."""
LEAVES = {
    "from_loggers": ("traces/import.toml", "traces/check.html"),
    "from_traces": ("comparison.html", "recommended/report.html"),
    "study": ("table.tex", "figures.html", "study/ditto/result.json"),
}


def shortened(text: str) -> str:
    for old, new in SHORTER.items():
        text = re.sub(old, new, text)
    return text


LONG = ("unusual", "own_network", "from_traces", "from_loggers", "heart_rate", "hospital", "epsilon", "study")
NEEDS = {
    "hospital": (
        "no mosquitto, or no service, is installed",
        find_mosquitto() is None or find_spec("starlette") is None,
    )
}
"""Example -> why it cannot run, and whether that is so."""


def marked(path: Path) -> Any:
    marks = [pytest.mark.long] if path.stem in LONG else []
    if path.stem in NEEDS:
        marks.append(pytest.mark.skipif(NEEDS[path.stem][1], reason=NEEDS[path.stem][0]))
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("example", [marked(path) for path in EXAMPLES])
def test_an_example_runs(example: Path, tmp_path: Path, home: Path) -> None:
    script = tmp_path / example.name
    script.write_text(shortened(example.read_text()))
    own = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    own |= {"XDG_CACHE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-W", "error", script], cwd=tmp_path, env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(SAYS[example.stem], done.stdout), done.stdout
    assert all((tmp_path / name).is_file() for name in LEAVES.get(example.stem, ()))


def test_ten_lines_are_ten() -> None:
    """What a user types beside his own data."""
    lines = (ROOT / "docs" / "examples" / "ten_lines.py").read_text().partition("people = ")[2].splitlines()
    assert len(lines) <= 10


def test_ditto_takes_less_than_thirty_lines() -> None:
    text = (ROOT / "docs" / "examples" / "own_method.py").read_text()
    method = text[text.index("def local") : text.index("data = ")]
    assert len(method.splitlines()) <= 30
