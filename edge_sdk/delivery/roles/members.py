"""Members: the children that belong to the rounds of this node, whether they are connected at this instant or not.

A child is a member from the first time that it is here, ready, in this run. If rounds were opened with those that are
connected at that very moment, then a broker that restarts, or a device that does, would make a round short, and the
result another one. So whoever has gone still belongs to the rounds for as long as a round may wait for it: without a
deadline for ever, otherwise for one deadline. Its question is saved, and leaves when it is back. Who is a member is
saved with the node, so that this holds across restarts of the parent.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from math import inf

import msgpack  # type: ignore[import-untyped]

from edge_sdk.contract.children.device_facts import APPLICATION, Reason
from edge_sdk.contract.run import ID
from edge_sdk.delivery.roles.sizes import Sizes
from edge_sdk.delivery.storage.checksums import StoreDamaged
from edge_sdk.delivery.storage.store import Store

KEY = "members"


class Members:
    """Members of one node's run.

    Args:
        children: who may take part; members that were saved and are none of them any more are left out.
        sizes: child -> number of its devices, as the settings have it.
        may_decline: as in `Assembly`.

    Attributes:
        gone_at: member -> when it was last seen to be here, by time.monotonic(); inf: it is here.
        came_at: when somebody came here last who had not been here before, by time.monotonic(); -inf: nobody yet.
        present: children that are connected, in this run and ready.
        in_order: these, sorted; None: not known now.
        refusing: children that cannot take part, and so belong to no round until they can.
        unwilling: child that wants no training now -> why. Who is gone is taken as it was when it went.
        declining: those among them that are away as their application says no: nobody knows for how long.
        sizes: how many devices there are behind each child (see sizes.py).
        are_new: there are members that are not on the disk.
        listed: what `list_counting` has found, for which arguments, and until when that holds.
    """

    def __init__(self, store: Store, children: Collection[str], sizes: Mapping[str, int], may_decline: bool = False):
        self.store, self.sizes, self.may_decline = store, Sizes(store, sizes), may_decline
        self.gone_at = {name: time.monotonic() for name in load_members(store) if name in children}
        self.listed: tuple[tuple[float, int], float, tuple[str, ...]] | None = None
        self.came_at = -inf
        self.present: set[str] = set()
        self.in_order: tuple[str, ...] | None = ()
        self.refusing = frozenset[str]()
        self.unwilling: dict[str, Reason] = {}
        self.declining = frozenset[str]()
        self.are_new = False

    @property
    def unsaved(self) -> bool:
        """Something of this is not on the disk."""
        return self.are_new or self.sizes.unsaved

    def note_presence(
        self, here: tuple[str, ...], refusing: Iterable[str], willingness: Mapping[str, Reason | None] | None = None
    ) -> None:
        """Note which children are here now, which of them cannot take part, and what each says of its willingness."""
        told = {**self.unwilling, **(willingness or {})}
        self.unwilling = {name: reason for name, reason in told.items() if reason is not None}
        self.declining = frozenset(name for name, reason in self.unwilling.items() if self.is_no(reason))
        now, self.listed, self.refusing = time.monotonic(), None, frozenset(refusing)
        self.present, self.in_order = set(here), None
        self.note_new(self.present - self.gone_at.keys(), now)
        gone = [n for n, gone_at in self.gone_at.items() if gone_at == inf and n not in self.present]
        self.gone_at |= dict.fromkeys(gone, now)
        self.gone_at |= dict.fromkeys(here, inf)

    def note_child(self, name: str, here: bool, refuses: bool, reason: Reason | None) -> None:
        """Note one child, as `note_presence` would with all others as they were. Of thousands that come after one
        another, each costs no look at the others."""
        self.listed, self.in_order = None, None
        self.refusing = self.refusing | {name} if refuses else self.refusing - {name}
        if reason is None:
            self.unwilling.pop(name, None)
        else:
            self.unwilling = {**self.unwilling, name: reason}
        self.declining = self.declining | {name} if self.is_no(reason) else self.declining - {name}
        if here:
            self.present.add(name)
            self.note_new({name} - self.gone_at.keys(), time.monotonic())
            self.gone_at[name] = inf
        elif name in self.present:
            self.present.discard(name)
            self.gone_at[name] = time.monotonic()

    def is_no(self, reason: Reason | None) -> bool:
        """Says if a reason is an application's word, where that makes its device one that is away."""
        return self.may_decline and reason is not None and reason.kind == APPLICATION

    def note_new(self, names: Collection[str], now: float) -> None:
        """Note that these have come who were not here before."""
        if names:
            self.are_new, self.came_at = True, now

    @property
    def here(self) -> tuple[str, ...]:
        """Children that are connected, in this run and ready, in order."""
        if self.in_order is None:
            self.in_order = tuple(sorted(self.present))
        return self.in_order

    def remove(self, names: Iterable[str]) -> None:
        """Let these belong to no further round, and not be here."""
        gone = {*names} & self.gone_at.keys()
        self.gone_at = {name: at for name, at in self.gone_at.items() if name not in gone}
        self.present, self.in_order, self.listed = self.present - gone, None, None
        self.are_new = self.are_new or bool(gone)

    def list_asked(self, patience: float, least: int) -> tuple[str, ...]:
        """Names of those among `list_counting` who may be asked: whose application says no is away."""
        names = self.list_counting(patience, least)
        return tuple(name for name in names if name not in self.declining) if self.declining else names

    def list_counting(self, patience: float, least: int) -> tuple[str, ...]:
        """Names of the members that belong to a round which is opened now, in order.

        Args:
            patience: seconds that the round may wait for somebody who is gone.
            least: answers that it needs; of those who have been gone for longer, the latest ones make up for the rest.
        """
        now = time.monotonic()
        if self.listed is None or self.listed[0] != (patience, least) or now >= self.listed[1]:
            names = self.find_counting(now - patience, least)
            ends = [self.gone_at[name] + patience for name in names if self.gone_at[name] > now - patience]
            self.listed = (patience, least), min(ends, default=inf), names
        return self.listed[2]

    def find_counting(self, limit: float, least: int) -> tuple[str, ...]:
        """Members that were here after `limit`, by time.monotonic(), or are among the latest `least` to have been."""
        able = [name for name in sorted(self.gone_at) if name not in self.refusing]
        by_absence = sorted(able, key=lambda name: -self.gone_at[name])
        return tuple(sorted(name for i, name in enumerate(by_absence) if i < least or self.gone_at[name] > limit))

    def save(self) -> None:
        """Save who is a member; within a transaction."""
        self.sizes.save()
        if self.are_new:
            self.store.put_value(KEY, msgpack.packb(sorted(self.gone_at)))
            self.are_new = False


def load_members(store: Store) -> list[str]:
    """Members as they were saved; none in a store that a version without members has left.

    Raises:
        StoreDamaged: what was saved is no list of names.
    """
    saved = store.get_value(KEY)
    if saved is None:
        return []
    try:
        names = msgpack.unpackb(saved)
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise StoreDamaged(f"{store.path}: the members cannot be read ({e})") from None
    if type(names) is not list or not all(isinstance(name, str) and ID.fullmatch(name) for name in names):
        raise StoreDamaged(f"{store.path}: the members are no list of names")
    return names
