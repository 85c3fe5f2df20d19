"""Defects that are planted on purpose, to see that machine.py notices them: what it misses, it would miss for good.

    python -m tests.delivery.mutants [--lives 60] [NAME ...]

Each is one line of the protocol left out or turned round, as a slip of the pen or a wrong merge would. A life is 40
steps; printed is after how many lives a defect was noticed, and by what.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

from edge_sdk.contract import node as nodes
from edge_sdk.contract import round as rounds
from edge_sdk.contract.records import changed
from edge_sdk.delivery import session
from edge_sdk.delivery.messages.inbox import Inbox
from edge_sdk.delivery.messages.incoming import Incoming
from edge_sdk.delivery.messages.outgoing import Outgoing
from edge_sdk.delivery.session import Session
from edge_sdk.delivery.storage import database, store
from edge_sdk.delivery.storage.store import Store
from edge_sdk.live.membership.membership import Membership
from edge_sdk.wire.frames import Message
from tests.delivery.machine import Play, play

STEPS = 40


@dataclass(frozen=True)
class Mutant:
    """A defect: in place of `owner.name` there is `made(the right one)`."""

    owner: Any
    name: str
    made: Callable[[Any], Any]

    @contextmanager
    def planted(self) -> Iterator[None]:
        right = self.owner.__dict__[self.name]
        setattr(self.owner, self.name, self.made(right))
        try:
            yield
        finally:
            setattr(self.owner, self.name, right)


def nothing(right: Any) -> Any:
    return lambda *_, **__: None


def ack_at_once(right: Any) -> Any:
    def take_message(self: Incoming, m: Message) -> str:
        verdict: str = right(self, m)
        if verdict == "new":
            self.owe_ack(m)
        return verdict

    return take_message


def acks_of_any_disk(right: Any) -> Any:
    def take_acks(self: Session, src: str, acks: Any) -> None:
        right(self, src, [(to, self.store.epoch, seq) for to, _, seq in acks])

    return take_acks


def no_debts(right: Any) -> Any:
    def load_node(*args: Any) -> Any:
        found = right(*args)
        return nodes.with_record(found, below=changed(found.record.below, owed={}))

    return load_node


def no_peers(right: Any) -> Any:
    return lambda self: {}


def any_epoch(right: Any) -> Any:
    def judge(self: Inbox, m: Message) -> str:
        peer = self.peers.get(m.src)
        return str(right(self, m if peer is None else changed(m, epoch=peer.epoch)))

    return judge


def always_new(right: Any) -> Any:
    def judge(self: Inbox, m: Message) -> str:
        found = str(right(self, m))
        return "new" if found == "duplicate" else found

    return judge


def any_answer_pays(right: Any) -> Any:
    def hear(r: rounds.Round, child: str, number: int, now: float = 0.0) -> Any:
        return right(r, child, r.owed.get(child, number), now)

    return hear


def debts_stay(right: Any) -> Any:
    def hear(r: rounds.Round, child: str, number: int, now: float = 0.0) -> Any:
        after, why = right(r, child, number, now)
        return changed(after, owed=r.owed), why

    return hear


def one_too_many(right: Any) -> Any:
    def note_message(self: Inbox, m: Message) -> None:
        right(self, m)
        peer = self.peers[m.src]
        peer.floor = max(peer.floor, m.seq + 2)

    return note_message


def no_rows(right: Any) -> Any:
    def load(self: Outgoing) -> Any:
        self.outbox.seq = self.store.load_next_seq()
        return []

    return load


def same_numbers(right: Any) -> Any:
    def load_next_seq(self: Store) -> int:
        right(self)
        last = self.db.execute("select max(seq) from outbox").fetchone()[0]
        return int(last or 0) + 1

    return load_next_seq


def disk_is_fine(right: Any) -> Any:
    def disk_failed(self: Membership, why: Exception) -> None:
        self.counters.count("disk_failed")

    return disk_failed


def not_lost(right: Any) -> Any:
    def note_opening(db: Any, log_cut: bool, durability: str) -> None:
        right(db, False, "full")

    return note_opening


def backup_is_the_same_disk(right: Any) -> Any:
    return lambda node, *_: node


def number_stays(right: Any) -> Any:
    def forget_disk_of(self: Session, name: str, restored: bool) -> None:
        above = self.node.record.above
        right(self, name, restored)
        self.node = nodes.with_record(self.node, above=above)
        self.save_record()

    return forget_disk_of


def everybodys_epoch(right: Any) -> Any:
    def forget_disk_of(self: Session, name: str, restored: bool) -> None:
        self.counters.count(f"replaced.{name}")

    return forget_disk_of


MUTANTS: dict[str, Mutant] = {
    "acknowledges before the commit": Mutant(Incoming, "take_message", ack_at_once),
    "takes acknowledgements for another disk": Mutant(Session, "take_acks", acks_of_any_disk),
    "drops its debts at a restart": Mutant(session, "load_node", no_debts),
    "forgets at a restart what it has received": Mutant(Store, "load_peers", no_peers),
    "takes messages of another epoch": Mutant(Inbox, "judge", any_epoch),
    "takes a message a second time": Mutant(Inbox, "judge", always_new),
    "takes any answer for the one that is owed": Mutant(rounds, "hear", any_answer_pays),
    "counts an answer without a debt": Mutant(rounds, "hear", debts_stay),
    "thinks that it has more than it has": Mutant(Inbox, "note_message", one_too_many),
    "forgets at a restart what it has to send": Mutant(Outgoing, "load", no_rows),
    "uses a number of a message again": Mutant(Store, "load_next_seq", same_numbers),
    "goes on after a commit that failed": Mutant(Membership, "disk_failed", disk_is_fine),
    "does not notice that commits are lost": Mutant(database, "note_opening", not_lost),
    "numbers its questions as before the backup": Mutant(session, "go_on_from_backup", backup_is_the_same_disk),
    "asks a replaced child nothing": Mutant(Session, "forget_disk_of", everybodys_epoch),
    "refuses the questions of a replaced parent": Mutant(Session, "forget_disk_of", number_stays),
    "tells no event after a restart": Mutant(Store, "load_told", lambda right: lambda self: []),
    "believes a damaged record": Mutant(store, "check_saved", nothing),
}


def lives_until_noticed(mutant: Mutant, lives: int, seed: int = 0) -> tuple[int, str]:
    """Plays until the defect is noticed; returns in which life, and by what: (0, "") if in none of them."""
    Play.lives = 0
    try:
        with mutant.planted(), redirect_stdout(StringIO()):
            play(lives, STEPS, seed, shrink=False)
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        return Play.lives, f"{type(e).__name__}: {e}".splitlines()[0]
    return 0, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="of mutants; all, if none is named")
    parser.add_argument("--lives", type=int, default=60)
    args = parser.parse_args()
    missed = []
    for name in args.names or MUTANTS:
        began = time.perf_counter()
        life, why = lives_until_noticed(MUTANTS[name], args.lives)
        missed += [name] if not life else []
        print(f"{name:45} {life or 'never':>6} {time.perf_counter() - began:5.1f} s  {why[:110]}", flush=True)
    print(f"{len(args.names or MUTANTS) - len(missed)} of {len(args.names or MUTANTS)} were noticed")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
