"""What this node's runs have told about it so far, and the charge for each answer, made before the answer leaves.

The node counts by itself: it adds the noise, so it knows what an answer costs, if its hospital adds up as many as the
run says. What is kept is rho (algebra/secure_aggregation/privacy.py), which adds up over rounds and runs, in
`runs-epsilon.json`:

    digest of a run -> {"id", "rho": all of it so far, "last": version of the question that was charged last,
                        "again": that was answered a second time without charge}

A call is charged when it has made its answer, and before that is saved: one that is given up in training costs nothing.
One that is made again after a kill in between finds its question charged already: its first answer never left. A store
that was put back looks the same, but its answer has left. The node cannot tell these two apart, so that is free once
for each question, and a third answer costs. Within one process it can, so calls that are made again there because a
full disk took no answer are free. Files of before have no "again", which means no. An answer to a question of before,
as an aggregator may ask for, costs as much as one to a new question.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_sdk.atomic import write_text
from edge_sdk.contract.run import UP, Run, short
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.nodes.configuration.around import named_method, own_settings, phase_answers, privacy_of
from edge_sdk.nodes.policy.approvals import digest_of, read_table

if TYPE_CHECKING:
    from edge_sdk.contract.method import Role, Step

FILE = "runs-epsilon.json"
EARLIER = "earlier"
MOST = 100
"""Runs that are remembered one by one; of those before, their sum."""


def rho_of_answer(run: Run) -> float:
    """What one answer of a run costs, if its cohort answers. The run has noise."""
    privacy, own = privacy_of(run), named_method(run).own_noise
    assert privacy is not None  # only such runs come here
    if own is not None:
        return own.rho(own_settings(run), privacy, run.rounds)
    return 0.5 / privacy.multiplier(answers_of_run(run)) ** 2


def answers_of_run(run: Run) -> int:
    """Answers with noise of one device, at most: in rounds, and to phases around them."""
    own = named_method(run).own_noise
    return run.rounds + phase_answers(run) if own is None else own.answers(own_settings(run), run.rounds)


def rho_of_run(run: Run) -> float:
    """What all answers of a run cost."""
    return answers_of_run(run) * rho_of_answer(run)


def read_charges(path: Path) -> dict[str, Any]:
    """The charges of a file; none where there is no file.

    Raises:
        UsageError: it cannot be read, or an entry is none that a ledger writes: what was told would be unknown.
    """
    table = read_table(path)
    for digest, entry in table.items():
        if not is_charge(entry):
            raise UsageError(
                f"{path}: the entry {digest[:16]} is {short(entry)}; expected an object with a finite rho of 0 or more "
                "and the number of the question that was charged last. Put the file back from a backup"
            )
    return table


def is_charge(entry: Any) -> bool:
    """Says if an entry is one that a ledger writes."""
    if not isinstance(entry, dict) or type(entry.get("last")) is not int or type(entry.get("again", False)) is not bool:
        return False
    rho: Any = entry.get("rho")
    return type(rho) in (int, float) and bool(0 <= rho < inf)


class EpsilonLedger:
    """The ledger of one node. Args: directory: of the node."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE

    def spent_by(self, run: Run) -> float:
        """rho of a run so far."""
        return float(read_charges(self.path).get(digest_of(run), {}).get("rho", 0.0))

    def spent_by_others(self, run: Run) -> float:
        """rho of all other runs."""
        own = digest_of(run)
        return sum(float(entry["rho"]) for digest, entry in read_charges(self.path).items() if digest != own)

    def charge(self, run: Run, version: int, answered: bool) -> None:
        """Write down that an answer is about to leave, so that a power cut cannot take it back.

        Args:
            version: of the question.
            answered: this node has answered a question of that version before.

        Raises:
            PeerError: it would be one more than the run has rounds.
        """
        table = self.charged(run, version, answered)
        write_text(self.path, json.dumps(shortened(table), indent=1) + "\n", lasting=True)

    def charged(self, run: Run, version: int, answered: bool) -> dict[str, Any]:
        """The table with that charge. Args and errors as of `charge`."""
        table, digest, price = read_charges(self.path), digest_of(run), rho_of_answer(run)
        entry = table.pop(digest, {"id": run.id, "rho": 0.0, "last": 0})
        repeated = entry["last"] == version
        if repeated and not answered and not entry.get("again", False):
            return {**table, digest: {**entry, "again": True}}
        if entry["rho"] + price > rho_of_run(run) * (1 + 1e-9):
            most = answers_of_run(run)
            raise PeerError(
                f"run {run.id} has {run.rounds} rounds with {most} answers; this node has answered as many questions "
                "already"
            )
        again = repeated and entry.get("again", False)
        return {**table, digest: {"id": run.id, "rho": entry["rho"] + price, "last": version, "again": again}}

    def guard(self, run: Run, role: Role) -> Role:
        """The role, each of whose answers is charged before it leaves; the same role in a run without noise."""

        if not run.privacy:
            return role
        from edge_sdk.methods.integers.vectors.messages import Changes  # a run without noise loads none of this
        from edge_sdk.methods.secret.messages.messages import NumberedQuestion
        from edge_sdk.methods.shared.membership.riders import Rider

        own, settings = named_method(run).own_noise, own_settings(run)
        unsaved: tuple[int, bool] | None = None  # what this process has charged last, of a store that it has not lost

        def start(env: Any) -> Step:
            nonlocal unsaved
            unsaved = None
            return role.start(env)

        def receive(env: Any, state: Any, sender: str, message: Any) -> Step:
            nonlocal unsaved
            due = asked(state, message) if sender == UP else None
            if due is None or due == unsaved:  # the same question to the same state: that answer was not saved
                return role.receive(env, state, sender, message)
            self.charged(run, *due)  # what may not be answered is refused before anything is trained
            step: Step = role.receive(env, state, sender, message)
            self.charge(run, *due)
            unsaved = None if due[1] else due
            return step

        def asked(state: Any, message: Any) -> tuple[int, bool] | None:
            """Version of a question that wants noise, and if it was answered before; None: it wants none."""
            question = message.question if isinstance(message, NumberedQuestion) else message
            if run.settle and (of_phase := phase_asked(state, question)):
                return of_phase, False
            while isinstance(question, Rider):
                question = question.message
            if isinstance(question, Changes):
                return question.version, version_held(state) >= question.version
            if own is None or (number := own.number(settings, question)) is None:
                return None
            return number, own.answered(settings, state.inner) >= number

        return replace(role, start=start, receive=receive)


def version_held(state: Any) -> int:
    """Version of the reference that a node holds, whatever other states are around its state of integers."""
    from edge_sdk.methods.integers.tiers.states import IntegersState

    while not isinstance(state, IntegersState):
        state = state.inner
    return state.reference.version


def phase_asked(state: Any, question: Any) -> int:
    """Number of the answer that a phase's question asks for, below zero, so that it is no version; 0: it is of none, or
    is answered by what was sent before.

    A node counts its answers itself: the first one to come has the number of one that was charged only if that one was
    never saved.
    """
    from edge_sdk.methods.noisy_phases.contents import phase_of
    from edge_sdk.methods.noisy_phases.method import NoisyPhasesState

    if not phase_of(question):
        return 0
    while not isinstance(state, NoisyPhasesState):
        state = state.inner
    return 0 if state.knows(question) else -1 - state.answered


def shortened(table: dict[str, Any]) -> dict[str, Any]:
    """The table with its oldest entries added up, where there are too many."""
    digests = [digest for digest in table if digest != EARLIER]
    old = digests[: max(0, len(digests) - MOST)]
    if not old:
        return table
    total = sum(float(table[digest]["rho"]) for digest in (*old, EARLIER) if digest in table)
    return {EARLIER: {"id": EARLIER, "rho": total, "last": 0}} | {d: table[d] for d in digests[len(old) :]}
