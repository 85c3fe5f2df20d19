"""Plug-ins that do what none should: end the program, print, lie about what they are. Each costs itself alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.catalog import make_sensor
from edge_sdk.methods import METHODS
from edge_sdk.plugins import hash_plugin
from tests.installing import Install, installing

GOOD = "import edge_sdk\nX = edge_sdk.method('good', local=lambda device, w, own: (device.sgd(w), own))\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    with installing(tmp_path / "site", monkeypatch) as put:
        yield put


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Name -> fault, as `auscult plugins --json` has them."""
    assert main(["plugins", "--json"]) == 1
    return {one["name"]: one["fault"] for one in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("raise SystemExit('no licence')", "SystemExit: no licence"),
        ("class Stop(BaseException): pass\nraise Stop('stopped')", "Stop: stopped"),
        ("print('hello')\nX = 3", "a int; expected a Method"),
        ("X = 3\nX = X.there", "AttributeError"),
    ],
)
def test_a_plugin_that_ends_the_program_when_it_is_imported(
    install: Install, capsys: pytest.CaptureFixture[str], code: str, said: str
) -> None:
    install("odd", {"method": "bad = odd:X\ngood = well:X"}, {"odd.py": code, "well.py": GOOD})
    found = listed(capsys)
    assert said in found["bad"] and "odd:X of odd 1.0" in found["bad"] and found["good"] == ""
    with pytest.raises(UsageError, match=r"method bad, odd:X of odd 1\.0"):
        METHODS["bad"]
    assert main(["simulate", "breast-cancer", "--method=bad"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("well:Box.inner.X", ""),
        ("well:Box.inner.lost", "AttributeError"),
        ("well:X [fast]", ""),
        ("well:Box", "a type; expected a Method"),
        ("well", "a module; expected a Method"),
        ("not a place", "'not a place' is no module:object"),
        (":X", "':X' is no module:object"),
    ],
)
def test_the_form_of_an_entry_point(
    install: Install, capsys: pytest.CaptureFixture[str], value: str, said: str
) -> None:
    code = GOOD + "class Box:\n    class inner:\n        X = X\n"
    install("odd", {"method": f"good = {value}", "sensor": "lost = nowhere:X"}, {"well.py": code})
    assert said in listed(capsys)["good"] if said else not listed(capsys)["good"]
    hash_plugin("method", "good")  # of which results are kept: it can be had of each


def test_a_list_of_entry_points_that_cannot_be_read_costs_its_package_alone(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("torn", {"method": "a name without a place"}, {})
    install("well", {"method": "good = well:X"}, {"well.py": GOOD})
    found = listed(capsys)
    assert found["good"] == "" and "entry points of torn cannot be read" in found["torn"]
    assert METHODS["good"].name == "good" and "good" in [*METHODS]


def test_names_that_no_run_can_have(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("odd", {"method": "Good One = well:X"}, {"well.py": GOOD.replace("'good'", "'Good One'")})
    assert "small letters, digits" in listed(capsys)["Good One"]


def test_settings_of_a_method_are_a_dataclass(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    code = GOOD + "from dataclasses import replace\nX = replace(X, settings=dict)\n"
    install("odd", {"method": "good = well:X"}, {"well.py": code})
    assert "settings are a type, expected a dataclass" in listed(capsys)["good"]


def test_a_plugin_that_ends_the_program_at_work(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers and sensors are loaded first, and used later."""
    code = "import sys\nread = make = lambda *_: sys.exit(0)\n"
    reading = code + "takes = lambda path: path.suffix == '.x'\n"
    install("odd", {"reader": "a = reading\nb = taking", "sensor": "s = odd:make"}, {
        "odd.py": code, "reading.py": reading, "taking.py": code + "takes = make\n"})  # fmt: skip
    (tmp_path / "ann.x").write_text("")
    with pytest.raises(UsageError, match=r"sensor s, odd:make of odd 1\.0: SystemExit: 0"):
        make_sensor("s:desk")
    for name in "ab":
        command = ["traces", "import", str(tmp_path / "ann.x"), str(tmp_path / "out"), f"--reader={name}"]
        assert main(command) == 2
        assert f"reader {name}, " in (told := capsys.readouterr().err) and "SystemExit: 0" in told


def test_what_a_plugin_prints_is_not_among_results(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("loud", {"method": "good = well:X"}, {"well.py": "print('welcome')\n" + GOOD})
    assert main(["plugins", "--json"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)[0]["fault"] == "" and "welcome" in found.err
