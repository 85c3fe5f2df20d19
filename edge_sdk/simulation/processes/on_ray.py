"""The ranks of a simulation as actors of Ray, on this machine or on a cluster: Ray starts them in place of torchrun.

A rank (ray_rank.py) does what it does under torchrun, and it finds the others in the same way: by the environment
variables that torchrun would have set. Where one has died, all are started again, each on its machine, and go on from
the last checkpoint.

Ray hands objects to its processes as pickles and lets whoever reaches a cluster run programs on it. So a cluster is for
machines that trust each other; nothing that a run receives is read in this way.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from edge_sdk.errors import AuscultError, UsageError, say_reason
from edge_sdk.simulation.processes.ray_rank import RayRank, Said

RESTARTS = 3
"""How often the ranks are started again."""
GRACE = 10.0
"""Seconds in which the others end after one has died or failed; then they are stopped."""
REACH_SECONDS = 10.0
"""In which a cluster must answer at its address."""
START_SECONDS = 10.0
"""After which it is said that ranks wait for cores that others use."""
STORE_BYTES = 80 * 2**20
"""Of Ray's store of objects on this machine, in which nothing is put: little more than the least that Ray takes."""


class Seat(NamedTuple):
    """Where a rank is.

    Attributes:
        node: Ray's name of the machine.
        gpus: that it has there, or a share of one; 0: none.
    """

    node: str
    gpus: float


def play_on_ray(play: Callable[[Any], object], options: Any, count: int, gpus: bool) -> None:
    """Plays a simulation on ranks that Ray starts, and prints what they say.

    Args:
        play: what a rank does: a function of a module, of `options`.
        count: of ranks.
        gpus: they share the GPUs that there are.

    Raises:
        UsageError: Ray is not installed, has too few cores, or a rank says so of the options.
        AuscultError: a rank has failed, or has died again and again.
    """
    ray = find_ray()
    with joined(ray, count):
        seats = find_seats(ray.nodes(), count, ray.get_runtime_context().get_node_id(), gpus)
        deaths: dict[int, str] = {}
        for attempt in range(RESTARTS + 1):
            if deaths:
                print(f"{tell_deaths(deaths)}; all begin again at the last checkpoint", file=sys.stderr)
            if not (deaths := Team(ray, seats).play(play, options, attempt)):
                return
        raise AuscultError(f"{tell_deaths(deaths)}, after {RESTARTS} restarts")


def find_ray() -> Any:
    """The library. Of itself it would tell its makers about its use; here it does so only if it is told to."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise UsageError(f"--ray: {error.name} is missing here: pip install 'auscult[ray]'") from error


@contextmanager
def joined(ray: Any, count: int) -> Iterator[None]:
    """Joins the cluster at RAY_ADDRESS; without one, starts Ray on this machine, with a core for each rank.

    Raises:
        UsageError: the cluster cannot be joined.
    """
    address = os.environ.get("RAY_ADDRESS", "")
    there: dict[str, Any] = {"address": address}
    if address in ("", "local"):
        there = {"address": "local", "num_cpus": count, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    else:
        check_address(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        try:
            ray.init(**there, log_to_driver=False, logging_level="error")
        except ConnectionError as error:
            tokens = "where it has tokens, RAY_AUTH_MODE=token and its token must be here, too"
            raise UsageError(f"RAY_ADDRESS = {address}: {error}; {tokens}") from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray has taken it
        yield
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Raises UsageError if nobody listens there: Ray would try for minutes. "auto": as Ray finds it."""
    if address.startswith("ray://"):
        raise UsageError(f"RAY_ADDRESS = {address}: run the command on a machine of the cluster, or as a job (ray job)")
    if address == "auto":
        return
    wanted = "HOST:PORT of a Ray cluster, or auto"
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 2**16):
        raise UsageError(f"RAY_ADDRESS = {address}: {wanted}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise UsageError(f"RAY_ADDRESS = {address}: {say_reason(error)}; {wanted}") from error


def find_seats(nodes: Sequence[Mapping[str, Any]], count: int, here: str, gpus: bool) -> list[Seat]:
    """Where the ranks are: machine by machine, this one first, a rank for each core.

    It depends on the machines alone and not on what else they do, so that a resumed simulation finds its files again.

    Args:
        nodes: as `ray.nodes()` has them.
        here: Ray's name of this machine.

    Raises:
        UsageError: there are fewer cores than ranks.
    """
    alive = [node for node in nodes if node["Alive"]]
    seats: list[Seat] = []
    for node in sorted(alive, key=lambda node: (node["NodeID"] != here, node["NodeManagerAddress"], node["NodeID"])):
        ranks = min(int(node["Resources"].get("CPU", 0)), count - len(seats))
        if ranks:
            share = node["Resources"].get("GPU", 0) / ranks if gpus else 0.0
            seats += [Seat(node["NodeID"], share if share < 1 else float(int(share)))] * ranks
    if len(seats) < count:
        raise UsageError(f"--ray {count}: Ray has {len(seats)} cores on {len(alive)} machines; each rank needs one")
    return seats


class Team:
    """All ranks, once started.

    Args:
        seats: of each.
    """

    def __init__(self, ray: Any, seats: Sequence[Seat]) -> None:
        self.ray = ray
        affinity = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        actor = ray.remote(RayRank)
        threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
        self.ranks = [
            actor.options(
                num_cpus=1,
                num_gpus=seat.gpus,
                scheduling_strategy=affinity(seat.node, soft=False),
                runtime_env={"env_vars": threads},
            ).remote()
            for seat in seats
        ]

    def play(self, play: Callable[[Any], object], options: Any, attempt: int) -> dict[int, str]:
        """Has all play, to the end of all. Returns those who have died, and why.

        Raises:
            UsageError, AuscultError: one has failed.
        """
        where, deaths = self.start()
        if deaths:
            return deaths
        common = {"WORLD_SIZE": str(len(self.ranks)), "MASTER_ADDR": where[0][0], "MASTER_PORT": str(where[0][1])}
        common["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
        plays = {
            rank.play.remote(play, options, os.getcwd(), {**common, "RANK": str(number)}): number
            for number, rank in enumerate(self.ranks)
        }
        ended = Ends()
        try:
            self.listen(plays, ended)
        finally:
            for rank in self.ranks:
                self.ray.kill(rank)
        ended.raise_failure()
        return ended.deaths

    def start(self) -> tuple[list[tuple[str, int]], dict[int, str]]:
        """Addresses at which the ranks could be found, when all have their cores; and those who could not start."""
        meetings, where, deaths = [rank.meet.remote() for rank in self.ranks], [], {}
        _, waiting = self.ray.wait(meetings, num_returns=len(meetings), timeout=START_SECONDS)
        if waiting:
            print(f"{len(waiting)} of {len(meetings)} ranks wait for cores that others use", file=sys.stderr)
        for number, meeting in enumerate(meetings):
            try:
                where.append(self.ray.get(meeting))
            except (self.ray.exceptions.RayActorError, self.ray.exceptions.ActorUnschedulableError) as error:
                deaths[number] = reason_of(error)
        return where, deaths

    def listen(self, plays: dict[Any, int], ended: Ends) -> None:
        """Prints what they say, until all have ended, or some while after one has died or failed."""
        while plays:
            left = ended.seconds_left()
            ready, _ = self.ray.wait(list(plays), num_returns=1, timeout=None if left == inf else left)
            if not ready:
                return
            number = plays[ready[0]]
            try:
                ended.note(number, self.ray.get(next(ready[0])))
            except StopIteration:
                del plays[ready[0]]
            except self.ray.exceptions.RayActorError as error:
                del plays[ready[0]]
                ended.note_death(number, reason_of(error))


@dataclass
class Ends:
    """Ends of ranks, as they come.

    Attributes:
        deaths: rank -> why it has died.
        failures: rank -> why it has failed, as they came.
        limit: by the clock, when the others must have ended, too.
    """

    deaths: dict[int, str] = field(default_factory=dict)
    failures: dict[int, Said] = field(default_factory=dict)
    limit: float = inf

    def seconds_left(self) -> float:
        return max(0.0, self.limit - time.monotonic())

    def note(self, number: int, said: Said) -> None:
        if said.kind in ("out", "err"):
            print(said.text, end="", flush=True, file=sys.stdout if said.kind == "out" else sys.stderr)
        else:
            self.failures[number] = said
            self.limit = min(self.limit, time.monotonic() + GRACE)

    def note_death(self, number: int, why: str) -> None:
        self.deaths[number] = why
        self.limit = min(self.limit, time.monotonic() + GRACE)

    def raise_failure(self) -> None:
        """Raises what went wrong first, if it was not a death: who only says that another is gone is not the cause."""
        own = [said for said in self.failures.values() if said.kind != "gone"]
        found = own or ([] if self.deaths else list(self.failures.values()))
        if found:
            raise (UsageError if found[0].kind == "misused" else AuscultError)(found[0].text)


def tell_deaths(deaths: Mapping[int, str]) -> str:
    number, why = min(deaths.items())
    return f"rank {number} has died ({why})" + (f", and {len(deaths) - 1} more" if len(deaths) > 1 else "")


def reason_of(error: Exception) -> str:
    """The last line of what Ray says about an actor that has died; without its advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].partition(" Some common causes")[0].rstrip(".") if lines else type(error).__name__
