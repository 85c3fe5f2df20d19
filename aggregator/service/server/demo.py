"""`auscult serve --demo`: a broker, hospitals and devices on generated recordings, for somebody who looks at it first.

What runs is what would run in the field: `auscult hospital` and `auscult device` with settings files, over a real
broker. All of it ends with the service, and goes on from where it was at the next start.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.administration.signing import PUBLIC_FILE
from aggregator.service.application.service import FleetService
from aggregator.service.runs.runs import Wanted, add_run, list_runs
from edge_sdk.atomic import make_private_directory, replace_file
from edge_sdk.data.traces.folder import load_folder
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.fleet_report import NAMES
from edge_sdk.nodes.configuration.presets import PLAIN
from edge_sdk.replay.nodes.broker import EmbeddedBroker, LocalBroker, Mosquitto, find_mosquitto
from edge_sdk.replay.nodes.processes import NodeProcesses
from edge_sdk.replay.planning.bundles import compile_network, find_compiler, find_shipped_bundle
from edge_sdk.replay.planning.toml_files import write_toml
from edge_sdk.replay.traces.synth import write_traces

log = logging.getLogger("auscult.service")
DIRECTORY = Path("auscult-demo")
"""Where the demonstration keeps everything, below the working directory."""
TREE = {"north": ("synth-01", "synth-02", "synth-03"), "south": ("synth-04", "synth-05", "synth-06")}
"""Hospital -> its devices."""
MINUTES, SEED = 6.0, 11
LABELLED = 10.0
"""Seconds of each activity that have a label on a device; it labels the others itself, where the run has it do that."""
BUNDLE = "wrist.bundle"
NETWORK = "features"
"""Network of the zoo that is compiled for the recordings; BUNDLE where there is no compiler."""
FIRST = (
    Wanted(method="fedslr", rounds=3000, evaluate_every=100),
    Wanted(method="fedavg", rounds=40, evaluate_every=10, preset=PLAIN),
    Wanted(method="ditto", rounds=40, evaluate_every=10, preset=PLAIN),
)
"""Runs of a demonstration that begins anew: what is recommended for its model, and two methods by themselves."""
CLOUD = "cloud"


class Demo:
    """The processes of a demonstration, as a context manager.

    Args:
        directory: what outlives it.
        port: of its broker; None: any that is free.
        database: URL of the service's database; "": an SQLite file in the directory.

    Attributes:
        file: the settings of the service.

    Raises:
        UsageError: there is no broker or no model for it on this machine.
    """

    def __init__(self, directory: Path, listen: str, port: int | None = None, database: str = ""):
        self.directory, self.listen, self.database = directory.resolve(), listen, database
        self.stack, self.bundle = ExitStack(), Path()
        self.broker: LocalBroker = Mosquitto(port) if find_mosquitto() else EmbeddedBroker(port)
        self.processes = NodeProcesses(self.directory / "logs")

    def __enter__(self) -> Demo:
        make_private_directory(self.directory)
        self.stack.enter_context(self.broker)
        self.classes = prepare_traces(self.directory / "traces")
        self.bundle = prepare_bundle(self.directory / f"{NETWORK}.bundle", self.classes)
        self.stack.enter_context(self.processes)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @property
    def file(self) -> FleetFile:
        return FleetFile(
            name=CLOUD,
            broker=self.broker.url,
            directory=self.directory / "service",
            bundles=(self.bundle,),
            classes=self.classes,
            hospitals={name: len(devices) for name, devices in TREE.items()},
            listen=self.listen,
            database=self.database,
        )

    def start_nodes(self) -> None:
        """Write everybody's settings, and start them."""
        for hospital, devices in TREE.items():
            self.processes.start(hospital, ["hospital", self.write_hospital(hospital, devices)])
        for hospital, devices in TREE.items():
            for device in devices:
                self.processes.start(device, ["device", self.write_device(device, hospital)])

    @property
    def trusted_key(self) -> Path:
        """The service's public key, which it has made before any node is started."""
        return self.file.directory / PUBLIC_FILE

    def write_hospital(self, name: str, devices: tuple[str, ...]) -> Path:
        table = {"name": name, "aggregator": CLOUD, "broker": self.broker.url, "bundle": self.bundle}
        table |= {"directory": name, "devices": list(devices), "enrolled": True, "reports": NAMES}
        table |= {"trusted_key": self.trusted_key}
        return write_toml(self.directory / f"{name}.toml", table)

    def write_device(self, name: str, hospital: str) -> Path:
        table = {"name": name, "hospital": hospital, "broker": self.broker.url, "bundle": self.bundle}
        data = {"trace": f"traces/{name}.csv", "held_out": 0.3, "validation": 0.2, "labelled": LABELLED}
        table |= {"directory": name, "data": data, "trusted_key": self.trusted_key}
        return write_toml(self.directory / f"{name}.toml", table)


def prepare_traces(folder: Path) -> tuple[str, ...]:
    """Generates the recordings, unless they are there, and returns the names of their classes."""
    count = sum(map(len, TREE.values()))
    if len(list(folder.glob("synth-*.csv"))) < count:
        log.info("recordings of %d people are generated", count)
        write_traces(folder, devices=count, seed=SEED, minutes=MINUTES, overwrite=True)
    return load_folder(folder)[0].classes


def prepare_bundle(path: Path, classes: tuple[str, ...]) -> Path:
    """The demonstration's model: as it was at an earlier start, or compiled for these classes, or the one that ships.

    Raises:
        UsageError: there is none on this machine.
    """
    if path.is_file():
        return path
    begun = (path.parent / "service").exists()  # by a version that took the model that ships
    if begun or find_compiler() is None:
        if not begun:
            log.info("no model can be compiled here (pip install 'auscult[aggregator]'): %s is taken", BUNDLE)
        bundle = find_shipped_bundle(BUNDLE)
        if bundle is None:
            raise UsageError(f"{BUNDLE} is missing: this installation of Auscult is not whole")
        return bundle.resolve()
    sizes = ["--input", "3,64", "--classes", str(len(classes)), "--class-names", ",".join(classes)]
    made = compile_network(NETWORK, sizes, SEED, log.info)
    with replace_file(path) as copy, made.open("rb") as source:
        shutil.copyfileobj(source, copy)
    return path


def queue_first_runs(service: FleetService, say: Callable[[str], None]) -> None:
    """Queues the runs of a demonstration, if it has none yet."""
    if not list_runs(service.database):
        for wanted in map(service.registry.complete, FIRST):
            say(f"run {add_run(service.database, wanted, service.file.classes, 'demo')} is queued")
