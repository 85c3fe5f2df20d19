"""A reader of the documentation: a copy of the repository, a broker, and a shell in which commands are typed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import warm
from tests.docs.pages import ROOT, Command

PATIENCE = 300.0  # seconds that a command or a run may take
LINKED = ("edge_sdk", "aggregator", "models", "hardware", "benchmarks", "tests", "pyproject.toml")
SERVICES = ("auscult aggregator", "auscult hospital", "auscult device", "mosquitto ")

# Writes at its end which packages it has loaded: a device must not need torch.
AUSCULT = """#!{python}
import sys
from edge_sdk.cli import main
code = main()
names = {{".".join(name.split(".")[:k]) for name in sys.modules for k in (1, 2)}}
print("LOADED", *sorted(names), file=open("loaded-" + sys.argv[1], "w"))
sys.exit(code)
"""
MODULE = '#!/bin/sh\nexec "{python}" "$@"\n'


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@dataclass
class Service:
    """A command that stays. `said`: the file that has its output."""

    command: str
    process: subprocess.Popen[bytes]
    said: Path

    @property
    def ends(self) -> bool:
        """It ends by itself, with the run."""
        return self.command.startswith("auscult aggregator") or "--once" in self.command


@dataclass
class Reader:
    """Types commands in a directory of its own.

    Args:
        directory: an empty one.
        replaced: text of the pages -> what is typed in its place: ports, and what is shortened.

    Attributes:
        printed: what the commands of the latest block have printed.
    """

    directory: Path
    replaced: Mapping[str, str]
    running: list[Service] = field(default_factory=list)
    printed: str = ""

    def __post_init__(self) -> None:
        for name in LINKED:
            (self.directory / name).symlink_to(ROOT / name)
        shutil.copytree(ROOT / "docs", self.directory / "docs")
        (self.directory / "Makefile").write_text(self.typed((ROOT / "Makefile").read_text()))
        bin = self.directory / ".venv" / "bin"
        bin.mkdir(parents=True)
        for name, text in (("auscult", AUSCULT), ("python", MODULE)):
            (bin / name).write_text(text.format(python=sys.executable))
            (bin / name).chmod(0o755)
        (self.directory / ".venv" / ".ready").touch()  # as after the first `make`

    def typed(self, text: str) -> str:
        """A text of a page as this reader types it."""
        for old, new in self.replaced.items():
            text = re.sub(old, new, text, flags=re.MULTILINE)
        return text

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.directory / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PYTHONPATH": str(self.directory), "OMP_NUM_THREADS": "1"}

    # -- files and programs

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(self.typed(text))

    def run_python(self, code: str) -> None:
        self.write("block.py", code)
        self.run("python block.py")

    # -- commands

    def do(self, commands: Sequence[Command]) -> None:
        """The commands of one block."""
        self.printed = ""
        if any(is_service(command) for command in commands):
            self.stop(but="mosquitto")
        for command in commands:
            text = self.typed(command.text)
            if text.startswith("mosquitto"):
                self.start_broker(text)
            elif is_service(command):
                self.start(text)
            else:
                self.wait()
                self.run(text)

    def run(self, text: str) -> None:
        if text.startswith("make "):
            recipe = subprocess.run(
                ["make", "-n", *text.split()[1:]], cwd=self.directory, capture_output=True, text=True
            )
            text = recipe.stdout.strip() if is_plain(recipe.stdout.strip()) else text
        if is_plain(text):
            done = warm.auscult(*shlex.split(text)[1:], where=self.directory, environment=self.environment)
            said = done.stdout + done.stderr
            assert done.returncode == 0, f"{text}\n{said}"
            self.printed += said
            return
        done = subprocess.run(
            text,
            shell=True,
            cwd=self.directory,
            env=self.environment,
            timeout=PATIENCE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        self.printed += done.stdout

    def start(self, text: str) -> None:
        said = self.directory / f"service-{len(self.running)}-{time.monotonic_ns()}.log"
        with said.open("wb") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {text}"],
                cwd=self.directory,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.running.append(Service(text, process, said))

    def start_broker(self, text: str) -> None:
        """A mosquitto that root starts becomes another user, who cannot read what root has written here."""
        config = self.directory / text.split()[-1]
        if os.geteuid() == 0:
            config.write_text(config.read_text() + "user root\n")
        port = int(re.findall(r"^listener (\d+)", config.read_text(), re.MULTILINE)[0])
        self.start(text)
        until = time.monotonic() + PATIENCE
        while not is_listening(port):
            assert time.monotonic() < until, self.running[-1].said.read_text()
            time.sleep(0.05)

    # -- services

    def wait(self) -> None:
        """Until the services that end by themselves have ended; what the first of them said is what was printed."""
        ending = [service for service in self.running if service.ends]
        for service in ending:
            try:
                code = service.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                code = -1
            assert code == 0, f"{service.command}: {code}\n{service.said.read_text()}\n{self.others(service)}"
        if ending:
            self.printed = ending[0].said.read_text()
        self.running = [service for service in self.running if not service.ends]

    def others(self, one: Service) -> str:
        return "\n".join(f"{s.command}:\n{s.said.read_text()}" for s in self.running if s is not one)

    def stop(self, but: str = "-") -> None:
        """Ctrl-C in every terminal, but those of one program."""
        self.wait()
        for service in self.running:
            if not service.command.startswith(but):
                service.process.send_signal(signal.SIGINT)
                code = service.process.wait(PATIENCE)
                assert code == 0, f"{service.command}: {code} after Ctrl-C\n{service.said.read_text()}"
        self.running = [service for service in self.running if service.command.startswith(but)]

    def leave(self) -> None:
        """However the page has ended."""
        for service in self.running:
            service.process.kill()
            service.process.wait()


def is_listening(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def is_plain(text: str) -> bool:
    """A command of `auscult` alone, with nothing for the shell."""
    return text.startswith(("auscult ", ".venv/bin/auscult ")) and not set(text) & set("|&;<>$*?`~\n#")


def is_service(command: Command) -> bool:
    return command.text.startswith(SERVICES)
