"""The doctor finds what is wrong, and only that."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.replay.nodes.broker import EmbeddedBroker, Mosquitto, find_mosquitto
from edge_sdk.tools.diagnostics.doctor import check_onnxruntime

BUNDLE = Path(__file__).parents[2] / "models" / "shipped" / "wrist.bundle"
no_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)")


def found(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> dict[str, dict[str, object]]:
    assert main(["doctor", "--json", *map(str, arguments)]) == code
    return {one["what"]: one for one in json.loads(capsys.readouterr().out)}


def test_a_healthy_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")
    with EmbeddedBroker() as broker:
        findings = found(capsys, 0, "--bundle", BUNDLE, "--broker", broker.url, "--directory", tmp_path)
    assert all(one["good"] is True for one in findings.values())
    assert set(findings) == {"machine", "onnxruntime", "bundle", "disk", "address", "port", "tls", "broker"}
    assert "77518 parameters" in str(findings["bundle"]["detail"])


def test_what_is_not_named_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    findings = found(capsys, 0, "--directory", tmp_path)
    assert findings["broker"]["good"] is None and findings["bundle"]["good"] is None


@no_mosquitto
def test_the_stall_of_a_broker_without_nodelay_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Mosquitto(settings="set_tcp_nodelay false") as broker:
        findings = found(capsys, 1, "--broker", broker.url, "--directory", tmp_path)
    assert findings["broker"]["good"] is False
    assert "set_tcp_nodelay true" in str(findings["broker"]["detail"])


def test_a_broker_that_is_not_there_and_a_broken_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.bundle"
    broken.write_bytes(BUNDLE.read_bytes()[:-7])
    findings = found(capsys, 1, "--bundle", broken, "--broker", "mqtt://127.0.0.1:1", "--directory", tmp_path)
    assert findings["broker"]["good"] is False and "refused" in str(findings["broker"]["detail"]).lower()
    assert findings["bundle"]["good"] is False


def test_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bundle", str(BUNDLE), "--directory", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "ok   onnxruntime" in said and "-    broker" in said


def test_help_of_every_command() -> None:
    for command in (
        [],
        ["device"],
        ["hospital"],
        ["aggregator"],
        ["replay"],
        ["traces", "synth"],
        ["doctor"],
        ["bundle"],
        ["provision"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "edge_sdk.cli", *command, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and "usage: auscult" in done.stdout


def test_the_runtime_is_tried_without_a_second_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under emulation, and in an application with Python inside, `sys.executable` is nothing that could be started."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    finding = check_onnxruntime()
    assert finding.good is True, finding.detail
    assert finding.detail == importlib.metadata.version("onnxruntime")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
        ("raise ImportError('no wheel for this board')", "no wheel for this board"),
        ("import os; os._exit(7)", "code 7"),
    ],
)
def test_a_runtime_that_crashes_at_import_is_a_finding_and_no_crash(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "onnxruntime.py").write_text(code)
    script = (
        "from edge_sdk.tools.diagnostics.doctor import check_onnxruntime as check; f = check(); print(f.good, f.detail)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("False cannot be imported:") and said in done.stdout
