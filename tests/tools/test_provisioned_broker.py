"""What was provisioned starts as it is: by whoever made it, by root, and as the service of Debian 12."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge_sdk.replay.nodes.broker import find_free_port, find_mosquitto, wait_until_listening
from tests.wire.sites import Papers, make_site, outcome

BINARY = find_mosquitto()
pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="mosquitto is not installed"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    # paho leaves the socket of a handshake that fails to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory through which other users may pass, as /etc is; those of pytest are closed."""
    with tempfile.TemporaryDirectory(prefix="site-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def started(config: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """mosquitto, as a person or systemd would start it."""
    said = config.with_suffix(".said")
    with said.open("wb") as log:
        process = subprocess.Popen([str(BINARY), "-c", str(config)], stdout=log, stderr=log)
    try:
        assert wait_until_listening(port, process), said.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def owner_of(pid: int) -> str:
    uid = re.search(r"^Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert uid
    return pwd.getpwuid(int(uid[1])).pw_name


def test_it_starts_as_it_was_written(open_directory: Path) -> None:
    """Started by root it becomes `mosquitto`, started by anybody else it stays that user; both can read the files."""
    port = find_free_port()
    make_site(open_directory / "site", port=port)
    site = Papers(open_directory / "site", f"mqtts://127.0.0.1:{port}")
    with started(open_directory / "site" / "broker" / "mosquitto.conf", port) as process:
        assert owner_of(process.pid) == ("mosquitto" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name)
        assert outcome(site.connection("a", site.tls("a"))) == "up"


def test_it_takes_up_a_new_device_when_it_is_told_to_reload(open_directory: Path) -> None:
    port = find_free_port()
    make_site(open_directory / "site", port=port)
    site = Papers(open_directory / "site", f"mqtts://127.0.0.1:{port}")
    with started(open_directory / "site" / "broker" / "mosquitto.conf", port) as process:
        make_site(open_directory / "site", devices=("a", "b", "c"), port=port)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        # without a line in the access list its subscription would be refused
        c = site.connection("c", site.tls("c"), "auscult/v1/h/c/down/+")
        assert outcome(c) == "up"
        c.publish("auscult/v1/doctor/c", b"", 1)
        c.close()


@as_root
def test_as_another_user_than_root(open_directory: Path) -> None:
    """What a person who is not root has made: the same files, but that person's."""
    port = find_free_port()
    make_site(open_directory / "site", port=port)
    for path in (open_directory / "site", *(open_directory / "site").rglob("*")):
        shutil.chown(path, "nobody")
    nobody, config = pwd.getpwnam("nobody"), open_directory / "site" / "broker" / "mosquitto.conf"
    process = subprocess.Popen([str(BINARY), "-c", str(config)], user=nobody.pw_uid, group=nobody.pw_gid, cwd="/")
    try:
        assert wait_until_listening(port, process)
    finally:
        process.kill()
        process.wait()


DEBIAN = """pid_file {run}/mosquitto.pid

persistence true
persistence_location {run}/

log_dest file {run}/mosquitto.log

include_dir {conf}
"""
"""/etc/mosquitto/mosquitto.conf as the package of Debian 12 has it, in other folders."""


@as_root
def test_it_is_installed_as_debians_service(open_directory: Path, tmp_path: Path) -> None:
    """Provisioned anywhere, copied to the broker's machine, installed with one command."""
    port = find_free_port()
    make_site(tmp_path / "site", port=port)  # closed to everybody else
    conf, run = open_directory / "conf.d", open_directory / "run"
    for folder in (conf, run):
        folder.mkdir()
    shutil.chown(run, "mosquitto")
    install = ["sh", str(tmp_path / "site" / "broker" / "install.sh"), str(open_directory / "auscult"), str(conf)]
    subprocess.run(install, check=True, capture_output=True)
    main = open_directory / "mosquitto.conf"
    main.write_text(DEBIAN.format(run=run, conf=conf))
    assert stat.S_IMODE((open_directory / "auscult").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (open_directory / "auscult").iterdir()} == {0o600}
    site = Papers(tmp_path / "site", f"mqtts://127.0.0.1:{port}")
    with started(main, port) as process:
        assert owner_of(process.pid) == "mosquitto"
        assert outcome(site.connection("a", site.tls("a"))) == "up"
    said = (run / "mosquitto.log").read_text()
    assert " Error: " not in said, said  # that of a file; "OpenSSL Error" is of a look whether the port is open
