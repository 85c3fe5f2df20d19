"""What somebody at a terminal meets first: options anywhere, closed pipes, busy ports, files that are not there."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from edge_sdk.cli import make_parser
from edge_sdk.errors import UsageError
from edge_sdk.nodes.daemon.prometheus import Endpoint
from edge_sdk.tools.completion import make_script
from edge_sdk.wire.addresses import Tls


def test_a_busy_metrics_port_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"metrics_port = {port}: cannot be listened on"):
            Endpoint(None, port)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["ca", "certificate", "key"])
def test_a_missing_certificate_is_named_as_in_the_settings(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError) as found:
        Tls(**{key: tmp_path / "nope.crt"}).context()
    assert str(found.value) == f"{key} = '{tmp_path / 'nope.crt'}': there is no such file"


def test_a_file_without_certificates_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nothing")
    with pytest.raises(UsageError, match=r"ca = '.*ca.crt': holds no certificates"):
        Tls(ca=tmp_path / "ca.crt").context()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("words", "expected"),
    [(("auscult", "dev"), "device"), (("auscult", "device", "--o"), "--once"), (("auscult", "traces", "syn"), "synth")],
)
def test_a_shell_completes_commands_and_options(tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    (tmp_path / "script").write_text(make_script(make_parser(), "bash"))
    line = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _auscult; echo ${{COMPREPLY[*]}}"
    command = ["bash", "-c", f". {tmp_path / 'script'}; {line}"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert expected in said.stdout.split() and not said.stderr
