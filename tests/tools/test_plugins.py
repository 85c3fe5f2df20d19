"""Plug-ins: the package of docs/plugins.md, installed in a folder, by its names; and packages that cannot be used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.data.traces.form import Stated
from edge_sdk.data.traces.read import read_trace
from edge_sdk.errors import UsageError
from edge_sdk.hardware.sensors.catalog import KINDS, make_sensor
from edge_sdk.hardware.sensors.sensor import opened
from edge_sdk.methods import METHODS
from edge_sdk.plugins import hash_plugin
from edge_sdk.replay.imports.recording import recorded_arrays
from tests.docs.pages import blocks, file_name
from tests.installing import Install, installing

PAGE = "docs/plugins.md"
RECORDING = {
    "time": [1_700_000_000 + n / 32 for n in range(96)],
    "activity": ["rest"] * 48 + ["walk"] * 48,
    **{axis: [n % 7 + place for n in range(96)] for place, axis in enumerate(("ax", "ay", "az"))},
}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    with installing(tmp_path / "site", monkeypatch) as put:
        yield put


@pytest.fixture
def shown(install: Install) -> None:
    """The package that the page shows, installed."""
    toml = next(block.text for block in blocks(PAGE) if block.kind == "toml")
    offered = re.findall(r'"auscult\.(\w+)s"\]\n(.*?)(?=\n\n|\n?\Z)', toml, re.DOTALL)
    files = {file_name(block): block.text for block in blocks(PAGE) if file_name(block)}
    install("wrist-pack", {kind: lines.replace('"', "") for kind, lines in offered}, files)


@pytest.mark.usefixtures("install")
def test_nothing_is_listed_where_nothing_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    assert "no other package" in capsys.readouterr().out


@pytest.mark.usefixtures("shown")
def test_all_that_the_page_shows_works(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="a network is a torch module")
    assert main(["plugins"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "method half-way, our_method:HALF_WAY of wrist-pack 1.0: works",
        "network slim, our_network:Slim of wrist-pack 1.0: works",
        "reader strap, our_reader of wrist-pack 1.0: works",
        "sensor sway, our_sensor:make_sway of wrist-pack 1.0: works",
        "task grades, our_task:Grades of wrist-pack 1.0: works",
    ]


@pytest.mark.usefixtures("shown")
def test_a_method_of_the_page_is_in_the_catalogue() -> None:
    assert METHODS["half-way"].name == "half-way" and "half-way" in [*METHODS]
    with pytest.raises(UsageError, match="half-way: there is one of that name"):
        METHODS.check_name("half-way")


@pytest.mark.usefixtures("shown")
def test_a_reader_of_the_page_makes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, made = tmp_path / "recordings", tmp_path / "traces"
    source.mkdir()
    (source / "ann.strap").write_text(json.dumps(RECORDING))
    (source / "bob.strap").write_text("{")
    (source / "cem.csv").write_text("time,ax,activity\n0,1,rest\n1,2,rest\n")
    assert main(["traces", "import", str(source), str(made)]) == 0
    told = capsys.readouterr().out
    trace = read_trace(made / "ann.csv")
    assert trace.channels == ("ax", "ay", "az") and trace.rate_hz == pytest.approx(32, rel=1e-3)
    assert [trace.classes[code] for code in trace.codes[[0, -1]]] == ["rest", "walk"]
    assert "read by strap, our_reader of wrist-pack 1.0" in told
    assert re.search(r"left out .*bob\.strap: reader strap, our_reader of wrist-pack 1\.0: JSONDecodeError", told)
    assert (made / "cem.csv").is_file()
    assert main(["traces", "import", str(source), str(tmp_path / "own"), "--reader=strap"]) == 0
    assert sorted(path.name for path in (tmp_path / "own").glob("*.csv")) == ["ann.csv"]


@pytest.mark.usefixtures("shown")
def test_a_sensor_of_the_page_is_read() -> None:
    with opened(make_sensor("sway:desk,rate=500")) as sensor:
        found = [reading for _ in range(3) for reading in sensor.read(1.0)]
    assert (sensor.name, sensor.rate_hz, len(found)) == ("desk", 500, 3)
    with pytest.raises(UsageError, match="colour is no option of sway"):
        make_sensor("sway:desk,colour=red")
    with pytest.raises(UsageError, match="edf, sway"):
        make_sensor("no-such-thing:desk")


@pytest.mark.usefixtures("shown")
def test_a_network_of_the_page_is_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="a network is compiled")
    bundle = tmp_path / "slim.bundle"
    compiling = ["bundle", "compile", "slim", "--search=0", f"-o={bundle}"]
    assert main(compiling) == 2
    assert "slim has no size of its own: --input and --classes" in capsys.readouterr().err
    assert main([*compiling, "--input=3,64", "--classes=4", "--arg", "width=5"]) == 0
    from edge_sdk.model.bundle import read_bundle
    from edge_sdk.research.fleets.modules import find_file

    assert int(read_bundle(bundle).manifest["classes"]) == 4
    assert find_file("slim") == "slim"
    with pytest.raises(UsageError, match=r"model = 'slin': .*slim"):
        find_file("slin")


def test_another_version_of_a_network_is_compiled_anew(install: Install, tmp_path: Path) -> None:
    from edge_sdk.replay.planning.bundles import hash_inputs

    install("nets", {"network": "flat = nets:Flat"}, {"nets.py": "Flat = 1"})
    package = tmp_path / "compiler"
    first = hash_inputs(package, ["flat"], hash_plugin("network", "flat"))
    (tmp_path / "site" / "nets.py").write_text("Flat = 2")
    assert hash_inputs(package, ["flat"], hash_plugin("network", "flat")) != first
    assert hash_plugin("network", "wrist") == ""
    assert hash_inputs(package, ["wrist"], "") == hash_inputs(package, ["wrist"])


# What cannot be used ----------------------------------------------------------------------------------------------
def faults(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["plugins", "--json"]) == 1
    return [one["fault"] for one in json.loads(capsys.readouterr().out)]


def test_names_of_our_own_cannot_be_taken(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="names of networks")
    ours, edf = METHODS["ditto"], KINDS["edf"]
    names = {"method": "ditto = bad:X", "network": "wrist = bad:X", "reader": "text = bad:X", "sensor": "edf = bad:X"}
    install("bad-names", names, {"bad.py": "raise RuntimeError('loaded')"})
    assert METHODS["ditto"] is ours and KINDS["edf"] is edf
    told = faults(capsys)
    assert [line.partition(",")[0] for line in told] == ["method ditto", "network wrist", "reader text", "sensor edf"]
    assert all("bad:X of bad-names 1.0: the name is one of Auscult's own" in line for line in told)


def test_one_name_of_two_packages_is_nobodys(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("one", {"sensor": "sway = one:make"}, {"one.py": ""})
    install("two", {"sensor": "sway = two:make"}, {"two.py": ""})
    with pytest.raises(UsageError, match=r"one:make of one 1\.0 and two:make of two 1\.0: 2 packages have one"):
        make_sensor("sway:desk")
    assert len({*faults(capsys)}) == 1


def test_what_cannot_be_loaded_is_told_with_its_package_and_the_reason(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="a network is asked for")
    lines = {kind: f"lost = theirs_{kind}:X" for kind in ("method", "network", "reader", "sensor")}
    install("lost-pack", lines, {f"theirs_{kind}.py": f"import {kind}_missing" for kind in lines})
    of = "of lost-pack 1.0: ModuleNotFoundError: No module named "
    told = faults(capsys)
    assert told == [f"{kind} lost, theirs_{kind}:X {of}'{kind}_missing'" for kind in lines]
    with pytest.raises(UsageError, match=r"method lost.*method_missing"):
        METHODS["lost"]
    assert main(["record", "lost:desk", str(tmp_path / "out")]) == 2
    assert main(["bundle", "compile", "lost"]) == 2
    (tmp_path / "a.strange").write_text("")
    assert main(["traces", "import", str(tmp_path / "a.strange"), str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert [re.findall(r"(\w+)_missing", line) for line in told] == [["sensor"], ["network"], ["reader"]]


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("method", "X = 3", "a int; expected a Method"),
        ("method", "import edge_sdk; X = edge_sdk.method('other')", "calls itself other; both must be one name"),
        ("network", "X = 3", "a int; expected a class or function that builds a torch module"),
        ("network", "def X(classes): pass", "it is called as mine(input=(3, 64), classes=14)"),
        ("reader", "def X(path): pass", "a function without takes and read"),
        ("sensor", "X = 3", "a int; expected a function (target, options, root)"),
    ],
)
def test_what_is_no_plugin_of_its_kind(
    install: Install, capsys: pytest.CaptureFixture[str], kind: str, code: str, said: str
) -> None:
    if kind == "network":
        pytest.importorskip("torch", reason="a network is asked for")
    install("odd", {kind: "mine = odd:X"}, {"odd.py": code})
    (told,) = faults(capsys)
    assert told.startswith(f"{kind} mine, odd:X of odd 1.0: ") and said in told


def test_a_sensor_that_is_none(install: Install) -> None:
    code = "import types\ndef bare(*_): return types.SimpleNamespace(name='x')\ndef lost(*_): return {}['x']\n"
    install("odd", {"sensor": "bare = odd:bare\nlost = odd:lost"}, {"odd.py": code})
    with pytest.raises(UsageError, match=r"odd:bare of odd 1\.0: it makes a SimpleNamespace without channels, units"):
        make_sensor("bare:x")
    with pytest.raises(UsageError, match=r"odd:lost of odd 1\.0: KeyError: 'x'"):
        make_sensor("lost:x")


def test_two_readers_of_one_file_have_to_be_told_apart(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "takes = lambda path: path.suffix == '.x'\nread = lambda *_: [3]\n"
    install("two", {"reader": "a = two\nb = two"}, {"two.py": code})
    (tmp_path / "ann.x").write_text("")
    command = ["traces", "import", str(tmp_path / "ann.x"), str(tmp_path / "out")]
    assert main(command) == 2
    assert "readers a and b take it; choose one with --reader" in capsys.readouterr().err
    assert main([*command, "--reader=a"]) == 2
    assert "reader a, two of two 1.0: it yields a int, expected a Recorded" in capsys.readouterr().err
    assert main([*command, "--reader=c"]) == 2
    assert "reader c: no installed package has one of this name" in capsys.readouterr().err


def test_arrays_of_a_reader_are_checked() -> None:
    given = {"time": [0, 1, 2], "values": [[1, 2]] * 3, "channels": ("x", "y")}
    found = recorded_arrays(Path("f"), "ann", Stated(channels=("y",)), **given, labels=["", "a", "a"])
    assert found.rows.channels == ("y",) and found.rows.values[:, 0].tolist() == [2, 2, 2]
    assert [found.rows.words[code] for code in found.rows.codes] == ["", "a", "a"] and not found.dated
    with pytest.raises(UsageError, match=r"f: time \(3,\), values \(3, 2\), 2 channels, 1 labels"):
        recorded_arrays(Path("f"), "ann", Stated(), **given, labels=["a"])
    with pytest.raises(UsageError, match="no channel 'z' among x, y"):
        recorded_arrays(Path("f"), "ann", Stated(channels=("z",)), **given)


@pytest.mark.usefixtures("shown")
def test_a_device_that_uses_none_looks_for_none() -> None:
    """It reads no list of installed packages, and loads none of theirs."""
    code = "import sys; from edge_sdk import Device, DevicePolicy, METHODS; METHODS['ditto']\n"
    code += "from edge_sdk.hardware.sensors.catalog import make_sensor; make_sensor('mpu6050:1')\n"
    code += "from edge_sdk.nodes.policy.allow import Allow; Allow(methods=('ditto',))\n"
    code += "from edge_sdk.plugins import entries_of; print(entries_of.cache_info().misses, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    looked, *loaded = done.stdout.split()
    assert looked == "0" and not [name for name in loaded if name.startswith("our_")]
