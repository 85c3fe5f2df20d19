"""A day of faults in some minutes: three hospitals and twelve devices as services over mosquitto.

    python -m tests.soak [--minutes 20] [--seed 1] [--every 4] [--keep FOLDER]

Kills, power cuts, bounces of the broker, full disks, files that cannot be opened, clocks that are set, damaged files
and a hostile publisher. Then it must be so: no service has ended by itself, each round was told once and in its place,
no round counted a device twice, memory, disk and log are flat, and the model is, to the bit, that of an undisturbed
run, if every round counted every device. (A node that is away when a round begins is not asked; such rounds are
counted.)
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from edge_sdk.replay.nodes.broker import Mosquitto
from edge_sdk.replay.planning.bundles import compile_network
from tests.faults.machine import missing
from tests.soak.bad_peer import BadPeer, topics_of
from tests.soak.faults import Faults
from tests.soak.gauges import Gauges
from tests.soak.services import STOPPED, Services, tree

PATIENCE = 180.0  # seconds in which the run must have gone on


def soak(services: Services, broker: Mosquitto, minutes: float, every: float, dice: Random) -> list[str]:
    """Play the faults; returns what is not as it should be."""
    faults, gauges, peer = Faults(services, broker, dice), Gauges(services), None
    services.start_all()
    wait_for_rounds(services, 2)
    peer = BadPeer(services.broker, topics_of(tree()), Random(dice.random()))
    peer.start()
    end, seen = time.monotonic() + 60 * minutes, time.monotonic()
    while time.monotonic() < end:
        time.sleep(dice.expovariate(1 / every))
        services.note_ended()
        faults.make_one()
        if time.monotonic() > seen + 5:
            gauges.look()
            seen = time.monotonic()
            say(services, faults, peer)
    peer.stop()
    faults.end_all()
    stuck = wait_for_rounds(services, services.rounds_done() + 12)
    gauges.look()
    status = services.stop_all()
    for name in services.names:
        print(gauges.summary(name))
    print(f"faults: {dict(faults.made)}; {peer.sent} messages of a bad peer; {services.rounds_done()} rounds")
    odd = [f"{name} ended by itself with status {code}" for name, code in services.odd]
    odd += [f"{name} was stopped and ended with status {code}" for name, code in status.items() if code not in STOPPED]
    return stuck + odd + wrong_rounds(services) + gauges.grown()


def say(services: Services, faults: Faults, peer: BadPeer) -> None:
    done = sum(faults.made.values())
    print(f"\r{services.rounds_done()} rounds, {done} faults, {peer.sent} bad messages ", end="", file=sys.stderr)


def wait_for_rounds(services: Services, wanted: int) -> list[str]:
    """Wait until so many rounds are done; returns what is wrong, if none ends for a while. (A busy machine is slow.)"""
    until, seen = time.monotonic() + PATIENCE, -1
    while (done := services.rounds_done()) < wanted:
        services.note_ended()
        if done > seen:
            until, seen = time.monotonic() + PATIENCE, done
        if time.monotonic() > until:
            return [f"the run stands still at round {done}"]
        time.sleep(0.2)
    return []


def wrong_rounds(services: Services) -> list[str]:
    """Rounds and evaluations that were told twice, not at all, or with a device counted twice."""
    lines, devices = services.metrics(), len(services.devices)
    rounds = [line for line in lines if line["kind"] == "round"]
    found = []
    if [line["round"] for line in rounds] != list(range(1, len(rounds) + 1)):
        found.append(f"rounds are not 1 to {len(rounds)}, each once: {[line['round'] for line in rounds]}")
    numbers = [line["number"] for line in lines]
    if numbers != sorted(set(numbers)):
        found.append("an event was written twice")
    return found + [f"round {line['round']}: {line['devices']} devices" for line in rounds if line["devices"] > devices]


def compare(services: Services, base: Path, broker: Mosquitto) -> str:
    """The model beside that of a run that nobody disturbs, as far as that is promised."""
    lines = services.metrics()
    last = max((line["round"] for line in lines if line["kind"] == "evaluation"), default=0)
    short = short_rounds(lines, last, len(services.devices))
    if short:
        return f"{short} of {last} rounds counted fewer than all devices, so that no equal model is promised"
    quiet = Services(base, services.bundle, broker.url, rounds=last)
    try:
        quiet.start_all()
        wait_for_rounds(quiet, last)
        until = time.monotonic() + PATIENCE
        while not any(line["kind"] == "evaluation" and line["round"] == last for line in quiet.metrics()):
            if time.monotonic() > until:
                return "WRONG: the undisturbed run does not end"
            time.sleep(0.2)
        quiet.stop_all()
    finally:
        quiet.end()
    same = quiet.model() == services.model()
    return f"{last} rounds: the model is {'that' if same else 'WRONG: not that'} of an undisturbed run, to the bit"


def short_rounds(lines: list[dict[str, Any]], last: int, devices: int) -> int:
    return sum(line["kind"] == "round" and line["round"] <= last and line["devices"] < devices for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two faults, in the mean")
    parser.add_argument("--keep", type=Path, help="a folder for all files of the run; else they are deleted")
    args = parser.parse_args()
    if why := missing():
        sys.exit(f"no machine can be made to fail: {why}")
    bundle = compile_network("mlp", ["--input", "30", "--classes", "2"], 0, print)
    broker = Mosquitto()
    with broker, tempfile.TemporaryDirectory() as temporary:
        broker.wanted = broker.port
        base = args.keep or Path(temporary)
        services = Services(base / "soak", bundle, broker.url)
        try:
            wrong = soak(services, broker, args.minutes, args.every, Random(args.seed))
        finally:
            services.end()
        verdict = compare(services, base / "quiet", broker)
    print(verdict)
    print("\n".join(wrong) or "every update was counted once; memory, disk and log are flat")
    sys.exit(bool(wrong) or "WRONG" in verdict)


if __name__ == "__main__":
    main()
