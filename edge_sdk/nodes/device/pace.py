"""Holds a device's training to its budget: looks at the machine, decides, lets training wait, and keeps its progress.

Training asks before every mini-batch whether it is to be given up (`cancel` of the model's functions). Here that
question also waits, for as long as the budget says no. So training yields within one mini-batch, a newer question or
the end of the process still ends the wait, and what is computed is the same to the bit as without any wait: nothing but
time has passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.contract import round as rounds
from edge_sdk.contract.children.device_facts import Reason
from edge_sdk.contract.node import Record
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.detect import detect_board
from edge_sdk.hardware.boards.profile import BoardProfile
from edge_sdk.hardware.boards.telemetry import Telemetry, read_telemetry
from edge_sdk.nodes.device.conditions import Clock, DayLedger, OthersShare, find_conditions, find_joules
from edge_sdk.nodes.device.progress import CallProgress
from edge_sdk.nodes.policy.budget import Decision, TrainingBudget, decide

LOOK = 2.0
"""Seconds between two looks at the machine while it trains."""
IDLE_LOOK = 15.0
"""Seconds between two looks while it does not: each one wakes the processor."""
NAP = 1.0
"""Seconds of waiting after which a newer question or the end of the process is noticed."""
PROGRESS, LEDGER = "training.progress", "budget.json"


@dataclass(frozen=True, kw_only=True)
class MachineSource:
    """Where the machine's state and the time come from.

    Attributes:
        root: directory below which Linux's files are read.
        read: reads them; tests and replays have their own.
        clock: the time.
    """

    root: Path = Path("/")
    read: Callable[[Path], Telemetry] = read_telemetry
    clock: Clock = time


THIS_MACHINE = MachineSource()


class TrainingPace:
    """Pace of one device's training. Its methods may be called from any thread.

    Args:
        budget: the rules.
        directory: of the device.
        threads: that training keeps busy.
        cancelled: training is to be given up.
        wake: called when the decision has changed.
        machine: what it looks at.

    Attributes:
        decision: of the latest look.
        allowed: what the application says.
        progress: of the training that is under way.
    """

    idle_look = IDLE_LOOK

    def __init__(
        self,
        budget: TrainingBudget,
        name: str,
        directory: Path,
        *,
        threads: int = 1,
        cancelled: Callable[[], bool] = lambda: False,
        wake: Callable[[], None] = lambda: None,
        machine: MachineSource = THIS_MACHINE,
        log: Logger,
    ):
        self.budget, self.name, self.cancelled, self.wake = budget, name, cancelled, wake
        self.root, self.read, self.clock, self.log = machine.root, machine.read, machine.clock, log
        self.lock = threading.RLock()
        self.decision: Decision | None = None
        self.allowed = True
        self.looked = -np.inf
        self.others = OthersShare()
        self.joules = find_joules(self.root, find_profile(self.root), threads, budget.watts)
        self.ledger = DayLedger(directory / LEDGER, self.clock.time(), log)
        self.progress = CallProgress(directory / PROGRESS, log)
        self.working_since: float | None = None
        self.keep_at = -np.inf

    # -- the decision

    def unwilling(self) -> Reason | None:
        """Why the device wants no training now; None: it does."""
        return self.look().reason

    def why(self) -> str:
        """Why the device does not train now, in words; "" where nothing is in the way."""
        return "" if (reason := self.unwilling()) is None else str(reason)

    def allow(self, allowed: bool) -> None:
        """Take what the application says, at once."""
        with self.lock:
            self.allowed, self.looked = allowed, -np.inf
        self.look()

    def look(self) -> Decision:
        """The decision, after another look at the machine if the latest one is old."""
        with self.lock:
            now, before = self.clock.monotonic(), self.decision
            if before is not None and now - self.looked < LOOK:
                return before
            self.looked = now
            decision = self.decision = decide(self.budget, self.find_conditions(), now, before)
        if before is None or (before.reason and before.reason.kind) != (decision.reason and decision.reason.kind):
            said = "may train" if decision.reason is None else f"may not train: {decision.reason}"
            self.log.info("%s: %s", self.name, said)
            self.wake()
        return decision

    def find_conditions(self) -> Any:
        at, telemetry = self.clock.time(), self.read(self.root)
        self.ledger.turn(at)
        known = self.joules.watts is not None or self.joules.wraps or self.joules.read_power() is not None
        today = self.ledger.joules if known else None
        busy = self.others.measure(telemetry)
        return replace(find_conditions(telemetry, busy, self.budget.metered_links, today, at), allowed=self.allowed)

    # -- training

    def __call__(self) -> bool:
        """Before each mini-batch: wait as long as the budget says so. True: training is to be given up."""
        self.count_work()
        if not self.cancelled() and self.look().willing:
            self.rest()
        if not (given_up := self.cancelled()) and not self.look().willing:
            given_up = self.wait()
        if given_up or self.clock.monotonic() >= self.keep_at:
            self.keep()
        self.joules.skip()
        self.working_since = None if given_up else self.clock.monotonic()
        return given_up

    def wait(self) -> bool:
        """Wait until the budget allows training again, with its progress saved. True: it is to be given up."""
        self.keep()
        self.log.info("%s: training stops after %d steps: %s", self.name, self.progress.steps, self.why())
        while not self.cancelled():
            if self.look().willing:
                self.log.info("%s: training goes on after %d steps", self.name, self.progress.steps)
                return False
            self.clock.sleep(NAP)
        return True

    def count_work(self) -> None:
        """Count the joules of the mini-batch before this one."""
        if self.working_since is not None:
            self.worked = self.clock.monotonic() - self.working_since
            found = self.joules.count(self.worked)
            with self.lock:
                self.ledger.add(found or 0.0, self.clock.time())

    def rest(self) -> None:
        """Rest after a mini-batch, so that training works for its share of the time only."""
        if self.working_since is None or self.budget.cpu_share == 1:
            return
        left = self.worked * (1 - self.budget.cpu_share) / self.budget.cpu_share
        while left > 0 and not self.cancelled():
            self.clock.sleep(min(left, NAP))
            left -= NAP

    def keep(self) -> None:
        """Save how far training is."""
        self.progress.save()
        self.ledger.save()
        self.keep_at = self.clock.monotonic() + self.budget.keep_every

    def keep_calls(self, assembly: Assembly, samples: bytes) -> Assembly:
        """A device's assembly whose long calls go on where they were left.

        Args:
            samples: digest of what it trains on: progress on other samples is void.
        """
        role = assembly.role

        def receive(env: Any, state: Any, sender: str, message: Any) -> Any:
            def key() -> bytes:
                record = Record(rounds.begin(rounds.Policy(), 0.0), state=state)
                parts = (samples, assembly.records.encode(record), assembly.messages.encode(message))
                return blake2b(b"".join(blake2b(part).digest() for part in parts)).digest()

            self.progress.begin_call(key)
            self.working_since, self.keep_at = None, self.clock.monotonic() + self.budget.keep_every
            try:
                return role.receive(env, state, sender, message)
            finally:
                self.ledger.save()

        return replace(assembly, role=replace(role, receive=receive), env=replace(assembly.env, keeper=self.progress))

    @staticmethod
    def digest_samples(run: str, *arrays: Any) -> bytes:
        """Digest of a run's id and all that a device trains on."""
        found = blake2b(run.encode())
        for array in arrays:
            found.update(repr((array.shape, array.dtype.str)).encode())
            found.update(np.ascontiguousarray(array).view(np.uint8).data)
        return found.digest()


def find_profile(root: Path) -> BoardProfile | None:
    """Profile of this board; None where there is none of its architecture."""
    try:
        return detect_board(root).profile
    except UsageError:
        return None
