"""What the README shows is run as it stands there: settings files, commands and code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_sdk.data.samples import Cut, samples_of
from edge_sdk.replay.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.synth import write_traces

pytest.importorskip("torch", reason="the aggregator needs torch")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
TOML = {name: body for name, body in re.findall(r"```toml\n# (\S+)\n(.*?)```", README, re.DOTALL)}
BROKER = "mqtt://127.0.0.1:1883"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a reader would be: the bundle and two generated traces are here."""
    shutil.copy(ROOT / "models" / "shipped" / "wrist.bundle", tmp_path)
    write_traces(tmp_path / "traces", devices=2, seed=7, minutes=2.0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def broker() -> Iterator[str]:
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed (apt install mosquitto)")
    with Mosquitto() as running:
        yield running.url


def write_files(folder: Path, broker: str, **replaced: str) -> None:
    second = TOML["synth-01.toml"].replace("synth-01", "synth-02")
    for name, text in {**TOML, "synth-02.toml": second}.items():
        for old, new in replaced.items():
            text = text.replace(old, new)
        (folder / name).write_text(text.replace(BROKER, broker))


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "edge_sdk.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said


def test_the_three_terminals(folder: Path, broker: str) -> None:
    write_files(folder, broker)
    terminals = [start("aggregator", "cloud.toml"), start("hospital", "--once", "north.toml")]
    terminals.append(start("device", "--once", "synth-01.toml", "synth-02.toml"))
    for terminal in terminals:
        ended(terminal)
    for name in ("metrics.jsonl", "model.npz", "result.json"):
        assert (folder / "state" / "cloud" / name).exists()


def test_embedding_the_sdk(folder: Path, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The application of the first job takes the place of the second device."""
    write_files(folder, broker, **{'["synth-01", "synth-02"]': '["synth-01", "watch-7"]'})
    others = [start("aggregator", "cloud.toml"), start("hospital", "--once", "north.toml")]
    others.append(start("device", "--once", "synth-01.toml"))
    samples = samples_of(Cut(Path("traces/synth-02.csv")))
    train, held_out = samples.train, samples.held_out
    given = {"x": train.x, "labels": train.labels, "x_held": held_out.x, "labels_held": held_out.labels}
    embed = next(code for code in CODE if "from edge_sdk import Device" in code)
    exec(embed.replace(BROKER, broker), given)
    for other in others:
        ended(other)
    predicted = re.findall(r"'(\w+)'", capsys.readouterr().out)
    assert len(predicted) == 5 and set(predicted) <= set(re.findall(r'"(\w+)"', TOML["cloud.toml"]))


def test_replay_from_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")
    code = next(code for code in CODE if "edge_sdk.replay" in code)
    exec(code, {})
    assert "personalised" in capsys.readouterr().out.splitlines()[-1]


def test_a_device_goes_through_a_whole_run_without_torch_and_onnx(folder: Path, broker: str) -> None:
    write_files(folder, broker)
    script = (
        "import sys; from edge_sdk.cli import main; code = main(sys.argv[1:]);"
        "print('LOADED', sorted({m.split('.')[0] for m in sys.modules})); sys.exit(code)"
    )
    others = [start("aggregator", "cloud.toml"), start("hospital", "--once", "north.toml")]
    others.append(start("device", "--once", "synth-02.toml"))
    command = [sys.executable, "-c", script, "device", "--once", "synth-01.toml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    for other in others:
        ended(other)
    loaded = set(re.findall(r"'(\w+)'", done.stdout[done.stdout.index("LOADED") :]))
    assert {"numpy", "onnxruntime", "paho", "msgpack"} <= loaded
    assert not loaded & {"torch", "onnx", "onnxscript", "amqtt", "aggregator", "models"}
    assert (folder / "state" / "synth-01" / "result.json").exists()


def test_every_file_that_the_readme_names_exists() -> None:
    """The "Where is ...?" table and the rest: paths in backquotes with a slash or a file ending."""
    named = set(re.findall(r"`((?:edge_sdk|aggregator|models|hardware|tests|benchmarks)/[\w./-]*)`", README))
    assert len(named) > 15
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert not missing
