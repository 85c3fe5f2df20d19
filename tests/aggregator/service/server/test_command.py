"""Commands on the service's own machine, as somebody types them in this order for the first time."""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from aggregator.service.client.client import ServiceClient, find_service, make_parser
from aggregator.service.server.command import main
from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from edge_sdk.replay.planning.toml_files import write_toml
from edge_sdk.tools.credentials.enrol import Desk
from tests.aggregator.service.conftest import CLASSES, PASSWORD


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    table = {"name": "cloud", "broker": "mqtt://127.0.0.1:1", "directory": "state/service", "classes": list(CLASSES)}
    return write_toml(tmp_path / "fleet.toml", table | {"bundles": [str(find_shipped_bundle("wrist.bundle"))]})


def test_somebody_is_named_before_the_service_is_started_first(
    settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("AUSCULT_PASSWORD", PASSWORD)
    about = ["--service", str(settings)]
    assert main(["people", "add", "ada", "--role", "admin", *about]) == 0
    assert (tmp_path / "state" / "service").stat().st_mode & 0o777 == 0o700
    assert main(["people", "ls", *about]) == 0
    assert main(["audit", "verify", *about]) == 0
    assert main(["service", "backup", str(tmp_path / "b"), *about]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ada                      admin\nok   1 entries, none changed") and PASSWORD not in said
    (tmp_path / "state").rename(tmp_path / "lost")
    assert main(["service", "restore", str(tmp_path / "b"), *about]) == 0
    assert main(["people", "ls", *about]) == 0
    said = capsys.readouterr().out
    assert "ada                      admin" in said
    assert "people, tokens, devices and hospitals removed after that may come again" in said


def test_somebody_who_is_there_is_not_changed_in_silence(
    settings: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever took `add` for a check of the list had made the only admin a viewer, and read nothing."""
    monkeypatch.setenv("AUSCULT_PASSWORD", PASSWORD)
    about = ["--service", str(settings)]
    main(["people", "add", "ada", "--role", "admin", *about])
    assert not caplog.messages
    main(["people", "add", "ada", *about])
    [said] = caplog.messages
    assert said == "ada was there already, as admin: is viewer from now on, with this password; signed out everywhere"


@pytest.mark.parametrize("words", [["people", "ls"], ["audit", "verify"], ["service", "backup", "b"]])
def test_a_service_that_was_never_started_is_said_to_be_none(settings: Path, words: list[str]) -> None:
    with pytest.raises(UsageError, match="no service has been started there"):
        main([*words, "--service", str(settings)])


def test_the_settings_file_names_the_service_to_every_command(settings: Path, tmp_path: Path) -> None:
    """--service was the settings file of some commands and the directory of others, which said "Not a directory"."""
    directory = tmp_path / "state" / "service"
    directory.mkdir(parents=True)
    (directory / "console.json").write_text('{"url": "http://127.0.0.1:9", "token": "t"}')
    for named in (settings, directory):
        options = make_parser().parse_args(["runs", "ls", "--service", str(named)])
        assert find_service(options)[:2] == ("http://127.0.0.1:9", "t")


def test_who_cannot_be_reached_is_said_in_the_systems_words() -> None:
    """It once said <urlopen error [Errno 111] Connection refused>."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))  # nobody listens there
        url = f"http://127.0.0.1:{line.getsockname()[1]}"
        for call in (ServiceClient(url, "t").ask, lambda path: Desk(url).ask(path, {})):
            with pytest.raises(AuscultError, match=f"^{url}: cannot be reached: Connection refused(; does|$)"):
                call("/runs")


@pytest.mark.parametrize(
    "says", [b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000], ids=["no HTTP", "brackets"]
)
def test_who_answers_with_nonsense_costs_no_traceback(says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as line:

        def answer() -> None:
            for _ in range(2):
                asker, _ = line.accept()
                with asker:
                    asker.recv(65536)
                    asker.sendall(says)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{line.getsockname()[1]}"
        for call in (ServiceClient(url, "t").ask, lambda path: Desk(url).ask(path, {})):
            with pytest.raises(AuscultError, match=f"^{url}: "):
                call("/runs")
        thread.join()


def test_a_hospital_writes_no_line_of_the_services_log(
    settings: Path, service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A sender's name could end a line and begin the next one."""
    with pytest.raises(UsageError):
        main(["people", "ls", "--service", str(settings)])
    caplog.set_level(logging.WARNING)
    try:
        service.monitor.take("auscult/v1/cloud/north\nERROR all is lost/up/f", b"{}")
    finally:
        logging.getLogger("auscult.service").filters.clear()
    [said] = caplog.messages
    assert said.isprintable() and "all is lost" in said
