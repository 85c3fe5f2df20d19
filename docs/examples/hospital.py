"""A hospital in ten minutes: a broker, the service with its console, a hospital and devices that enrol, and a run.

Each line that begins with $ is what an operator types, in a terminal of its own where it goes on. Here a script types
it, on one machine, and ends all of it after the run; with `--stay` it waits, so that you can look at the console. It
needs mosquitto; docs/service.md and docs/operate.md say what is different on several machines: certificates.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import edge_sdk as auscult
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.replay.nodes.broker import Mosquitto
from edge_sdk.replay.planning.bundles import find_shipped_bundle

CLINIC = Path("clinic")


def typed(line: str) -> list[str]:
    print("$ auscult", *line.split(), flush=True)
    return [sys.executable, "-m", "edge_sdk.cli", *line.split()]


def run(line: str) -> str:
    """What a command prints. One that fails ends this."""
    return subprocess.run(typed(line), cwd=CLINIC, check=True, stdout=subprocess.PIPE, text=True).stdout


def start(everything: ExitStack, line: str) -> subprocess.Popen[bytes]:
    """Starts a command that goes on; its log has the name of its settings file."""
    with (CLINIC / f"{Path(line.split()[1]).stem}.log").open("w") as log:
        process = subprocess.Popen(typed(line), cwd=CLINIC, stderr=log)
    everything.callback(process.wait, 60)
    everything.callback(process.terminate)  # the last callback is the first
    return process


def console_of(service: subprocess.Popen[bytes]) -> str:
    """The address that the service tells when it is ready."""
    while not (found := re.search(r"the console is at (\S+)", (CLINIC / "fleet.log").read_text())):
        if service.poll() is not None:
            raise SystemExit((CLINIC / "fleet.log").read_text().splitlines()[-1])
        time.sleep(0.1)
    return found[1]


def enrol(name: str, url: str, of: str = "", has: str = "") -> None:
    """Makes this machine a node: a token of the service, and the command that takes it."""
    token = json.loads(run(f"fleet token --service service --name {name} --approved --json {of}"))["token"]
    print(run(f"enrol {name} --token {token} --at {url} {has}"), end="")


def write_service(broker: str, traces: str) -> None:
    CLINIC.mkdir()
    shutil.copy(find_shipped_bundle("wrist.bundle") or "wrist.bundle", CLINIC)
    (CLINIC / "fleet.toml").write_text(
        f"""name = "cloud"
broker = "{broker}"
directory = "service"
listen = "127.0.0.1:0"
bundles = ["wrist.bundle"]
classes = {json.dumps(load_folder(traces)[0].classes)}
"""
    )


if __name__ == "__main__":
    traces = auscult.Fleet.synthetic(devices=3, minutes=6).data  # what three wearers' watches have recorded
    with Mosquitto() as broker, ExitStack() as everything:
        write_service(broker.url, traces)
        console = console_of(start(everything, "serve fleet.toml"))
        enrol("north", console)
        start(everything, "hospital north/north.toml")
        for name in ("synth-01", "synth-02", "synth-03"):
            enrol(name, console, "--hospital north", f"--trace {traces}/{name}.csv")
            start(everything, f"device {name}/{name}.toml")
        run("runs start --service service --method fedslr --rounds 30 --evaluate-every 10 --id first")
        run("runs wait first --service service")
        print(run("runs show first --service service"))
        print(run("fleet ls --service service"))
        if "--stay" in sys.argv:
            input(f"{console}: Enter ends all of it. ")
