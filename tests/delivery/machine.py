"""A machine that plays broker, disks and time against the nodes of a run, and looks for a play that harms them.

    python -m tests.delivery.machine [--examples 200] [--steps 150] [--seed N]

Whatever is lost, repeated, overtaken, cut, killed or forgotten: each round that the aggregator tells of is whole, and
its sum is right; no role is ever given what it cannot work on; no node says what its disk does not hold (witness.py);
and when the faults are over, the run goes on. What it would miss is found out by mutants.py.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from edge_sdk.delivery.storage.failpoints import POINTS
from edge_sdk.wire.frames import Message, unpack_frame
from tests.delivery.world import NAMES, World

MEMORY = Path("/dev/shm")  # a folder in memory, where there is one: a disk would be synced thousands of times
names = st.sampled_from(NAMES)
middle = st.sampled_from(("h", "h", "agg", "a"))  # a hospital has both debts and debtors
steps = st.sampled_from((0.003, 0.01, 0.0, 0.05, 0.6))
points = st.sampled_from(("committed", "committed", *sorted(POINTS)))
children = st.sampled_from(NAMES[1:])  # the root asks a person when its disk is gone


class Play(RuleBasedStateMachine):
    """One life of the four nodes. `lives`: how many have begun."""

    lives = 0
    world: World | None = None

    @initialize(size=st.sampled_from((4, 4, 9000)), rounds=st.sampled_from((3, 3, 0)), step=steps)
    def begin(self, size: int, rounds: int, step: float) -> None:
        Play.lives += 1
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
        self.world = World(Path(self.folder.name), size)
        for name in NAMES:
            self.world.start(name)
        self.world.step = step
        self.world.go_on(rounds)

    @property
    def nodes(self) -> World:
        assert self.world is not None
        return self.world

    def work(self, order: Sequence[str], turns: int) -> None:
        for turn in range(turns):
            self.nodes.turn(order[turn % len(order)], 1000)

    # -- what should happen

    @rule(order=st.permutations(NAMES), times=st.integers(1, 10))
    def everybody_works(self, order: list[str], times: int) -> None:
        for _ in range(times):
            for name in order:
                self.nodes.turn(name, 1000)

    @rule(turns=st.integers(1, 12))
    def all_goes_well_for_a_while(self, turns: int) -> None:
        self.nodes.heal()
        for _ in range(turns):
            for name in NAMES:
                self.nodes.turn(name, 1000)

    @rule(rounds=st.integers(1, 3))
    def rounds_end(self, rounds: int) -> None:
        self.nodes.go_on(rounds)

    @rule(name=names, turns=st.integers(1, 30))
    def somebody_stays_behind(self, name: str, turns: int) -> None:
        """It reads one frame at a turn, and the others all that they have."""
        for _ in range(turns):
            for each in NAMES:
                self.nodes.turn(each, 1 if each == name else 1000)

    @rule(name=names, frames=st.integers(0, 3))
    def somebody_works(self, name: str, frames: int) -> None:
        self.nodes.turn(name, frames)

    @rule(step=steps)
    def time_runs(self, step: float) -> None:
        self.nodes.step = step

    @rule(seconds=st.sampled_from((0.05, 3.0, 100.0)))
    def time_passes(self, seconds: float) -> None:
        self.nodes.clock.offset += seconds

    # -- the broker

    @rule(name=names, place=st.integers(0, 20), count=st.integers(1, 5))
    def frames_are_lost(self, name: str, place: int, count: int) -> None:
        del self.nodes.places[name].queue[place : place + count]

    @rule(name=names, place=st.integers(0, 20), times=st.integers(1, 3))
    def a_frame_is_repeated(self, name: str, place: int, times: int) -> None:
        queue = self.nodes.places[name].queue
        queue += queue[place : place + 1] * times

    @rule(name=names, place=st.integers(0, 20))
    def a_frame_overtakes(self, name: str, place: int) -> None:
        queue = self.nodes.places[name].queue
        if place < len(queue):
            queue.insert(0, queue.pop(place))

    @rule(name=names, place=st.integers(0, 20), cut=st.integers(0, 200), more=st.binary(max_size=9))
    def a_frame_is_garbled(self, name: str, place: int, cut: int, more: bytes) -> None:
        """Its end is another one. (Wrong bits inside are what TCP and TLS are for.)"""
        queue = self.nodes.places[name].queue
        if place < len(queue):
            topic, payload = queue[place]
            queue.insert(place, (topic, payload[: max(0, len(payload) - 1 - cut)] + more))

    @rule(name=names, payload=st.binary(max_size=64))
    def garbage_comes(self, name: str, payload: bytes) -> None:
        self.nodes.places[name].queue.append((f"auscult/v1/{name}/mallory/up/m", payload))

    @rule(name=names, first=st.integers(0, 100), count=st.integers(1, 60), turns=st.integers(0, 8))
    def recorded_frames_come_again(self, name: str, first: int, count: int, turns: int) -> None:
        """Frames of any time before, also of disks that are gone. (TLS would not let them through.)"""
        place = self.nodes.places[name]
        place.queue += place.heard[first : first + count]
        self.work(NAMES, turns)

    @rule(name=names)
    def a_connection_breaks(self, name: str) -> None:
        if self.nodes.places[name].connected:
            self.nodes.break_connection(name)

    @rule(name=names)
    def a_connection_is_made(self, name: str) -> None:
        self.nodes.connect(name)

    @rule()
    def the_broker_dies(self) -> None:
        for place in self.nodes.places.values():
            place.wills = []
        for name in NAMES:
            if self.nodes.places[name].connected:
                self.nodes.break_connection(name)

    # -- processes and disks

    @rule(name=names)
    def a_process_dies(self, name: str) -> None:
        self.nodes.kill(name)

    @rule(name=names)
    def a_process_starts(self, name: str) -> None:
        self.nodes.start(name)

    @rule(name=names)
    def a_process_is_killed_and_started(self, name: str) -> None:
        self.nodes.kill(name)
        self.nodes.start(name)

    @rule(name=names, point=points, count=st.integers(1, 3))
    def a_process_dies_at_work(self, name: str, point: str, count: int) -> None:
        self.nodes.die_at(name, point, count)

    @rule(name=names, point=points, order=st.permutations(NAMES))
    def a_process_dies_at_work_and_starts(self, name: str, point: str, order: list[str]) -> None:
        """The others work on, and so what it owes them comes due."""
        for _ in range(8):
            for each in order:
                if each != name:
                    self.nodes.turn(each, 1000)
            self.nodes.die_at(name, point, 1)
            self.nodes.start(name)

    @rule(name=names)
    def a_backup_is_made(self, name: str) -> None:
        self.nodes.back_up(name)

    @rule(name=names)
    def a_backup_is_put_back(self, name: str) -> None:
        self.nodes.put_back(name)
        self.nodes.start(name)

    @rule(name=names)
    def a_disk_fills_up(self, name: str) -> None:
        self.nodes.failing.add(name)

    @rule(name=names)
    def a_disk_has_room(self, name: str) -> None:
        self.nodes.failing.discard(name)

    @rule(name=names)
    def a_disk_is_synced(self, name: str) -> None:
        self.nodes.snapshot(name)

    @rule(name=names)
    def the_power_goes(self, name: str) -> None:
        self.nodes.cut_power(name)
        self.nodes.start(name)

    @rule(name=middle, turns=st.integers(4, 24), order=st.permutations(NAMES))
    def the_power_goes_and_takes_the_last_turns(self, name: str, turns: int, order: list[str]) -> None:
        self.nodes.snapshot(name)
        self.work(order, turns)
        self.nodes.cut_power(name)
        self.nodes.start(name)

    @rule(name=middle, turns=st.integers(20, 60), behind=st.sampled_from(("a", "b", "agg")), pause=st.integers(0, 9))
    def a_node_goes_back_to_before(self, name: str, turns: int, behind: str, pause: int) -> None:
        """A backup is made, the nodes work on, and it is put back; messages that it was sent meanwhile come late, while
        one of the others does nothing."""
        self.nodes.heal()
        self.nodes.back_up(name)
        place, others = self.nodes.places[name], [each for each in NAMES if each != behind]
        heard = len(place.heard)
        self.work(NAMES, turns)
        self.nodes.put_back(name)
        self.nodes.start(name)
        late = [sent for sent in place.heard[heard:] if isinstance(unpack_frame(sent[1]), Message)]
        self.work(others, pause)
        for sent in late[:20]:
            place.queue.append(sent)
            self.work(others, 3)

    @precondition(lambda self: self.world is not None and len(self.world.told) > 1)
    @rule(name=children, turns=st.integers(0, 12), old=st.booleans())
    def a_disk_is_lost(self, name: str, turns: int, old: bool) -> None:
        """With `old`, what the lost one was sent comes once more."""
        self.nodes.lose_disk(name)
        self.nodes.start(name)
        place = self.nodes.places[name]
        late = place.heard[:200] if old else []
        self.work(NAMES, turns)
        place.queue += late

    @rule(name=children, place=st.integers(0, 10**6))
    def a_disk_is_damaged(self, name: str, place: int) -> None:
        self.nodes.damage(name, place)
        self.nodes.start(name)

    # -- the end

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            self.world.go_on(3)
            self.check_states(self.world)
        finally:
            self.world.close()
            self.folder.cleanup()

    def check_states(self, world: World) -> None:
        assert sorted(world.told) == list(range(1, len(world.told) + 1))


def play(examples: int, steps: int, seed: int | None = None, shrink: bool = True) -> None:
    """Play so many lives; raises what the shortest bad one comes to, and prints it."""
    logging.disable()
    try:
        chosen = settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=seed is None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        )
        if seed is not None:
            Play._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]
        run_state_machine_as_test(Play, settings=chosen)  # type: ignore[no-untyped-call]
    finally:
        logging.disable(logging.NOTSET)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, help="another play at each number; without it, the one of the tests")
    parser.add_argument("--no-shrink", action="store_true", help="print the first bad life as it is")
    args = parser.parse_args()
    play(args.examples, args.steps, args.seed, not args.no_shrink)
    print(f"{args.examples} lives of up to {args.steps} steps: every round was whole, and the run went on")


if __name__ == "__main__":
    main()
