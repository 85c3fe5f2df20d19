"""Promises of docs/wire.md, kept by the services: a small fleet of processes of `auscult`, whose machines may fail.

Each fleet lives through one thing after the other; `python -m tests.soak` brings the same at random, to three
hospitals and twelve devices.
"""

from __future__ import annotations

import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from edge_sdk.cli import main
from edge_sdk.nodes.device.custom_training import Arrays
from edge_sdk.nodes.device.device import Device
from edge_sdk.nodes.device.options import LocalTraining
from edge_sdk.replay.nodes.broker import Mosquitto, find_mosquitto
from edge_sdk.replay.planning.bundles import compile_network
from tests.delivery.fleet import eventually
from tests.delivery.flips import find_unsent, flip_record, flip_unsent
from tests.faults.machine import limit_files, missing
from tests.soak.__main__ import wrong_rounds
from tests.soak.bad_peer import BadPeer, topics_of
from tests.soak.services import EACH, Services

pytest.importorskip("torch", reason="the aggregator needs torch")
pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed (apt install mosquitto)"),
    pytest.mark.skipif(bool(missing()), reason=missing() or "there is a C compiler"),
    pytest.mark.long,
]

TREE = {"north": ["d1", "d2"]}
PATIENCE = 240.0  # seconds; torch alone may take a minute to load
YEAR = 365 * 24 * 3600


@contextmanager
def written(base: Path, tree: dict[str, list[str]]) -> Iterator[tuple[Services, Mosquitto]]:
    """Services that are not started yet, and their broker."""
    bundle = compile_network("mlp", ["--input", "30", "--classes", "2"], 0, lambda line: None)
    with Mosquitto() as broker:
        broker.wanted = broker.port  # the same port after a bounce
        services = Services(base, bundle, broker.url, tree=tree)
        try:
            yield services, broker
        finally:
            services.end()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[tuple[Services, Mosquitto]]:
    """Services at work, whose second round is over, and their broker."""
    with written(tmp_path / "fleet", TREE) as (services, broker):
        services.start_all()
        go_on(services)
        yield services, broker


def go_on(services: Services, rounds: int = 2) -> None:
    """Wait until further rounds are over, with nobody having ended by itself."""
    wanted = services.rounds_done() + rounds

    def done() -> bool:
        for name, process in services.running.items():
            assert process.poll() is None, services.log(name)
        return services.rounds_done() >= wanted

    eventually(done, PATIENCE)


def say(services: Services, name: str, text: str) -> None:
    """Wait until a service has said something."""
    eventually(lambda: text in services.log(name), PATIENCE)


def check_rounds(services: Services) -> None:
    """Each round was told once, and counted each device once."""
    assert wrong_rounds(services) == []
    assert all(line["devices"] == 2 for line in services.metrics() if line["kind"] == "round")


def test_kills_stops_bounces_clocks_and_garbage_leave_every_round_whole(fleet: tuple[Services, Mosquitto]) -> None:
    """P1 to P3, P6, P7, P21, P23, P28, P38."""
    services, broker = fleet
    peer = BadPeer(services.broker, topics_of(TREE), Random(1))
    peer.start()
    try:
        for name in ("cloud", "north", "d1"):
            services.kill(name)
            services.start(name)
            go_on(services)
            services.running[name].terminate()
            assert services.running.pop(name).wait(60) == 0
            services.start(name)
            go_on(services)
        broker.kill()
        broker.start()
        go_on(services)
        for machine in services.machines.values():
            machine.set_clock(YEAR)
        go_on(services)
        for machine in services.machines.values():
            machine.set_clock(-YEAR)
        go_on(services)
    finally:
        peer.stop()
    assert peer.sent and "dropped a frame" in services.log("north")
    check_rounds(services)


def test_a_full_disk_and_too_few_files_stop_a_service_until_that_is_over(fleet: tuple[Services, Mosquitto]) -> None:
    """P15, P38."""
    services, _ = fleet
    for name in services.names:
        services.machines[name].fill_disk(True)
        say(services, name, "cannot save")
        services.machines[name].fill_disk(False)
        go_on(services)
        limit_files(services.running[name].pid, 0)
        go_on(services, 1) if name == "d2" else None
        limit_files(services.running[name].pid, None)
        go_on(services)
    check_rounds(services)


def test_lost_and_damaged_disks_are_noticed_and_the_root_asks_a_person(fleet: tuple[Services, Mosquitto]) -> None:
    """P13, P19, P26, P27."""
    services, _ = fleet
    modes = [p.stat().st_mode for n in services.names for p in (services.base / n).rglob("*") if "synced" not in str(p)]
    assert modes and not any(stat.S_IMODE(mode) & 0o077 for mode in modes)
    for name in ("d1", "north"):
        services.kill(name)
        shutil.rmtree(services.base / name)
        services.start(name)
        go_on(services)
    assert "d1 has lost its memory of this run" in services.log("north")
    assert "north has lost its memory of this run" in services.log("cloud")
    damage(services, "d2")
    services.start("d2")
    say(services, "d2", "is damaged and now in")
    go_on(services)
    restore(services, "north")
    go_on(services)
    check_rounds(services)
    damage(services, "cloud")
    services.start("cloud")
    assert services.running.pop("cloud").wait(PATIENCE) == 2
    assert "put a copy of it back that is whole" in services.log("cloud")


def test_a_wrong_bit_in_what_is_still_to_be_sent_costs_no_round(fleet: tuple[Services, Mosquitto]) -> None:
    """P19, P36: the node goes on as one whose disk is new, its parent asks it again, and each device counts once."""
    services, _ = fleet
    for name, parent in (("d2", "north"), ("north", "cloud")):
        eventually(lambda name=name, parent=parent: dies_with_an_answer(services, name, parent), PATIENCE)
        services.start(name)
        say(services, name, "is damaged and now in")
        say(services, parent, f"{name} has lost its memory of this run")
        go_on(services)
    check_rounds(services)


def dies_with_an_answer(services: Services, name: str, parent: str) -> bool:
    """Kill a service when its answer is on the way, and change a bit of that; False: it was too late, and goes on."""
    store = services.base / name / "soak.db"
    eventually(lambda: find_unsent(store, parent), PATIENCE)
    services.kill(name)
    if flip_unsent(store, parent):
        return True
    services.start(name)
    go_on(services, 1)
    return False


def damage(services: Services, name: str) -> None:
    """Kill a service, and change a bit of what its role has saved."""
    services.kill(name)
    assert flip_record(services.base / name / "soak.db", 7)


def restore(services: Services, name: str) -> None:
    """Put a service back from a backup that was made while it worked, and some rounds ago."""
    file = services.base / f"{name}.backup"
    assert main(["backup", str(services.base / name), str(file)]) == 0
    go_on(services)
    services.kill(name)
    shutil.rmtree(services.base / name)
    assert main(["restore", str(file), str(services.base / name)]) == 0
    services.start(name)


def test_a_second_process_and_a_second_device_of_one_name_end_and_say_why(fleet: tuple[Services, Mosquitto]) -> None:
    """P34, P38."""
    services, _ = fleet
    for name in services.names:
        assert services.spawn(name).wait(PATIENCE) == 2
        assert "another process works in this directory" in services.log(name)
    twin = replace(services, base=services.base / "twin", running={}, machines={}, odd=[])
    second = twin.spawn("d1")
    assert second.wait(PATIENCE) == 2
    assert "another node has the name d1 already; give this one a name of its own" in twin.log("d1")
    go_on(services)
    check_rounds(services)


def test_a_service_that_hangs_holds_up_the_others_for_a_deadline_and_is_named(
    fleet: tuple[Services, Mosquitto], capsys: pytest.CaptureFixture[str]
) -> None:
    """P20, P30, P32, P41: the deadline is set while the run stands still, and who comes late is told so."""
    services, _ = fleet
    services.running["d2"].send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: "d2" in diagnosis(services, capsys), PATIENCE)
        path = services.base / "cloud.toml"
        text = path.read_text().replace("[run]", "[run]\ndeadline = 2\n")
        path.write_text("deadline = 60\n" + text)
        services.running["cloud"].send_signal(signal.SIGHUP)
        go_on(services, 1)
    finally:
        services.running["d2"].send_signal(signal.SIGCONT)
    say(services, "north", "without d2")
    eventually(lambda: services.metrics()[-1].get("devices") == 2, PATIENCE)
    assert wrong_rounds(services) == []


class Trainer:
    """Training code of an application that sends what is no model, until it is told better."""

    honest = False

    def fit(self, parameters: Arrays, config: dict[str, Any]) -> tuple[Arrays, int, dict[str, Any]]:
        return [p if self.honest else p + np.float32(100) for p in parameters], EACH, {"loss": 1.0}

    def evaluate(self, parameters: Arrays, config: dict[str, Any]) -> tuple[float, int, dict[str, Any]]:
        return 1.0, EACH, {"accuracy": 0.5}


def test_a_device_that_sends_garbage_is_suspended_until_somebody_lifts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/robustness.md: each upload is refused and told, three in a row suspend, over restarts, until SIGHUP."""
    with written(tmp_path / "fleet", {"north": ["d1", "d2", "d3"]}) as (services, broker):
        settings = services.base / "cloud.toml"
        settings.write_text(settings.read_text().replace("local_epochs = 4", "local_epochs = 4\nfine_tune_epochs = 0"))
        trainer = Trainer()
        bad = Device(
            "d3", hospital="north", broker=broker.url, bundle=services.bundle, directory=services.base / "d3",
            training=LocalTraining(trainer=trainer),
        )  # fmt: skip
        with bad:
            for name in ("cloud", "north", "d1", "d2"):
                services.start(name)
            say(services, "north", "d3 is suspended: several uploads in a row were refused, the last because its")
            go_on(services)
            services.kill("north")
            services.start("north")
            go_on(services)
            assert count_answers(services) == 2
            assert "d3" in diagnosis(services, capsys)
            trainer.honest = True
            path = services.base / "north.toml"
            path.write_text(path.read_text() + "\n[limits]\nlift = { d3 = 1 }\n")
            services.running["north"].send_signal(signal.SIGHUP)
            eventually(lambda: count_answers(services) == 3, PATIENCE)
        largest = max(np.abs(np.frombuffer(values, np.float32)).max() for values in services.model().values())
        assert largest < 10
        assert wrong_rounds(services) == []


def count_answers(services: Services) -> int:
    """Devices that have answered in the latest round."""
    return int(next(line["devices"] for line in reversed(services.metrics()) if line["kind"] == "round"))


def diagnosis(services: Services, capsys: pytest.CaptureFixture[str]) -> str:
    """What `auscult doctor` says of the hospital."""
    capsys.readouterr()
    main(["doctor", str(services.base / "north.toml")])
    return capsys.readouterr().out
