"""Brokers for demo and tests, each in a process of its own that ends with ours. In the field a broker is a service.

with EmbeddedBroker() as broker:      # amqtt: nothing to install but the extra `replay`
    ... broker.url ...
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from edge_sdk.errors import UsageError

HOST = "127.0.0.1"
START = 20.0  # seconds that a broker may take to listen
TRIES = 5  # another process may take the free port before the broker does

# A child cannot outlive this: it reads its standard input, which closes when we die, however that happens.
AMQTT = """
import asyncio, logging, os, sys, threading
logging.disable(logging.CRITICAL)
def watch():
    sys.stdin.buffer.read()
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
from amqtt.broker import Broker
from amqtt.mqtt.connect import ConnectPayload
read = ConnectPayload.from_stream.__func__
async def read_or_refuse(cls, reader, fixed, variable):  # by itself it waits for ever in a connect of MQTT 5
    return await read(cls, reader, fixed, variable) if variable.proto_level == 4 else cls("?")
ConnectPayload.from_stream = classmethod(read_or_refuse)
async def main():
    config = {"listeners": {"default": {"type": sys.argv[2], "bind": sys.argv[1]}},
              "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}}
    await Broker(config).start()
    await asyncio.Event().wait()
asyncio.run(main())
"""

# mosquitto does not look at its standard input, so a small parent of its own does.
GUARD = """
import os, subprocess, sys, threading
broker = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def watch():
    sys.stdin.buffer.read()
    broker.kill()
threading.Thread(target=watch, daemon=True).start()
code = broker.wait()
os._exit(code if code >= 0 else 1)
"""

MOSQUITTO = """
set_tcp_nodelay true
persistence false
max_inflight_messages 0
max_queued_messages 100000
log_dest none
"""


class LocalBroker(ABC):
    """A broker on a free port of this machine, as a context manager.

    Args:
        port: to listen on; None: a free one.
    """

    def __init__(self, port: int | None = None):
        self.wanted = port
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self, port: int) -> Sequence[str]:
        """What is run; it listens on this port, and ends when its standard input does."""

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"mqtt://{HOST}:{self.port}"

    def start(self) -> None:
        """Starts the broker, and returns when it takes connections.

        Raises:
            UsageError: it does not start.
        """
        for _ in range(TRIES):
            self.port = self.wanted or find_free_port()
            self.process = subprocess.Popen(
                self.command(self.port), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if wait_until_listening(self.port, self.process):
                return
            self.kill()
        raise UsageError(f"{type(self).__name__} does not start on port {self.port}")

    def kill(self) -> None:
        """Ends the broker at once: its standard input closes, and the process that watches it kills the broker."""
        if self.process is None:
            return
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.process = None

    def __enter__(self) -> LocalBroker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.kill()


class EmbeddedBroker(LocalBroker):
    """amqtt. Speaks MQTT 3.1.1; good for a demo and for tests, not for a hospital.

    Args:
        port: to listen on; None: a free one.
        web: over websockets.

    Raises:
        UsageError: amqtt is not installed.
    """

    def __init__(self, port: int | None = None, web: bool = False):
        self.web = web
        if importlib.util.find_spec("amqtt") is None:
            raise UsageError("the embedded broker needs amqtt: pip install 'auscult[replay]', or name a broker by URL")
        super().__init__(port)

    def command(self, port: int) -> Sequence[str]:
        return [sys.executable, "-c", AMQTT, f"{HOST}:{port}", "ws" if self.web else "tcp"]

    @property
    def url(self) -> str:
        return f"{'ws' if self.web else 'mqtt'}://{HOST}:{self.port}"


class Mosquitto(LocalBroker):
    """mosquitto from its package, with the settings that this wire wants.

    Args:
        port: to listen on; None: a free one.
        settings: further lines of its configuration.

    Raises:
        UsageError: there is none on this machine.
    """

    def __init__(self, port: int | None = None, settings: str = ""):
        self.binary = find_mosquitto()
        if self.binary is None:
            raise UsageError("mosquitto is not installed (Debian: apt install mosquitto)")
        super().__init__(port)
        self.settings = settings
        self.directory = Path(tempfile.mkdtemp(prefix="mosquitto-"))

    def command(self, port: int) -> Sequence[str]:
        assert self.binary is not None
        config = self.directory / "mosquitto.conf"
        user = "user root\n" if os.geteuid() == 0 else ""
        config.write_text(f"listener {port} {HOST}\nallow_anonymous true\n{user}{MOSQUITTO}{self.settings}\n")
        return [sys.executable, "-c", GUARD, self.binary, "-c", str(config)]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def find_mosquitto() -> str | None:
    """Path of the mosquitto binary, also where it is in no user's path; None: not installed."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def find_free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as s:
        s.bind((HOST, 0))
        port: int = s.getsockname()[1]
        return port


def wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Waits for a process to take connections on a port; False: it has ended, or START seconds are over."""
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False
